"""Regret to the optimum and the share of the gap closed."""

import polars as pl
import pytest
from random_traces import random_trace

from qevict_diag.analyses.regret import regret
from qevict_diag.cache.budget import Budget
from qevict_diag.measure.traces import measure
from qevict_diag.policies.arms import optima, random_arms
from qevict_diag.replay.settings import Settings

SETTINGS = Settings(budget=Budget("1/2", sinks=2, recent=6), horizon=8)
ASKED = ("R1", "R2", "R3", "R3-one-way", "R3-full-only", "R3[key_norm]")


@pytest.fixture(scope="module")
def frame():
    traces = [random_trace(seed, name=f"t{seed}") for seed in (1, 2)]
    return measure(traces, (*ASKED, *random_arms(ASKED), *optima(ASKED)), ["fmm"], SETTINGS).frame


def test_arms_are_shared_by_the_ablations():
    assert optima(ASKED) == ("R1[irreversible]", "R2[irreversible]", "R3[irreversible]")
    assert random_arms(["R3", "R0"], 2) == ("R3[random:0]", "R3[random:1]")


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
    chance = sum(mean[name] for name in random_arms(["R3"])) / 3
    assert row["regret"] == pytest.approx(mean["R3"] - mean["R3[irreversible]"])
    assert row["closed"] == pytest.approx((chance - mean["R3"]) / (chance - mean["R3[irreversible]"]))
    assert row["regret_low"] <= row["regret"] <= row["regret_high"]


def test_policies_without_their_bounds_are_left_out(frame):
    assert "R3-full-only" not in regret(frame)["policy"].to_list()
    assert regret(frame.filter(pl.col("policy").is_in(["R3", "R2"]))).is_empty()


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
