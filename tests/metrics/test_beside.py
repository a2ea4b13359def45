"""The diagnostics beside the paper's metrics, against the slow reference: logit errors, and missed mass by age."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import reference
import torch
from judge import judged, reference_layer

from qevict_diag.cache.budget import Budget
from qevict_diag.measure.bytes import byte_use
from qevict_diag.measure.match import matched, mean_bytes, peak_bytes
from qevict_diag.measure.traces import folds, measure_replay, metric_names
from qevict_diag.metrics import METRICS
from qevict_diag.metrics.eviction_age import AGES, MISSED_BY_AGE, age_class
from qevict_diag.metrics.fmm import MISSED
from qevict_diag.metrics.logit_error import LOGIT_ERRORS
from qevict_diag.policies.catalogue import policy
from qevict_diag.replay.loop import replay
from qevict_diag.replay.plan import make_plan
from qevict_diag.replay.settings import Settings
from qevict_diag.testing.traces import random_trace

SETTINGS = Settings(Budget("1/3", sinks=3, recent=8), horizon=8, dtype=torch.float64)
BESIDE = ("missed_age", "logit_bias", "logit_variance")
SHAPES = {"plain": {}, "sliding": {"sliding_window": 40}, "softcap": {"softcap": 3.0}, "heads": {"heads": 6}}


@pytest.fixture(scope="module", params=SHAPES.values(), ids=SHAPES)
def trace(request):
    return random_trace(0, layers=2, prefill=70, decode=60, **request.param)


def run_of(trace, name):
    return replay(trace, [policy(name)], SETTINGS, folds=folds(BESIDE))[0]


@pytest.mark.parametrize("name", ["R3", "R4", "R3-one-way"])
def test_logit_errors_are_those_of_the_reference(trace, name):
    run = run_of(trace, name)
    found = run.kept(LOGIT_ERRORS)
    for layer in range(2):
        errors = reference.logit_errors(reference_layer(trace.layer(layer)), judged(trace, run, layer))
        assert found.count[layer].tolist() == [len(one) for one in errors]
        assert found.bias()[layer].tolist() == pytest.approx([one.mean() for one in errors], abs=1e-6)
        variance = (found.scatter() / found.count)[layer].tolist()
        assert variance == pytest.approx([one.var() for one in errors], abs=1e-6)


def test_a_policy_without_a_quantized_tier_has_no_logit_errors(trace):
    run = run_of(trace, "R2")
    assert run.kept(LOGIT_ERRORS) is None
    assert set(measure_replay(run, BESIDE, "t", "m")["metric"]) == {"missed_age"}


@pytest.mark.parametrize("name", ["R1", "R2", "R3", "R3-full-only"])
def test_missed_mass_by_age_is_the_references(trace, name):
    run = run_of(trace, name)
    eligible = run.grid.eligible(SETTINGS.horizon)
    for layer in range(2):
        wanted = reference.missed_by_age(reference_layer(trace.layer(layer)), judged(trace, run, layer), AGES, 8)
        found = run.kept(MISSED_BY_AGE)[layer]
        assert np.allclose(found[..., :eligible], wanted[..., :eligible])
        assert wanted[:2].any()
        assert not wanted[-1].any()  # nothing is 128 queries old yet


@pytest.mark.parametrize("name", ["R1", "R3", "R3[free_recall]"])
def test_the_classes_of_age_add_up_to_what_is_missed(trace, name):
    run = run_of(trace, name)
    assert torch.allclose(run.kept(MISSED_BY_AGE).sum(1), run.kept(MISSED).missed)


def test_a_window_that_comes_back_and_goes_again_is_young():
    evicted = torch.tensor([[1, 0, 0], [1, 0, 1], [0, 0, 1], [1, 0, 1]], dtype=torch.bool)[None, None]
    assert age_class(evicted, every=16)[0, 0].tolist() == [[0, -1, -1], [0, -1, 1], [-1, -1, 1], [1, -1, 2]]


def test_the_bytes_of_a_plan_are_those_that_its_replay_held(trace):
    for name in ("R1", "R2", "R3", "R4", "R3(schedule=prompt)"):
        run, everything = run_of(trace, name), trace.shape.length * 8 * 2 * 2
        used = byte_use(run, "t")
        assert float(mean_bytes(run.plan)) / everything == pytest.approx(used["share_mean"][0])
        assert float(peak_bytes(run.plan)) / everything == pytest.approx(used["share_peak"][0])


@pytest.mark.parametrize("use", [mean_bytes, peak_bytes])
def test_matched_policies_hold_as_much_as_the_first_and_no_more(trace, use):
    shape = trace.shape
    names = ("R1", "R2", "R3", "R4(window=16)")
    found = matched(map(policy, names), shape, SETTINGS, use)
    most = use(make_plan(policy("R1"), shape, SETTINGS))
    for one, own in found:
        assert use(make_plan(one, shape, own)) <= most
        more = replace(own, budget=replace(own.budget, ratio=own.budget.ratio + Fraction(1, shape.length)))
        assert own.budget.ratio == 1 or use(make_plan(one, shape, more)) > most
    assert use(make_plan(*(found[0][0], shape, found[0][1]))) == most


def test_what_is_measured_by_name_is_not_among_all():
    assert not set(BESIDE) & set(metric_names(["all"]))
    assert set(metric_names(["all", *BESIDE])) == set(METRICS)
