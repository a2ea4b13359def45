"""Regret to the optimum and the share of the gap closed."""

import frames
import polars as pl
import pytest
import scipy

from qevict_diag.analyses.regret import regret
from qevict_diag.cache.budget import Budget
from qevict_diag.measure.traces import measure
from qevict_diag.policies.arms import optima, random_arms
from qevict_diag.policies.catalogue import policies
from qevict_diag.replay.settings import Settings
from qevict_diag.testing.traces import random_trace

SETTINGS = Settings(budget=Budget("1/2", sinks=2, recent=6), horizon=8)
ASKED = ("R1", "R2", "R3", "R3-one-way", "R3-full-only", "R3[key_norm]")
ASKED_POLICIES = policies(ASKED)


@pytest.fixture(scope="module")
def frame():
    traces = [random_trace(seed, name=f"t{seed}") for seed in (1, 2)]
    return measure(traces, (*ASKED, *random_arms(ASKED_POLICIES), *optima(ASKED_POLICIES)), ["fmm"], SETTINGS).frame


def test_arms_are_shared_by_the_ablations():
    assert optima(ASKED_POLICIES) == ("R1[irreversible]", "R2[irreversible]", "R3[irreversible]")
    assert random_arms(policies(["R3", "R0"]), 2) == ("R3[random:0]", "R3[random:1]")


def test_the_optimum_closes_everything_and_chance_nothing(frame):
    table = regret(frame)
    best = table.filter(policy="R3[irreversible]").row(0, named=True)
    assert (best["regret"], best["closed"]) == (0, 1)
    drawn = table.filter(pl.col("policy").str.starts_with("R3[random"))["closed"]
    assert drawn.mean() == pytest.approx(0, abs=1e-12)


def test_no_irreversible_policy_has_negative_regret(frame):
    assert (regret(frame)["regret"] >= -1e-7).all()


def test_regret_is_the_difference_of_the_means(frame):
    mean = {name: part["value"].mean() for (name,), part in frame.group_by("policy")}
    row = regret(frame).filter(policy="R3").row(0, named=True)
    chance = sum(mean[name] for name in random_arms(policies(["R3"]))) / 3
    assert row["regret"] == pytest.approx(mean["R3"] - mean["R3[irreversible]"])
    assert row["closed"] == pytest.approx((chance - mean["R3"]) / (chance - mean["R3[irreversible]"]))
    assert row["regret_low"] <= row["regret"] <= row["regret_high"]


def test_policies_without_their_bounds_are_left_out(frame):
    assert "R3-full-only" not in regret(frame)["policy"].to_list()
    assert regret(frame.filter(pl.col("policy").is_in(["R3", "R2"]))).is_empty()


def chance(frame, policy, value):
    """Rows of chance beside those of a policy's FMM, with values of their own."""
    return frame.filter(policy=policy).with_columns(metric=pl.lit("chance"), value=value)


def test_chance_in_closed_form_takes_the_place_of_draws(frame):
    more = chance(frame, "R3", pl.col("value") + 0.125)
    one = pl.concat([frame, more])
    row = regret(one).filter(policy="R3").row(0, named=True)
    mean = {name: part["value"].mean() for (name,), part in frame.group_by("policy")}
    gap = mean["R3"] + 0.125 - mean["R3[irreversible]"]
    assert row["chance"] == pytest.approx(mean["R3"] + 0.125)
    assert row["closed"] == pytest.approx(0.125 / gap)
    shared = regret(one).filter(policy="R3[key_norm]").row(0, named=True)
    assert shared["chance"] == row["chance"]
    assert regret(frame).filter(policy="R2").equals(regret(one).filter(policy="R2"))


def test_a_policys_own_chance_comes_before_its_arms(frame):
    one = pl.concat([frame, chance(frame, "R3", pl.lit(0.5)), chance(frame, "R3-one-way", pl.lit(0.25))])
    found = dict(regret(one).select("policy", "chance").rows())
    assert (found["R3"], found["R3[key_norm]"], found["R3-one-way"]) == (0.5, 0.5, 0.25)


def test_chance_stands_alone_where_no_optimum_was_measured(frame):
    one = pl.concat([frame.filter(policy="R3"), chance(frame, "R3", pl.lit(0.5))])
    row = regret(one).row(0, named=True)
    assert (row["chance"], row["regret"], row["closed"]) == (0.5, None, None)


def test_the_gap_closed_has_the_interval_of_its_articles():
    """Two articles close 60% and 80% of the same gap: t at one degree of freedom about 70%."""
    values = {("R3", "fmm"): (0.4, 0.3), ("R3[irreversible]", "fmm"): (0.2, 0.2), ("R3", "chance"): (0.7, 0.7)}
    rows = [
        (article, "m", policy, "1/5", metric, "", 0, 0, 0, None, None, None, value, value, 1.0)
        for (policy, metric), both in values.items()
        for article, value in zip("ab", both, strict=True)
    ]
    row = regret(pl.DataFrame(rows, schema=frames.SCHEMA, orient="row")).filter(policy="R3").row(0, named=True)
    expected = scipy.stats.ttest_1samp([0.6, 0.8], 0).confidence_interval(0.95)
    assert row["closed"] == pytest.approx(0.7)
    assert (row["closed_low"], row["closed_high"]) == pytest.approx((expected.low, expected.high))


def test_only_the_arms_of_their_own_are_chance(frame):
    """Random policies that someone asked for beside the arms change nobody's number."""
    more = pl.concat(
        frame.filter(policy="R3[key_norm]").with_columns(policy=pl.lit(name)) for name in ("R3[random]", "R3[random:7]")
    )
    one, other = (regret(rows).filter(policy="R3") for rows in (frame, pl.concat([frame, more])))
    assert one.equals(other)


def test_one_of_two_articles_gives_no_interval_of_regret(frame):
    partly = frame.filter((pl.col("policy") != "R3") | (pl.col("trace") == "t1"))
    row = regret(partly).filter(policy="R3").row(0, named=True)
    assert row["regret_low"] != row["regret_low"]
