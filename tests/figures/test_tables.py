"""Tables show published value, ours, interval, byte use and reading, and say the same in every format."""

import csv
import io
import json
from pathlib import Path

import frames
import numpy as np
import polars as pl
import pytest

from qevict_diag.analyses import needs
from qevict_diag.analyses.claims import evaluate as claims
from qevict_diag.analyses.needs import AGREEMENT, HEADS, MISSED, PROMOTION
from qevict_diag.cache.budget import Budget
from qevict_diag.errors import InputError
from qevict_diag.figures import tables
from qevict_diag.figures.tables import claims as claims_table
from qevict_diag.figures.tables import formats, numbers, parts, table14, table15, table18
from qevict_diag.figures.tables.sheet import Column, Sheet
from qevict_diag.metrics.eviction_age import CLASSES
from qevict_diag.replay.settings import Settings

OURS = ("17b", "heads", "age", "same-bytes", "sets")  # where the paper states nothing


@pytest.fixture(scope="module")
def measured():
    frame = frames.measurements()
    other = frame.filter(pl.col("policy") == "R3").with_columns(policy=pl.lit("R3[random]"))
    own = frame.filter(pl.col("policy").is_in(needs.CONDITIONS)).with_columns(
        policy=pl.col("policy") + "(scope=kv_head)", value=pl.col("value") - 0.02
    )
    return pl.concat([frame, other, own]), frames.bytes_frame(policies=frames.FMM)


@pytest.fixture(scope="module")
def built(measured):
    return {name: tables.build(name, *measured) for name in tables.TABLES}


@pytest.fixture(scope="module")
def small():
    frame = pl.DataFrame({"policy": ["R1", "R|2"], "x": [1234.5, float("nan")], "low": [-1.0, None]})
    columns = (
        Column(("policy",), "policy", numbers.text),
        Column(("x",), "Ω, %", numbers.number(1)),
        Column(("low", "x"), "interval", numbers.limits(numbers.number(1)), "group"),
    )
    return Sheet("tiny", "A title", frame, columns, ("A note, 5% of it.",))


@pytest.mark.parametrize("name", tables.TABLES)
def test_every_table_has_interval_byte_use_and_reading(built, name):
    labels = [column.label for column in built[name].columns]
    spanners = [column.spanner for column in built[name].columns]
    assert any("interval" in label for label in labels)
    assert "Byte use" in spanners
    assert "reading" in labels
    assert any("articles" in note for note in built[name].notes)


@pytest.mark.parametrize("name", [name for name in tables.TABLES if name not in OURS])
def test_published_values_have_their_own_column(built, name):
    assert parts.PAPER in [column.label for column in built[name].columns]


@pytest.mark.parametrize("name", tables.TABLES)
@pytest.mark.parametrize("form", formats.FORMATS)
def test_every_table_is_written_in_every_format(built, name, form):
    written = formats.render(built[name], form)
    assert len(written) > 100
    assert "nan" not in written.lower().replace("nance", "")


def test_missed_mass_by_age_adds_up_to_all_that_is_missed(built):
    rows = built["age"].frame.filter(policy="R3")
    assert rows["group"].to_list() == list(CLASSES)
    assert rows["of_missed"].to_list() == pytest.approx(frames.AGES)
    assert rows["estimate"].sum() == pytest.approx(built["14"].frame.filter(policy="R3")["fmm"][0])


def test_policies_stand_beside_what_they_are_held_against(built):
    sets, same = built["sets"].frame, built["same-bytes"].frame
    assert sets.filter(sets="layer")["difference"].to_list() == [0] * 4
    assert sets.filter(sets="key-value head")["difference"].to_list() == pytest.approx([-0.02] * 4)
    assert same["policy"].to_list() == ["R1", "R2", "R3", "R4"]
    assert same["difference"].to_list() == pytest.approx((same["estimate"] - same["estimate"][0]).to_list())


def test_table15_says_what_the_mass_ratio_follows_from(built):
    shown = built["15"].frame.filter(policy="R3")
    assert shown.filter(statistic="logit_variance")["estimate"][0] == pytest.approx(0.2)
    assert shown.filter(statistic="logit_bias")["estimate"][0] == pytest.approx(0.01)


def test_table14_in_the_papers_order_with_its_published_churn(built):
    table = built["14"]
    assert table.frame["policy"].to_list() == list(table14.POLICIES)
    assert table.frame["churn_published"].to_list() == [0.017, None, 0.0012, 0.018, None]
    assert table.frame["window"].to_list() == [1, 8, 8, 32, 8]
    assert table.cells()[0][:3] == ["R1", "1", f"{table.frame['fmm'][0] * 100:.1f}"]


def test_table15_means_and_pooled(built):
    frame = built["15"].frame
    assert frame.filter(policy="R3")["statistic"].to_list() == list(table15.AGREEMENT_NAMES)
    assert frame.filter(policy="R3", statistic="qsa")["published"][0] == 0.9824


