"""Laws that hold for every policy, whatever the trace (definitions.md, section 8)."""

from dataclasses import replace
from functools import cache

import polars as pl
import pytest
import torch

from qevict_diag.cache.budget import Budget
from qevict_diag.cache.tier import Tier
from qevict_diag.measure.traces import folds, measure_replay
from qevict_diag.metrics import METRICS
from qevict_diag.metrics.churn import churn
from qevict_diag.metrics.fmm import MISSED
from qevict_diag.policies.allotment import Pooled, Pyramid
from qevict_diag.policies.catalogue import ESTIMATORS, POLICIES, policies, policy
from qevict_diag.readings import Readings
from qevict_diag.replay.loop import replay
from qevict_diag.replay.settings import Settings
from qevict_diag.testing.traces import random_trace

SETTINGS = Settings(budget=Budget("1/2", sinks=3, recent=6), horizon=8, dtype=torch.float64)
RANKED = [f"{base}[{estimator}]" for base in ("R1", "R2", "R3", "R3-one-way") for estimator in ESTIMATORS]
EVERY = [*POLICIES, *RANKED]
ALIKE = [name for name in EVERY if not isinstance(policy(name).allotment, (Pooled, Pyramid))]  # sets of one size
RECALLING = ("free_recall", "split")  # oracles whose evicted windows may come back


@cache
def run(name, ratio="1/2", seed=1):
    trace = random_trace(seed, layers=2, prefill=60, decode=40)
    return replay(
        trace, [policy(name)], replace(SETTINGS, budget=replace(SETTINGS.budget, ratio=ratio)), folds=folds(METRICS)
    )[0]


@pytest.mark.parametrize("name", EVERY)
def test_the_regions_partition_the_sequence(name):
    one = run(name)
    grid = one.grid
    for event in range(grid.events):
        tier = one.tier[:, :, event]
        routed = (tier != Tier.LOCAL).sum(-1)
        assert (routed == grid.historical(event)).all()  # in order: 0 .. historical - 1, none lost between the regions
        assert (tier[..., : grid.historical(event)] != Tier.LOCAL).all()
        local = grid.length_at(event) - grid.sinks - grid.historical(event) * grid.window
        assert grid.recent <= local
        assert grid.prompt_only or local < grid.recent + grid.window


@pytest.mark.parametrize("name", [name for name in ALIKE if "split" not in name])
def test_capacities_hold_at_every_event(name):
    one = run(name)
    assert ((one.tier == Tier.FULL).sum(-1) <= one.capacity.full).all()
    assert ((one.tier == Tier.QUANTIZED).sum(-1) <= one.capacity.quantized).all()


@pytest.mark.parametrize("name", [name for name in ALIKE if name != "R0"])
def test_bytes_stay_within_the_budget(name):
    one = run(name)
    full, quantized = ((one.tier == z).sum(-1) for z in (Tier.FULL, Tier.QUANTIZED))
    used = full * one.capacity.full_window_bytes + quantized * one.capacity.quantized_window_bytes
    assert (used <= one.capacity.history_bytes).all()


@pytest.mark.parametrize("name", [name for name in EVERY if not any(oracle in name for oracle in RECALLING)])
def test_evicted_windows_never_return(name):
    evicted = run(name).tier == Tier.EVICTED
    assert (evicted[:, :, :-1] <= evicted[:, :, 1:]).all()


@pytest.mark.parametrize("name", EVERY)
def test_missed_mass_is_a_share(name):
    one = run(name)
    assert (one.kept(MISSED).missed >= 0).all()
    assert (one.kept(MISSED).missed <= one.kept(MISSED).attended * (1 + 1e-12)).all()


@pytest.mark.parametrize("name", EVERY)
def test_shares_add_up_to_one(name):
    frame = measure_replay(run(name), ["mass_share"], "t", "m")
    total = frame.group_by("layer", "head", "event").agg(pl.col("value").sum())["value"]
    assert (total - 1).abs().max() < 1e-9


@pytest.mark.parametrize("name", EVERY)
def test_every_metric_has_rows_with_counts(name):
    frame = measure_replay(run(name), METRICS, "t", "m")
    quantized = run(name).capacity.quantized > 0
    expected = {*METRICS} - (set() if quantized else {"qsa", "mass_ratio", "logit_bias", "logit_variance"})
    assert expected <= set(frame["metric"].unique()) <= expected | {"return_time", "episodes"}
    assert frame.filter(frame["metric"] != "return_time")["denominator"].null_count() == 0


def test_nothing_is_missed_by_the_reference():
    assert (run("R0").kept(MISSED).missed == 0).all()


