"""The three observations find the truths that the made-up frames hide."""

import frames
import numpy as np
import polars as pl
import pytest

from qevict_diag.analyses import observation1, observation2, observation3


@pytest.fixture(scope="module")
def frame():
    return frames.measurements()


def by(table, *keys):
    return {tuple(row[key] for key in keys): row for row in table.iter_rows(named=True)}


def test_fmm_of_every_policy(frame):
    found = by(observation1.fmm(frame), "policy")
    for policy, truth in frames.FMM.items():
        row = found[(policy,)]
        assert row["estimate"] == pytest.approx(truth, abs=0.01)
        assert row["low"] < row["estimate"] < row["high"]
        assert row["n"] == 2


def test_churn_comes_with_what_it_means(frame):
    found = by(observation1.churn(frame), "policy")
    assert found[("R1",)]["estimate"] == pytest.approx(0.017)
    assert found[("R1",)]["published"] == 0.017
    assert found[("R2",)]["published"] is None
    assert found[("R4",)]["window"] == 32
    assert found[("R4",)]["tokens_per_event"] == pytest.approx(0.018 * 100 / 2)
    assert found[("R4",)]["windows_per_event"] == pytest.approx(0.018 * 100 / 2 / 32)


def test_the_series_has_one_point_for_each_event(frame):
    series = observation1.series(frame)
    r4 = series.filter(policy="R4").sort("event")
    assert r4["step"].to_list() == [0, 32]
    assert len(series.filter(policy="R1")) == 64
    whole = observation1.fmm(frame).filter(policy="R4")["estimate"][0]
    assert np.average(r4["estimate"], weights=r4["count"]) == pytest.approx(whole)


def test_mass_shares_add_up_and_stand_beside_the_published_ones(frame):
    shares = observation2.mass_shares(frame)
    totals = shares.group_by("policy").agg(pl.col("estimate").sum())
    assert totals["estimate"].to_numpy() == pytest.approx(1)
    r3 = shares.filter(policy="R3")
    assert r3["group"].to_list() == list(observation2.GROUPS)
    assert r3["published"].to_list() == [0.197, 0.426, 0.357, 0.019]


def test_agreement_pooled_and_mean(frame):
    found = by(observation2.agreement(frame), "policy", "statistic")
    assert found[("R3", "qsa")]["estimate"] == pytest.approx(0.985, abs=0.01)
    assert found[("R3", "qsa")]["published"] == 0.9824
    assert found[("R3", "mass_ratio")]["estimate"] == pytest.approx(0.9, abs=0.01)
    assert found[("R4", "qsa pooled")]["published"] is None


def test_lir_has_counts_and_two_intervals(frame):
    found = by(observation3.lir(frame), "policy", "reading", "group", "lag")
    row = found[("R3", "", "policy", 3)]
    assert (row["rescued"], row["eligible"]) == (12 * 8, 200 * 8)
    assert row["estimate"] == pytest.approx(0.06)
    assert row["wilson_low"] < 0.06 < row["wilson_high"]
    assert (row["low"], row["high"]) == pytest.approx((0.06, 0.06))  # both articles have the same rate
    assert row["published"] == 0.0618
    assert row["published_return"] == 8
    assert found[("R3", "", "policy", 4)]["published"] is None
    assert found[("R3", "", "oracle", 3)]["published"] == 0.0098
    assert ("R3", "lir_episodes=after_exit", "policy", 3) in found


def test_the_median_time_to_return_is_that_of_all_rescued_episodes(frame):
    table = observation3.lir(frame)
    times = frame.filter(metric="return_time", policy="R3", group="policy", lag=3, reading="")["value"]
    row = table.filter(policy="R3", group="policy", lag=3, reading="").row(0, named=True)
    assert row["median_return"] == times.median()
    assert row["return_low"] <= row["median_return"] <= row["return_high"]


def test_nothing_rescued_has_no_time_to_return(frame):
    row = observation3.lir(frame).filter(policy="R3-one-way", group="policy", lag=3, reading="").row(0, named=True)
    assert row["estimate"] == 0
    assert row["median_return"] is None


def test_transitions_show_what_capacity_alone_would_give(frame):
    row = observation3.transitions(frame).filter(policy="R3", lag=8).row(0, named=True)
    assert (row["p01_moved"], row["p01_pairs"]) == (24 * 8, 1000 * 8)
    assert row["ratio"] == pytest.approx(row["capacity_ratio"])
    assert (row["published_p01"], row["published_p10"]) == (0.0239, 0.2212)


@pytest.mark.parametrize("counts", [[1, 0, 2], [2, 2, 0], [0, 0, 1], [3, 1, 4]])
def test_weighted_median_is_the_median(counts):
    values = np.array([1.0, 4.0, 9.0])
    assert observation3.weighted_median(values, np.array(counts))[()] == np.median(np.repeat(values, counts))


def test_weighted_median_of_nothing_is_undefined():
    assert np.isnan(observation3.weighted_median(np.array([1.0, 2.0]), np.zeros(2)))