def test_table16_prints_both_readings_of_episodes(built):
    frame = built["16"].frame
    assert set(frame["reading"]) == {"default", "lir_episodes=after_exit"}
    assert set(frame["group"]) == {"oracle", "policy"}
    assert frame["lag"].unique().to_list() == [3]
    first = frame.filter(policy="R3", group="policy", reading="default").row(0, named=True)
    assert (first["published"], first["published_return"]) == (0.0618, 8)


def test_table17a_prints_counts_beside_rates(built):
    shown = built["17a"].cells()
    assert len(shown) == 4
    assert "24 / 8\u00a0000" in shown[0]


def test_table17b_puts_the_best_estimator_first(built):
    assert built["17b"].frame["estimator"].to_list() == ["cumulative", "random"]


def test_p_values_are_never_zero():
    write = numbers.p_value(3)
    assert (write(0.0), write(4e-9), write(0.0312), write(None)) == ("< 0.001", "< 0.001", "0.031", numbers.EMPTY)


def test_table16_counts_first_entries(built):
    row = built["16"].frame.filter(policy="R3", group="policy", reading="default").row(0, named=True)
    assert (row["rescued"], row["first_entries"]) == (12 * 8, (12 - 2) * 8)
    spanners = {column.spanner for column in built["16"].columns}
    assert "Median time to return, rescued episodes only" in spanners


def test_table17b_shows_chance_in_closed_form(measured):
    frame, used = measured
    chance = frame.filter(metric="fmm", policy="R3").with_columns(metric=pl.lit("chance"), value=pl.lit(0.5))
    best = frame.filter(metric="fmm", policy="R3").with_columns(policy=pl.lit("R3[irreversible]"), value=pl.lit(0.1))
    table = tables.build("17b", pl.concat([frame, chance, best]), used)
    row = table.frame.filter(estimator="random").row(0, named=True)
    assert (row["fmm"], row["closed"]) == (pytest.approx(0.5), pytest.approx(0))
    assert "in closed form" in " ".join(table.notes)


def test_the_worst_heads_are_those_with_the_largest_means(built, measured):
    row = built["heads"].frame.filter(policy="R3").row(0, named=True)
    fmm = measured[0].filter(metric="fmm", policy="R3")
    means = fmm.group_by("layer", "head").agg(pl.col("value").mean()).sort("value")
    assert (row["layer"], row["head"], row["worst"]) == means.row(-1)
    assert row["head_90"] == pytest.approx(np.quantile(means["value"], 0.9))
    assert row["event_99"] == pytest.approx(np.quantile(fmm["value"], 0.99))
    own = fmm.filter(layer=row["layer"], head=row["head"]).group_by("trace").agg(pl.col("value").mean())["value"]
    assert (row["worst_low"], row["worst_high"]) == pytest.approx((own.min(), own.max()))


def test_table18_pairs_the_conditions_and_counts_whole_transitions(built):
    rows = {row[0]: row for row in built["18"].cells()}
    assert rows["FMM (%), lower is better"][3] == "16.80"
    shown = [f"{column.spanner}: {column.label}" for column in built["18"].columns]
    assert rows["Q→F transitions, all layers and articles"][shown.index("With promotion: Llama-3.1-8B")] == "639"
    assert rows["FMM (%), lower is better"][shown.index("Paired difference: with − without")].startswith("−")


def test_the_other_minimum_inactivity(measured):
    assert tables.build("16", *measured, Settings(min_inactive=4)).frame["lag"].unique().to_list() == [4]


def test_one_article_says_that_it_gives_no_interval():
    one = frames.measurements(traces=1)
    table = tables.build("14", one, frames.bytes_frame(traces=1))
    assert table.cells()[0][3] == numbers.EMPTY
    assert "one article gives no interval" in table.notes[-2]


def test_csv_and_json_hold_the_same_full_numbers(built):
    table = built["14"]
    read = list(csv.DictReader(io.StringIO(formats.csv(table))))
    rows = json.loads(formats.as_json(table))["rows"]
    assert [float(row["fmm"]) for row in read] == [row["fmm"] for row in rows] == table.frame["fmm"].to_list()
    assert read[1]["churn_published"] == ""
    assert rows[1]["churn_published"] is None


def test_markdown_escapes_and_leaves_undefined_empty(small):
    lines = formats.markdown(small).splitlines()
    assert lines[0] == "**A title**"
    assert lines[2] == "| policy | Ω, % | group: interval |"
    assert lines[4] == "| R1 | 1\u00a0234.5 | −1.0 to 1\u00a0234.5 |"
    assert lines[5] == "| R\\|2 | – | – |"
    assert lines[-1] == "A note, 5% of it."


def test_zero_has_no_sign():
    assert numbers.percent(0)(-0.001) == "0"
    assert numbers.number(2)(-0.004) == "0.00"
    assert numbers.number(2)(-0.006) == "−0.01"


