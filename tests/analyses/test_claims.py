"""Verdicts follow the interval; claims that fail are reported as failing."""

import math

import frames
import numpy as np
import polars as pl
import pytest

from qevict_diag.analyses import importance, promotion, published
from qevict_diag.analyses.claims import evaluate as claims
from qevict_diag.analyses.claims import verdicts
from qevict_diag.statistics.intervals import Interval


@pytest.fixture(scope="module")
def frame():
    return frames.measurements(traces=8)


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
    ("low", "high", "expected"),
    [
        (-1e-6, 4e-6, "no difference"),
        (1e-6, 4e-6, "no difference"),
        (-4e-6, -1e-6, "no difference"),
        (-1e-6, 2e-5, "undecided"),
        (1e-6, 2e-5, "holds"),
        (-2e-5, -1e-6, "does not hold"),
        (math.nan, math.nan, "undecided"),
    ],
)
def test_within_the_margin_there_is_no_difference(low, high, expected):
    assert claims.verdict(interval(low, high), 0.0, "above", 1e-5) == expected


@pytest.mark.parametrize(
    ("estimate", "side", "expected"),
    [(2.0, "above", "+"), (0.5, "above", "-"), (1.0, "above", "-"), (0.5, "below", "+"), (1.0, "equal", "+")],
)
def test_the_sign_says_on_which_side_the_estimate_lies(estimate, side, expected):
    assert claims.sign(estimate, 1.0, side) == expected
    assert claims.sign(math.nan, 1.0, side) == ""


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (["holds", "holds"], "holds"),
        (["holds", "undecided"], "undecided"),
        (["undecided", "does not hold", "not measured"], "does not hold"),
        (["holds", "not measured"], "not measured"),
        (["no difference", "undecided"], "no difference"),
        (["no difference", "does not hold"], "does not hold"),
    ],
)
def test_one_failing_check_fails_the_claim(parts, expected):
    assert verdicts.combined(parts) == expected


def test_all_twelve_claims_are_checked_in_order(frame):
    summary = verdicts.summary(claims.evaluate(frame, frame))
    assert summary["claim"].to_list() == [claim["id"] for claim in published.claims()]
    assert set(summary["verdict"]) == {"holds"}
    assert summary["n"].to_list() == [8] * 12


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
    row = verdicts.summary(claims.evaluate(worse, frame)).row(0, named=True)
    assert (row["claim"], row["verdict"]) == ("I-a", "does not hold")
    assert "FMM(R4) 0.6" in row["numbers"]


def test_an_effect_in_the_noise_is_undecided_and_says_what_it_would_take():
    """R1's articles lie apart by ten times its mean distance from R2's, on both sides."""
    noisy = frames.measurements(traces=6, noise=0.0)
    tilt = pl.col("trace").replace_strict({f"article-{n}": 0.05 * (-1) ** n + 0.005 for n in range(6)})
    r1 = (pl.col("policy") == "R1") & (pl.col("metric") == "fmm")
    noisy = noisy.with_columns(value=pl.when(r1).then(frames.FMM["R2"] + tilt).otherwise("value"))
    row = claims.evaluate(noisy).row(0, named=True)
    assert (row["statistic"], row["verdict"]) == ("FMM(R1) - FMM(R2)", "undecided")
    assert row["estimate"] == pytest.approx(0.005)
    assert row["more"] == "the articles disagree: 3 of 6 point the other way or nowhere"


def test_one_article_leaves_everything_but_counts_undecided_and_still_has_signs():
    one = frames.measurements(traces=1)
    evaluated = claims.evaluate(one, one)
    assert set(evaluated.filter(pl.col("side") != "equal")["verdict"]) == {"undecided"}
    assert set(evaluated.filter(pl.col("side") == "equal")["verdict"]) == {"holds"}
    assert set(evaluated.filter("counts")["sign"]) == {"+"}
    assert evaluated["more"].str.contains("one more").any()


def test_like_for_like_counts_towards_the_first_claim(frame):
    worse = frame.with_columns(
        value=pl.when((pl.col("metric") == "fmm") & (pl.col("policy") == "R2")).then(0.6).otherwise("value")
    )
    first = verdicts.summary(claims.evaluate(worse)).row(0, named=True)
    assert (first["claim"], first["verdict"], first["sign"]) == ("I-a", "does not hold", "-")
    assert "FMM(R1) - FMM(R2) = -0." in first["evidence"]


def test_episodes_after_an_exit_stand_beside_the_claim_and_do_not_count(frame):
    both = claims.evaluate(frame).filter(claim="III-a")
    assert both["counts"].to_list() == [True, False]
    assert both["verdict"].to_list() == ["holds", "does not hold"]
    assert both["estimate"].to_list() == pytest.approx([12 / 200 - 2 / 200, 2 / 40 - 3 / 40])
    row = verdicts.summary(claims.evaluate(frame)).filter(claim="III-a").row(0, named=True)
    assert row["verdict"] == "holds"
    assert "after exit = -0.025 [-0.025, -0.025] (beside the claim: does not hold)" in row["evidence"]
    assert "Of R3's 384 rescued episodes 320 are first entries" in row["remark"]  # (12 - 2) · 4 layers · 8 articles


