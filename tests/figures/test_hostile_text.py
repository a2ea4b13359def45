"""Text of a trace in what is written: tables, pictures and pages say it, and do nothing that it says."""

import xml.dom.minidom
from html.parser import HTMLParser

import frames
import polars as pl
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from qevict_diag.analyses.claims import evaluate as claims
from qevict_diag.figures import figure1, layers, style, tables
from qevict_diag.figures.distribution import plot_distribution
from qevict_diag.figures.heatmap import plot_heatmaps
from qevict_diag.figures.report import page
from qevict_diag.figures.sweep.heatmap import plot_heatmap
from qevict_diag.figures.tables import formats
from qevict_diag.figures.tables.claims import checks_table, claims_table
from qevict_diag.figures.tables.numbers import text
from qevict_diag.figures.tables.sheet import Column, Sheet
from qevict_diag.plain import plain

EVIL = (
    "<img src=x onerror=alert(1)> $\\frac{$ $x^2$ \\input{/etc/passwd} a|b [k](http://evil.example) ]]> --> "
    "& # % _ {z}\n\nfake **b** \x1b]0;pwn\x07 \x00 \ufffe \u202e"
)
FORMULAS = ("=1+1", "+1-2", "-2+3", "@SUM(A1)", "=cmd|' /C calc'!A0")
CONTROL = [*map(chr, range(0x20)), "\x7f", "\x9b", "\u202e"]


@pytest.fixture(scope="module")
def table():
    columns = (Column(("x",), f"label {EVIL}", text, f"above {EVIL}"), Column(("x",), "b", text))
    return Sheet("t", f"title {EVIL}", pl.DataFrame({"x": [EVIL, *FORMULAS]}), columns, (f"note {EVIL}",))


@pytest.mark.parametrize("form", formats.FORMATS)
def test_no_format_of_a_table_holds_control_characters(table, form):
    written = formats.render(table, form)
    assert not any(character in written.replace("\n", "") for character in CONTROL)


def test_markdown_has_no_html_and_no_links_and_one_line_for_each_row(table):
    lines = formats.markdown(table).splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 2 + 1 + len(FORMULAS)
    assert all(row.replace("\\|", "").count("|") == 3 for row in rows)
    assert not any("<" in line or "](" in line for line in lines)
    assert len(lines) == len(rows) + 4  # title and note, and an empty line at each


def test_latex_runs_no_command_of_a_name(table):
    written = formats.latex(table)
    assert "\\input" not in written
    assert "\\textbackslash{}input" in written
    assert "\n\nfake" not in written  # a paragraph would end the cell


class Tags(HTMLParser):
    def __init__(self, source):
        super().__init__()
        self.found = set()
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        self.found.add(tag)


def test_html_has_no_tag_of_a_name(table):
    assert not Tags(formats.html(table)).found & {"img", "script"}


@pytest.mark.parametrize("cell", FORMULAS)
def test_no_cell_of_a_csv_is_a_formula(cell):
    table = Sheet("t", "t", pl.DataFrame({"x": [cell, "plain"], "y": [-1.5, 2.0]}), ())
    found = pl.read_csv(formats.csv(table).encode())
    assert found["x"].to_list() == [f"'{cell}", "plain"]
    assert found["y"].to_list() == [-1.5, 2.0]


def test_a_list_of_numbers_in_a_csv_stays_one():
    table = Sheet("t", "t", pl.DataFrame({"x": [[-0.5, 1e-9]]}), ())
    assert formats.csv(table) == "x\n-0.5;1e-9\n"


@pytest.fixture(scope="module")
def hostile():
    """Measurements of a model with such a name; every picture also of a policy with such a name, where it may be."""
    frame = frames.measurements(traces=2).with_columns(model=pl.lit(EVIL))
    return frame, frame.with_columns(policy=pl.col("policy").replace({"R2": f"R2[{EVIL}]"}))


def pictures(hostile):
    frame, other = hostile
    yield "figure1", figure1.plot_figure1(frame)
    yield "fmm", figure1.plot_fmm(other, ax=Figure((9, 3)).add_subplot()).get_figure()
    yield "layers", layers.figure_layers(frame)
    yield "heatmap", plot_heatmaps(other)
    yield "distribution", plot_distribution(other, ax=Figure((9, 3)).add_subplot()).get_figure()


def texts(figure):
    return [text.get_text() for text in figure.findobj(Text)]


def test_pictures_show_names_as_they_are_and_any_reader_reads_them(hostile, tmp_path):
    """Mathematics is not set, and the drawing is well-formed XML, whatever the model is called."""
    for name, figure in pictures(hostile):
        drawn = style.save(figure, tmp_path / f"{name}.svg")
        xml.dom.minidom.parseString(drawn.read_bytes())
        for ending in ("pdf", "png"):
            style.save(figure, tmp_path / f"{name}.{ending}")
        assert all(plain(line) == line for one in texts(figure) for line in one.split("\n")), name
    assert any("$x^2$" in one for one in texts(figure1.plot_fmm(hostile[0]).get_figure()))


def test_no_name_in_a_picture_is_mathematics(hostile):
    """Neither in an axes of ours nor in one that was made elsewhere, where mathematics is on."""
    setting = {"window": 8, "quantized_fraction": "1/2", "bits": 2, "budget": "1/5", "swept_reading": ""}
    swept = frames.measurements().filter(metric="fmm").with_columns(policy=pl.lit("$\\frac{$"))
    maps = swept.with_columns(**{name: pl.lit(value) for name, value in setting.items()})
    drawn = [figure for _, figure in pictures(hostile)]
    drawn.append(plot_heatmap(maps, policy="$\\frac{$", ax=Figure().add_subplot()).get_figure())
    named = [text for figure in drawn for text in figure.findobj(Text) if "$" in text.get_text()]
    assert len(named) >= 4
    assert not any(text.get_parse_math() for text in named)


def test_a_page_about_a_hostile_model_is_a_page(hostile, tmp_path):
    frame, used = hostile[0], frames.bytes_frame()
    drawing = style.save(figure1.plot_figure1(frame), tmp_path / "f.svg").read_text(encoding="utf-8")
    evaluated = claims.evaluate(frame)
    judged = [claims_table(evaluated, EVIL), checks_table(evaluated, EVIL)]
    report = page.Report(
        EVIL, evaluated, [(figure1.FIGURE, drawing)], [tables.build("14", frame, used), *judged], facts={"model": EVIL}
    )
    written = page.page(report)
    assert not Tags(written).found & {"img", "script"}
    assert not any(character in written.replace("\n", "").replace("\t", "") for character in CONTROL)
