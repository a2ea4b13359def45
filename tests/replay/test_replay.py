"""The batched replay and every metric against the slow reference, on random traces and under every reading."""

from dataclasses import replace

import judge
import numpy as np
import polars as pl
import pytest
import reference
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qevict_diag.cache.budget import Budget
from qevict_diag.errors import BudgetError
from qevict_diag.measure.traces import folds, measure_replay
from qevict_diag.metrics import METRICS
from qevict_diag.metrics.fmm import MISSED
from qevict_diag.metrics.lir import INACTIVE
from qevict_diag.metrics.transitions import LAGS
from qevict_diag.policies.catalogue import policy
from qevict_diag.readings import READINGS, Readings
from qevict_diag.replay.loop import replay
from qevict_diag.replay.settings import Settings
from qevict_diag.testing.traces import random_trace

HORIZON = 8
EXACT = Settings(budget=Budget("1/2", sinks=3, recent=6), horizon=HORIZON, dtype=torch.float64)
CONDITIONS = ("R0", "R1", "R2", "R3", "R4", "R3-full-only", "R3-one-way")
REPLAY_READINGS = [
    (r.name, value) for r in READINGS if r.stage == "replay" and r.name in reference.DEFAULTS for value in r.values[1:]
]
METRIC_READINGS = [(r.name, value) for r in READINGS if r.stage == "metric" for value in r.values[1:]]
quick = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def run_one(trace, name, chosen, window=None):
    changes = {} if window is None else {"grain": window}
    return replay(trace, [policy(name, **changes)], chosen, folds=folds(METRICS))[0]


def assert_same_decisions(trace, run):
    for layer in range(len(trace.parts)):
        expected = judge.judged(trace, run, layer)
        for unit, judged_unit in enumerate(expected.units):
            assert len(judged_unit.events) == run.grid.events
            for event in judged_unit.events:
                assert judge.tiers_of(run, layer, unit, event.number) == event.tiers
                written = set(run.ledger[layer, unit, event.number].nonzero().flatten().tolist())
                assert written == event.ledger


@quick
@given(
    seed=st.integers(0, 10_000),
    name=st.sampled_from(CONDITIONS),
    window=st.sampled_from([1, 2, 3, 4, 8]),
    prefill=st.integers(40, 70),
    decode=st.integers(9, 33),
    bits=st.sampled_from([2, 4]),
    budget=st.sampled_from(["2/5", "1/2", "7/10", "1"]),
    style=st.sampled_from(["half", "interleaved", None]),
)
def test_decisions_are_those_of_the_reference(seed, name, window, prefill, decode, bits, budget, style):
    trace = random_trace(seed, layers=2, prefill=prefill, decode=decode, style=style)
    chosen = replace(EXACT, budget=replace(EXACT.budget, ratio=budget, bits=bits))
    assert_same_decisions(trace, run_one(trace, name, chosen, window))


@pytest.mark.parametrize("name", ["R1", "R2", "R3", "R3-one-way"])
@pytest.mark.parametrize(("reading", "value"), REPLAY_READINGS)
def test_every_replay_reading_decides_as_the_reference(name, reading, value):
    trace = random_trace(7, layers=2, prefill=50, decode=26)
    chosen = replace(EXACT, readings=Readings(**{reading: value}))
    assert_same_decisions(trace, run_one(trace, name, chosen, window=None if name == "R1" else 4))


@pytest.mark.parametrize(
    "spec",
    [{"sliding_window": 20}, {"softcap": 3.0}, {"sink_logits": (0.5, 1.0, -1.0, 2.0)}, {"rotary_dim": 4}],
    ids=lambda spec: next(iter(spec)),
)
def test_layers_with_a_special_attention_decide_as_the_reference(spec):
    trace = random_trace(3, layers=2, prefill=50, decode=26, **spec)
    assert_same_decisions(trace, run_one(trace, "R3", EXACT, window=4))
    assert_same_metrics(trace, run_one(trace, "R3", EXACT, window=4))


@pytest.mark.parametrize("name", CONDITIONS)
def test_every_metric_is_that_of_the_reference(name):
    trace = random_trace(11, layers=2, prefill=52, decode=35)
    assert_same_metrics(trace, run_one(trace, name, EXACT))


@pytest.mark.parametrize(("reading", "value"), METRIC_READINGS + REPLAY_READINGS)
def test_every_reading_measures_as_the_reference(reading, value):
    trace = random_trace(12, layers=1, prefill=52, decode=35)
    chosen = replace(EXACT, readings=Readings(**{reading: value}))
    assert_same_metrics(trace, run_one(trace, "R3", chosen, window=4))