def test_remarks_say_what_is_arithmetic(frame):
    told = dict(verdicts.summary(claims.evaluate(frame)).select("claim", "remark").rows())
    assert "P10 / P01 is 10.0 at lag 1; windows outside F over windows in it are 10.0" in told["III-b"]
    assert "exp(s²/2)" in told["II-c"]
    above = frame.with_columns(
        numerator=pl.when(pl.col("metric") == "mass_ratio").then(1.083 * pl.col("denominator")).otherwise("numerator")
    )
    row = verdicts.summary(claims.evaluate(above)).filter(claim="II-c").row(0, named=True)
    assert f"1.083 is s = {math.sqrt(2 * math.log(1.083)):.2f}" in row["remark"]


def test_the_gap_closed_stands_beside_the_first_claim(frame):
    bounds = [
        frame.filter(metric="fmm", policy=policy).with_columns(
            metric=pl.lit(metric), policy=pl.lit(name), value=pl.lit(value)
        )
        for policy in ("R1", "R2")
        for metric, name, value in (("chance", policy, 0.6), ("fmm", f"{policy}[irreversible]", 0.1))
    ]
    remark = claims.evaluate(pl.concat([frame, *bounds]))["remark"][0]
    assert "they close: R1 40% [" in remark
    assert ", R2 44% [" in remark
    assert "R3 " not in remark.partition("close:")[2]


def test_no_difference_is_a_verdict_of_promotion(frame):
    same = frame.filter(policy="R3").with_columns(policy=pl.lit("R3-one-way"))
    late = pl.concat([frame.filter(pl.col("policy") != "R3-one-way"), same])
    row = claims.evaluate(None, late).filter(claim="K-a").row(0, named=True)
    assert (row["verdict"], row["margin"], row["estimate"]) == ("no difference", 1e-5, 0)


def compared(rows):
    """Verdicts under readings: (reading, verdict, sign)."""
    schema = ["reading", "verdict", "sign"]
    return pl.DataFrame(rows, schema=schema, orient="row").with_columns(claim=pl.lit("I-a"), n=pl.lit(8))


def test_how_a_claim_fares_under_the_readings():
    told = verdicts.standing(
        compared(
            [
                ("", "holds", "+"),
                ("scope=head", "holds", "+"),
                ("score_queries=event", "does not hold", "-"),
                ("policy_score=restricted", "does not hold", "-"),
                ("lag=first_passage", "undecided", "+"),
                ("admission=forced, R1 only", "holds", "+"),
                ("universe=accessible", "not measured", ""),
            ]
        )
    )
    changed = "does not hold under B=event, C=restricted; undecided under N=first_passage"
    assert told == {"I-a": f"holds under 2 of 5 readings (n = 8); {changed}"}


def test_what_is_undecided_is_compared_by_its_sign():
    rows = [("", "undecided", "+"), ("scope=head", "undecided", "+"), ("score_queries=event", "undecided", "-")]
    told = verdicts.standing(compared(rows))["I-a"]
    assert told == (
        "estimate on the claimed side under 1 of 2 readings (n = 8); estimate not on the claimed side under B=event"
    )


def test_nothing_is_said_of_readings_that_were_not_tried(frame):
    assert verdicts.standing(compared([("", "holds", "+")])) == {"I-a": ""}
    assert set(verdicts.summary(claims.evaluate(frame))["readings"]) == {""}
    with_one = verdicts.summary(claims.evaluate(frame), compared([("", "holds", "+"), ("scope=head", "holds", "+")]))
    assert with_one["readings"][0] == "holds under 1 of 1 readings (n = 8)"
    assert set(with_one["readings"][1:]) == {""}


def test_what_was_not_measured_is_said(frame):
    summary = verdicts.summary(claims.evaluate(frame, None))
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


def test_importance_shows_chance_in_closed_form(frame):
    r3 = frame.filter(pl.col("policy") == "R3")
    drawn = r3.with_columns(policy=pl.lit("R3[random]"))
    chance = r3.filter(metric="fmm").with_columns(metric=pl.lit("chance"), value=pl.lit(0.5))
    row = importance.compare(pl.concat([frame, drawn, chance])).filter(estimator="random").row(0, named=True)
    assert row["fmm"] == pytest.approx(0.5)
    assert row["churn"] is None
    assert row["difference"] == pytest.approx(0.5 - r3.filter(metric="fmm")["value"].mean())


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


def test_evidence_calls_a_threshold_ours_where_the_paper_has_a_word():
    check = {"statistic": "QSA(R3)", "estimate": 0.98, "low": 0.97, "high": 0.99, "threshold": 0.95, "word": "near 1"}
    check |= {"method": "t over articles", "counts": True}
    assert verdicts.told(check) == "QSA(R3) = 0.98 [0.97, 0.99] (near 1: our threshold 0.95)"
    assert verdicts.told(check | {"word": ""}) == "QSA(R3) = 0.98 [0.97, 0.99]"
