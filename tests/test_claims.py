"""Verdicts follow the interval; claims that fail are reported as failing."""

import math

import frames
import numpy as np
import polars as pl
import pytest

from qevict_diag.analyses import importance, promotion, published
from qevict_diag.analyses.claims import evaluate as claims
from qevict_diag.statistics.intervals import Interval


@pytest.fixture(scope="module")
def frame():
    return frames.measurements()


def interval(low, high):
    return Interval((low + high) / 2, low, high, "test", 2)


@pytest.mark.parametrize(
    ("low", "high", "side", "expected"),
    [
        (0.1, 0.3, "above", "holds"),
        (-0.3, -0.1, "above", "does not hold"),
        (-0.1, 0.3, "above", "undecided"),
        (0.0, 0.3, "above", "undecided"),
        (0.1, 0.3, "below", "does not hold"),
        (-0.3, -0.1, "below", "holds"),
        (math.nan, math.nan, "above", "undecided"),
        (0.0, 0.0, "equal", "holds"),
        (0.0, 0.2, "equal", "does not hold"),
    ],
)
def test_verdict_follows_the_interval(low, high, side, expected):
    assert claims.verdict(interval(low, high), 0.0, side) == expected


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (["holds", "holds"], "holds"),
        (["holds", "undecided"], "undecided"),
        (["undecided", "does not hold", "not measured"], "does not hold"),
        (["holds", "not measured"], "not measured"),
    ],
)
def test_one_failing_check_fails_the_claim(parts, expected):
    assert claims.combined(parts) == expected


def test_all_twelve_claims_are_checked_in_order(frame):
    summary = claims.summary(claims.evaluate(frame, frame))
    assert summary["claim"].to_list() == [claim["id"] for claim in published.claims()]
    assert set(summary["verdict"]) == {"holds"}
    assert summary["n"].to_list() == [2] * 12


def test_every_check_states_statistic_interval_unit_and_n(frame):
    evaluated = claims.evaluate(frame, frame)
    for column in ("statistic", "numbers", "method", "unit", "side", "text", "place"):
        assert evaluated[column].null_count() == 0
        assert (evaluated[column] != "").all()
    assert (evaluated["low"] <= evaluated["estimate"] + 1e-12).all()
    known = evaluated.filter(pl.col("p_value").is_not_nan())
    assert (known["p_holm"] >= known["p_value"]).all()


def test_a_claim_that_fails_is_reported_as_failing(frame):
    worse = frame.with_columns(
        value=pl.when((pl.col("metric") == "fmm") & (pl.col("policy") == "R4")).then(0.6).otherwise("value")
    )
    row = claims.summary(claims.evaluate(worse, frame)).row(0, named=True)
    assert (row["claim"], row["verdict"]) == ("I-a", "does not hold")
    assert "FMM(R4) 0.6" in row["numbers"]


def test_an_effect_in_the_noise_is_undecided_and_says_what_it_would_take():
    noisy = frames.measurements(seed=3, noise=0.0)
    tilt = pl.when(pl.col("trace") == "article-0").then(0.05).otherwise(-0.04)
    r1 = (pl.col("policy") == "R1") & (pl.col("metric") == "fmm")
    noisy = noisy.with_columns(value=pl.when(r1).then(0.20 + tilt).otherwise("value"))
    row = claims.evaluate(noisy).row(0, named=True)
    assert row["verdict"] == "undecided"
    assert row["more"]


def test_one_article_leaves_everything_but_counts_undecided():
    one = frames.measurements(traces=1)
    evaluated = claims.evaluate(one, one)
    assert set(evaluated.filter(pl.col("side") != "equal")["verdict"]) == {"undecided"}
    assert set(evaluated.filter(pl.col("side") == "equal")["verdict"]) == {"holds"}
    assert evaluated["more"].str.contains("one more").any()


def test_what_was_not_measured_is_said(frame):
    summary = claims.summary(claims.evaluate(frame, None))
    late = summary.filter(pl.col("claim").str.starts_with("K"))
    assert set(late["verdict"]) == {"not measured"}
    assert late["numbers"].str.contains("was not measured").all()


def test_promotion_is_paired_on_the_same_traces(frame):
    rows = {row["quantity"]: row for row in promotion.compare(frame).iter_rows(named=True)}
    fmm = rows["fmm"]
    assert fmm["difference"] == pytest.approx(fmm["with"] - fmm["without"])
    assert fmm["difference_high"] < 0
    assert (fmm["published_without"], fmm["published_with"]) == (0.168, 0.161)
    total = frame.filter(metric="promotions", policy="R3")["value"].sum()
    assert rows["promotions"]["with"] == pytest.approx(total)
    assert rows["promotions"]["without"] == 0
    assert rows["lir"]["without"] == 0


def test_importance_ranks_the_estimators_against_the_default(frame):
    r3 = frame.filter(pl.col("policy") == "R3")
    better = r3.with_columns(policy=pl.lit("R3[oracle]"), value=pl.col("value") * 0.9)
    table = importance.compare(pl.concat([frame, better]))
    assert table["estimator"].to_list() == ["oracle", "cumulative"]
    assert table["difference"][0] == pytest.approx(-0.02, abs=0.002)
    assert table["difference_high"][0] < 0
    assert table["difference"][1] == 0


def test_a_verdict_that_the_correction_takes_back_is_undecided(frame, monkeypatch):
    usual = claims.evaluate(frame).filter(claim="I-a")
    assert set(usual["verdict"]) == {"holds"}
    monkeypatch.setattr(claims.intervals, "holm", lambda values: values * 0 + 0.08)
    corrected = claims.evaluate(frame).filter(claim="I-a")
    assert set(corrected["verdict"]) == {"undecided"}
    assert (corrected["more"] != "").all()


def test_numbers_have_the_digits_that_tell_them_apart():
    assert claims.apart(np.array([0.1675467, 0.1675539])) == ["0.167547", "0.167554"]
    assert claims.apart(np.array([0.3, 0.3])) == ["0.3", "0.3"]


def test_importance_takes_the_episodes_of_its_reading(frame):
    """Global LIR comes under both readings of episodes; the table shows the one that it says."""
    label = "lir_episodes=after_exit"
    lir = pl.col("metric").is_in(("lir", "return_time"))
    under = pl.concat([frame.filter(~lir).with_columns(reading=pl.lit(label)), frame.filter(lir)])
    rows = frame.filter(metric="lir", policy="R3", group="policy", lag=3, reading=label)
    found = importance.compare(under).filter(policy="R3")["lir"][0]
    assert found == pytest.approx(rows["numerator"].sum() / rows["denominator"].sum())