@pytest.mark.parametrize("name", ["R1", "R3", "R4"])
def test_single_precision_measures_to_a_millionth(name):
    trace = random_trace(13, layers=1, prefill=52, decode=35)
    assert_same_metrics(trace, run_one(trace, name, replace(EXACT, dtype=torch.float32)), tolerance=2e-6)


def test_blocks_of_layers_change_nothing():
    trace = random_trace(5, layers=3)
    whole, split = (run_one(trace, "R3", replace(EXACT, block_bytes=size)) for size in (2**29, 1))
    assert torch.equal(whole.tier, split.tier)
    assert torch.equal(whole.kept(MISSED).missed, split.kept(MISSED).missed)


def test_a_window_larger_than_the_history_is_refused():
    with pytest.raises(BudgetError, match="window 200"):
        run_one(random_trace(1), "R2", EXACT, window=200)


def assert_same_metrics(trace, run, tolerance=1e-6):
    frame = measure_replay(run, METRICS, "t", "m")
    for layer in range(len(trace.parts)):
        part = frame.filter(pl.col("layer") == layer)
        for check in CHECKS:
            check(judge.reference_layer(trace.layer(layer)), judge.judged(trace, run, layer), part, run, tolerance)


def close(ours, theirs, tolerance):
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def check_fmm(layer, expected, part, run, tolerance):
    found = reference.fmm(layer, expected, HORIZON, run.plan.settings.readings.fmm_denominator)
    eligible = found.value[:, : run.grid.eligible(HORIZON)]
    close(judge.column(part, "fmm"), eligible.ravel(), tolerance)


def check_churn(layer, expected, part, run, tolerance):
    found = reference.churn(expected, run.plan.settings.readings.churn_set)[:, 1:]
    close(judge.column(part, "churn"), found.ravel(), tolerance)


def check_mass_share(layer, expected, part, run, tolerance):
    reading = run.plan.settings.readings.share_denominator
    found = reference.mass_share(layer, expected, reading)
    if reading == "instantaneous":
        found = found[:, : run.grid.full_intervals()]
    for z, word in enumerate(reference.TIERS):
        close(judge.column(part, "mass_share", group=word), found[..., z].ravel(), tolerance)


def check_agreement(layer, expected, part, run, tolerance):
    if run.capacity.quantized == 0:
        assert len(judge.column(part, "qsa")) == 0
        return
    support, full = run.plan.settings.readings.qsa_support, run.grid.full_intervals()
    close(judge.column(part, "qsa"), reference.qsa(layer, expected, support)[:, :full].ravel(), tolerance)
    ratio = reference.mass_ratio(layer, expected, support).value[:, :full]
    close(judge.column(part, "mass_ratio"), ratio.ravel(), tolerance)


def check_lir(layer, expected, part, run, tolerance):
    readings = run.plan.settings.readings
    for group, select in {
        "oracle": lambda unit: reference.oracle_selection(layer, expected, unit, readings.universe),
        "policy": lambda unit: reference.policy_selection(expected, unit, readings.universe),
    }.items():
        selections = [select(unit) for unit in expected.units]
        for episodes in ("literal", "after_exit"):
            label = readings.with_(lir_episodes=episodes).label()
            for m in INACTIVE:
                where = {"group": group, "lag": m, "reading": label}
                found = [reference.lir(selection, m, episodes) for selection in selections]
                close(judge.column(part, "lir", **where), [one.value for one in found], tolerance)
                times = [time for one in found for time in one.return_times]
                assert sorted(judge.column(part, "return_time", **where)) == sorted(times)


def check_transitions(layer, expected, part, run, tolerance):
    readings = run.plan.settings.readings
    for lag in LAGS:
        for group, start in {"01": 0, "10": 1}.items():
            found = [
                reference.transitions(
                    reference.policy_selection(expected, unit, readings.universe), lag, start, readings.lag
                )
                for unit in expected.units
            ]
            rows = part.filter(pl.col("metric") == "transitions", pl.col("lag") == lag, pl.col("group") == group)
            assert rows["numerator"].to_list() == [one.numerator for one in found]
            assert rows["denominator"].to_list() == [one.denominator for one in found]


def check_promotions(layer, expected, part, run, tolerance):
    found = [count for unit in expected.units for count in reference.promotions(unit)[1:]]
    assert judge.column(part, "promotions").tolist() == found


CHECKS = (check_fmm, check_churn, check_mass_share, check_agreement, check_lir, check_transitions, check_promotions)
