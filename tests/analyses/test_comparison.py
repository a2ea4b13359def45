"""Policies at the same bytes: what is matched, how they are ranked, what is said, and the command."""

import json
from dataclasses import replace
from fractions import Fraction

import polars as pl
import pytest
import torch
from disk_traces import write_traces
from typer.testing import CliRunner

from qevict_diag.analyses import comparison
from qevict_diag.analyses.comparison import ASKED, Comparison
from qevict_diag.cache.budget import Budget
from qevict_diag.cli.app import app
from qevict_diag.errors import InputError, ReadingError
from qevict_diag.measure.traces import Measurements
from qevict_diag.policies.catalogue import policies
from qevict_diag.readings import Readings
from qevict_diag.replay.settings import Settings
from qevict_diag.testing.traces import random_trace

SETTINGS = Settings(Budget(sinks=3, recent=6), horizon=8, dtype=torch.float64)
NAMES = ("R1", "R2", "R3", "h2o", "streaming_llm", "snapkv(window=8)")


@pytest.fixture(scope="module")
def traces():
    return [random_trace(seed, layers=2, prefill=96, decode=32, name=f"t{seed}") for seed in range(2)]


@pytest.fixture(scope="module")
def found(traces):
    asked = Comparison(policies(NAMES), (Fraction(1, 2), Fraction(1, 4)))
    return comparison.measured(traces, asked, SETTINGS)


def test_every_policy_holds_its_share_at_the_peak_and_would_hold_more_with_one_token_more(found):
    table = comparison.ranked(found)
    half = table.filter(pl.col(ASKED) == "1/2")
    assert set(half["policy"]) == set(NAMES)
    assert (half["share_peak"] <= 0.5).all()
    token_by_token = half.filter(pl.col("policy").is_in(["R1", "h2o", "streaming_llm"]))
    assert (token_by_token["share_peak"] > 0.5 - 1.5 / 128).all()


def test_bytes_are_matched_in_the_mean_or_not_at_all_where_that_is_asked(traces):
    used = {}
    for match in ("mean", "budget"):
        asked = Comparison(policies(["R1", "snapkv(window=8)"]), (Fraction(1, 2),), match)
        used[match] = comparison.ranked(comparison.measured(traces, asked, SETTINGS), match).sort("policy")
    assert (used["mean"]["share_mean"] <= 0.5).all()
    assert used["budget"]["share_mean"][1] > 0.5  # what is generated comes on top of the budget
    assert used["budget"]["place"].null_count() == 0


def test_two_processes_measure_what_one_does(traces, found):
    asked = Comparison(policies(NAMES), (Fraction(1, 2), Fraction(1, 4)))
    other = comparison.measured(traces, asked, SETTINGS, workers=2)
    assert other.frame.equals(found.frame)
    assert other.bytes.equals(found.bytes)


def test_one_that_keeps_all_later_tokens_has_no_place_where_it_holds_more(found):
    quarter = comparison.ranked(found).filter(pl.col(ASKED) == "1/4")
    last = quarter.row(-1, named=True)
    assert (last["policy"], last["place"]) == ("snapkv(window=8)", None)  # 32 tokens generated and 8 kept of 128
    assert last["share_peak"] > 0.25
    assert "snapkv(window=8) hold more than that at any budget" in comparison.answers(quarter)[0]


def test_missed_mass_is_counted_alike_whatever_is_protected(found):
    assert set(found.frame["reading"]) == {"fmm_denominator=sinks"}
    rows = found.frame.filter(pl.col("metric") == "fmm", pl.col(ASKED) == "1/2", pl.col("event") == 0)
    totals = rows.group_by("trace", "layer", "head").agg(pl.col("denominator").n_unique())
    known = rows.filter(pl.col("policy").is_in(["R1", "h2o"])).group_by("trace", "layer", "head")
    assert known.agg((pl.col("denominator").max() - pl.col("denominator").min()) < 1e-9)["denominator"].all()
    assert len(totals) == 2 * 2 * 4


def planted(missed):
    """Two articles with the given missed mass of each policy: name -> (first, second)."""
    rows = [
        {"trace": f"t{at}", "policy": name, "metric": metric, "reading": "", "layer": 0, "value": value, ASKED: "1/5"}
        for name, values in missed.items()
        for at, value in enumerate(values)
        for metric in ("fmm", "churn")
    ]
    frame = pl.DataFrame(rows).with_columns(numerator=pl.col("value"), denominator=pl.lit(1.0))
    names = ("used_bytes", "resident_bytes", "share_after_event", "share_mean", "share_peak")
    used = pl.DataFrame([{"policy": name, ASKED: "1/5", **dict.fromkeys(names, 0.2)} for name in missed])
    return Measurements(frame, used)


def test_policies_share_a_place_when_their_paired_difference_covers_zero():
    table = comparison.ranked(planted({"a": (0.1, 0.2), "b": (0.15, 0.16), "c": (0.3, 0.4), "d": (0.301, 0.401)}))
    assert dict(table.select("policy", "place").iter_rows()) == {"a": 1, "b": 1, "c": 3, "d": 4}
    told = comparison.answers(table)[0]
    assert told == (
        "At 20% of FullKV's bytes a misses least, 15.0% of the attention (2 articles); b cannot be told apart from it; "
        "d misses most, 35.1%."
    )


def test_a_denominator_that_differs_between_policies_is_refused_and_all_is_kept(traces):
    asked = Comparison(policies(["R2"]), (Fraction(1, 2),))
    with pytest.raises(ReadingError, match="give sinks or all"):
        comparison.measured(traces, asked, replace(SETTINGS, readings=Readings(fmm_denominator="historical")))
    kept = comparison.measured(traces, asked, replace(SETTINGS, readings=Readings(fmm_denominator="all")))
    assert set(kept.frame["reading"]) == {"fmm_denominator=all"}


@pytest.mark.parametrize(
    ("names", "match", "told"),
    [((), "peak", "give at least one"), (("R1",), "tokens", "there are peak, mean, budget")],
)
def test_what_cannot_be_compared_is_refused(names, match, told):
    with pytest.raises(InputError, match=told):
        Comparison(policies(names), (Fraction(1, 5),), match)


def test_the_command_prints_and_writes(tmp_path):
    folders = write_traces(tmp_path / "traces", prefill=96, decode=32)
    arguments = [*map(str, folders), "--policy", "R2", "--policy", "h2o", "--budget", "1/2", "--recent", "6"]
    done = CliRunner().invoke(app, ["compare", *arguments, "--horizon", "8", "--quiet", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "misses least" in done.output
    assert {"compare.md", "compare.svg", "measurements.parquet"} <= {one.name for one in (tmp_path / "out").iterdir()}
    told = CliRunner().invoke(app, ["compare", *arguments, "--horizon", "8", "--quiet", "--json"])
    assert {row["policy"] for row in json.loads(told.stdout)["rows"]} == {"R2", "h2o"}


def test_budgets_that_fall_from_layer_to_layer_are_matched_over_all_layers(traces):
    asked = Comparison(policies(["pyramidkv(window=8)"]), (Fraction(1, 2),))
    row = comparison.ranked(comparison.measured(traces, asked, SETTINGS)).row(0, named=True)
    assert row["place"] == 1
    assert 0.48 < row["share_peak"] <= 0.5
