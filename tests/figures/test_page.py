"""The page is self-contained, well-formed and says what holds and what does not."""

from html.parser import HTMLParser

import frames
import polars as pl
import pytest

from qevict_diag.analyses.claims import evaluate as claims
from qevict_diag.figures import figure1, style, tables
from qevict_diag.figures.report import page

VOID = {"meta", "br", "hr", "img", "link", "input", "path", "use", "rect"}


class Wellformed(HTMLParser):
    """Every tag that opens closes, in order; outside addresses are collected."""

    def __init__(self):
        super().__init__()
        self.open, self.fetched = [], []

    def handle_starttag(self, tag, attrs):
        self.fetched += [value for name, value in attrs if name == "src" or (tag == "link" and name == "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


def verdicts_under(default, other):
    """What I-a is under the defaults and under one reading."""
    rows = [("", "I-a", default, "+", 8), ("score_queries=event", "I-a", other, "-", 8)]
    return pl.DataFrame(rows, schema=["reading", "claim", "verdict", "sign", "n"], orient="row")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    frame, used = frames.measurements(traces=8), frames.bytes_frame()
    drawing = style.save(figure1.plot_figure1(frame), tmp_path_factory.mktemp("page") / "f.svg")
    report = page.Report(
        "toy <model>",
        claims.evaluate(frame),
        [(figure1.FIGURE, drawing.read_text(encoding="utf-8"))],
        [tables.build(name, frame, used) for name in ("14", "18")],
        compared=verdicts_under("holds", "does not hold"),
        facts={"texts": "a & b"},
        files=("table14.csv",),
    )
    return page.page(report)


def test_it_is_well_formed_and_fetches_nothing(written):
    parser = Wellformed()
    parser.feed(written)
    assert parser.open == []
    assert parser.fetched == []
    assert "<script" not in written


def test_it_escapes_what_it_is_given(written):
    assert "toy &lt;model&gt;" in written
    assert "toy <model>" not in written
    assert "a &amp; b" in written


def test_it_shows_claims_figure_tables_and_limits(written):
    assert "✓ 9 holds" in written
    assert "· 3 not measured" in written
    assert "Table 14." in written
    assert "Table 18." in written
    assert "<svg" in written
    assert "not task accuracy" in " ".join(written.split())
    assert 'href="table14.csv"' in written


def test_a_verdict_carries_n_its_interval_and_the_readings(written):
    first = written.partition("<td>I-a</td>")[2].partition("</tr>")[0]
    assert "n = 8" in first
    assert "FMM(R1) - FMM(R2) = 0.0" in first
    assert " [" in first
    assert "holds under 0 of 1 readings (n = 8); does not hold under B=event" in first
    assert "R2 has two tiers as R1 has" in first


def test_thresholds_of_ours_are_said_to_be_ours(written):
    assert "substantially: &gt; 1.5, our threshold" in written
    assert "claimed &gt; 1.5" not in written


def test_every_check_has_a_dot_for_each_article(written):
    first = written.partition('<svg class="strip"')[2].partition("</svg>")[0]
    assert first.count("<circle") == 8
    assert "8 articles" in first


def test_the_page_says_what_few_articles_mean():
    assert "wide, as it must be" in page.MEANING
    assert "wrong reason" not in page.MEANING