def test_latex_is_plain_ascii(small):
    written = formats.latex(small)
    assert written.isascii()
    assert r"$\Omega$, \%" in written
    assert r"1~234.5" in written


def test_html_escapes(small):
    unsafe = Sheet("tiny", "<b>", small.frame.with_columns(policy=pl.lit("<i>")), small.columns)
    assert "<i>" not in formats.html(unsafe)


def test_json_of_several_tables_is_a_list(built):
    many = json.loads(formats.render_all([built["17a"], built["17b"]], "json"))
    assert [one["table"] for one in many] == ["table17a", "table17b"]
    assert json.loads(formats.render_all([built["17a"]], "json"))["table"] == "table17a"


def test_what_does_not_exist_is_an_error_in_words():
    with pytest.raises(InputError, match="table '19': there are 14, 15"):
        tables.names_of("19", "md")
    with pytest.raises(InputError, match="ask for 17a or 17b"):
        tables.names_of("17", "csv")
    with pytest.raises(InputError, match="allowed are md, csv"):
        tables.names_of("14", "xlsx")
    assert tables.names_of("17", "md") == ("17a", "17b")


def test_claims_as_tables(measured):
    evaluated = claims.evaluate(measured[0], measured[0])
    summary, checks = (make(evaluated, "toy") for make in (claims_table.claims_table, claims_table.checks_table))
    assert len(summary.cells()) == 12
    assert {row[2] for row in summary.cells()} == {"2"}
    assert set(checks.frame["unit"]) == {"article"}
    labels = [column.label for column in checks.columns]
    left = {column.label for column in checks.columns if not column.numeric}
    assert {"claim", "statistic", "claimed", "verdict", "numbers", "interval by", "reading"} <= left
    assert {"estimate", "95% interval", "p", "n"}.isdisjoint(left)
    claimed = {row[1]: row[labels.index("claimed")] for row in checks.cells()}
    assert claimed["FMM(R3-full-only) / FMM(R3)"] == "substantially: > 1.5, our threshold"
    assert claimed["QSA(R3)"] == "near 1: > 0.95, our threshold"
    assert claimed["FMM(R3-one-way) - FMM(R3)"] == "claimed > 0; no difference within 1e-05, our margin"
    for form in formats.FORMATS:
        assert formats.render(summary, form)
        assert formats.render(checks, form)


def test_tables_of_missed_mass_have_the_regret_and_the_gap_closed():
    policies = ("R3", "R3-one-way", "R3[random:0]", "R3[random:1]", "R3[irreversible]")
    values = dict(zip(policies, (0.3, 0.35, 0.5, 0.6, 0.1), strict=True))
    rows = [
        ("a", "m", name, "1/5", "fmm", "", layer, 0, 0, 0, None, None, value, value, 1.0)
        for name, value in values.items()
        for layer in (0, 1)
    ]
    frame = pl.DataFrame(rows, schema=frames.SCHEMA, orient="row")
    found = table18._against_o2(frame).row(0, named=True)
    assert found["regret_with"] == pytest.approx(0.2)
    assert found["closed_with"] == pytest.approx((0.55 - 0.3) / (0.55 - 0.1))
    assert found["regret_without"] == pytest.approx(0.25)


def test_a_table_of_missed_mass_asks_for_its_bounds():
    assert "R1[irreversible]" in MISSED.bounds
    assert PROMOTION.bounds == ("R3[irreversible]",)
    assert AGREEMENT.bounds == HEADS.bounds == ()


def test_a_ratio_over_nothing_is_empty_in_every_format(measured):
    frame, used = measured
    still = (pl.col("metric") == "transitions") & (pl.col("group") == "01")
    quiet = frame.with_columns(
        pl.when(still).then(0.0).otherwise(pl.col(name)).alias(name) for name in ("value", "numerator")
    )
    table = tables.build("17a", quiet, used)
    assert table.frame["ratio"].is_nan().all()
    assert all(row["ratio"] is None for row in json.loads(formats.as_json(table))["rows"])
    infinite = Sheet("t", "t", pl.DataFrame({"x": [float("inf")]}), ())
    assert formats.records(infinite)["rows"] == [{"x": None}]


def test_the_settings_are_under_the_table(measured):
    settings = Settings(budget=Budget("1/10", bits=4), horizon=16)
    note = tables.build("14", *measured, settings, "512+256").notes[-1]
    for told in ("512+256", "budget 1/10", "4 bits", "horizon 16"):
        assert told in note


def test_the_ending_names_the_format():
    assert formats.form_of(None, Path("t.csv")) == "csv"
    assert formats.form_of(None, Path("t.tex")) == "latex"
    assert formats.form_of(None, None) == formats.form_of(None, Path("t.txt")) == "md"
    with pytest.raises(InputError, match="ends as csv does, --format is md"):
        formats.form_of("md", Path("t.csv"))