@pytest.mark.parametrize("name", ["R2", "R3", "R3-one-way", "R4"])
def test_budget_100_percent_is_identity(name):
    one = run(name, ratio="1")
    assert not (one.tier == Tier.EVICTED).any()
    assert (one.kept(MISSED).missed == 0).all()


def test_readable_quantized_windows_never_raise_missed_mass():
    assert (run("R3").kept(MISSED).missed <= run("R3-full-only").kept(MISSED).missed + 1e-12).all()
    assert torch.equal(run("R3").tier, run("R3-full-only").tier)


@pytest.mark.parametrize("name", EVERY)
def test_churn_of_a_set_with_itself_is_zero(name):
    retained = run(name).retained
    assert (churn(torch.cat((retained[:, :, :1], retained[:, :, :1]), 2)) == 0).all()


def test_without_promotion_nothing_moves_from_quantized_to_full():
    for estimator in set(ESTIMATORS) - set(RECALLING):
        tier = run(f"R3-one-way[{estimator}]").tier
        assert not ((tier[:, :, :-1] == Tier.QUANTIZED) & (tier[:, :, 1:] == Tier.FULL)).any()


@pytest.mark.parametrize("name", ["R3", "R4", "R3[random]"])
def test_the_ledger_only_grows(name):
    ledger = run(name).ledger
    assert (ledger[:, :, :-1] <= ledger[:, :, 1:]).all()


@pytest.mark.parametrize("seed", [1, 2])
def test_attention_rows_are_conserved(seed):
    for layer in random_trace(seed).parts:
        rows = layer.attention()
        assert (rows.sum(-1) - 1).abs().max() < 1e-5
        torch.testing.assert_close(
            layer.prompt_mass.sum(-1), torch.full((rows.shape[0],), layer.prefill, dtype=torch.float64)
        )


def mean_fmm(name, seed=1):
    one = run(name, seed=seed)
    eligible = one.grid.eligible(SETTINGS.horizon)
    return float((one.kept(MISSED).missed / one.kept(MISSED).attended)[..., :eligible].mean())


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("base", ["R1", "R2", "R3", "R3-one-way", "R4"])
def test_no_policy_beats_the_oracles(base, seed):
    free, final = (mean_fmm(f"{base}[{bound}]", seed) for bound in ("free_recall", "irreversible"))
    assert free <= final + 1e-9
    for ranking in ESTIMATORS:
        if ranking not in RECALLING:
            assert final <= mean_fmm(f"{base}[{ranking}]", seed) + 1e-9


def test_the_oracles_differ_where_recall_helps():
    assert any(mean_fmm("R1[free_recall]", s) < mean_fmm("R1[irreversible]", s) - 1e-6 for s in (1, 2, 3))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_free_split_of_the_bytes_misses_no_more_than_the_fixed_one(seed):
    """At fidelity 1 missed mass alone decides, so the free split bounds O1 at the same bytes."""
    assert mean_fmm("R3[split]", seed) <= mean_fmm("R3[free_recall]", seed) + 1e-9
    assert mean_fmm("R1[split]", seed) == pytest.approx(mean_fmm("R1[free_recall]", seed), abs=1e-12)
    assert (run("R3[split:0]", seed=seed).tier == Tier.FULL).sum() >= (
        run("R3[split:1]", seed=seed).tier == Tier.FULL
    ).sum()


@pytest.mark.parametrize("reading", [{"newcomer_history": "local_exit"}, {"admission": "forced"}])
@pytest.mark.parametrize("seed", range(4))
def test_the_optimum_stays_the_best_under_every_replay_reading(reading, seed):
    """Readings that bend a policy's scores or force its hand must not bend the bound."""
    trace = random_trace(seed, layers=1, prefill=60, decode=96, spread=3.0)
    names = ("R2[irreversible]", "R2", "R2[oracle]", "R2[observation:16]", "R2[decayed:8]")
    chosen = replace(SETTINGS, horizon=16, readings=Readings(**reading))
    frames = [measure_replay(one, ["fmm"], "t", "m") for one in replay(trace, policies(names), chosen, folds=[MISSED])]
    best, *others = (frame["value"].mean() for frame in frames)
    assert all(best <= other + 1e-9 for other in others)


def test_random_windows_stay_random_when_newcomers_start_late():
    trace = random_trace(2, layers=1, prefill=100, decode=64)
    chosen = replace(SETTINGS, readings=Readings(newcomer_history="local_exit"))
    late, usual = (replay(trace, [policy("R2[random]")], one)[0] for one in (chosen, SETTINGS))
    assert torch.equal(late.tier, usual.tier)
