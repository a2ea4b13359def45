"""Importance estimators: each against its equation, parameters by name, and one from another package."""

from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint

import pytest
import torch

from qevict_diag import plugins
from qevict_diag.cache.budget import Budget
from qevict_diag.errors import InputError, MetricError
from qevict_diag.policies import catalogue as table
from qevict_diag.policies.allotment import Layers
from qevict_diag.policies.catalogue import ESTIMATORS, estimator, policy
from qevict_diag.policies.estimators.cumulative import CumulativeAttention
from qevict_diag.policies.estimators.decayed import DecayedAttention
from qevict_diag.policies.estimators.key_norm import KeyNorm
from qevict_diag.policies.estimators.observation import ObservationWindow
from qevict_diag.policies.estimators.persistence import Persistence
from qevict_diag.policies.estimators.random import RandomRanking
from qevict_diag.policies.estimators.value_weighted import ValueWeighted
from qevict_diag.policies.ranking import Estimator
from qevict_diag.policies.step import begin, decide
from qevict_diag.policies.view import Interval
from qevict_diag.replay.blocks import LayerBlock
from qevict_diag.replay.loop import replay
from qevict_diag.replay.plan import make_plan
from qevict_diag.replay.settings import Settings
from qevict_diag.replay.stream import stream
from qevict_diag.replay.view import first_view, interval_view, prompt_view
from qevict_diag.testing.traces import random_trace

TRACE = random_trace(4, layers=1, prefill=40, decode=16)
SETTINGS = Settings(budget=Budget("1/2", sinks=2, recent=6), dtype=torch.float64)


def scene(window=4):
    """The prompt as a policy sees it, and its first interval with everything still accessible."""
    plan = make_plan(policy("R2", grain=window), TRACE.shape, SETTINGS)
    block = LayerBlock((TRACE.layer(0),), 1, torch.device("cpu"), torch.float64)
    masses = next(stream(block, [plan]))
    return (
        plan,
        prompt_view(plan, block),
        interval_view(plan, begin(plan.rules, prompt_view(plan, block)).assignment, masses, 0),
    )


def attention_by_window(plan, queries):
    rows = TRACE.layer(0).attention(queries).double()
    return plan.grid.by_window(rows)  # [head, query, window]


def test_cumulative_is_the_prompt_and_then_every_query():
    plan, prompt, seen = scene()
    state = CumulativeAttention().update(CumulativeAttention().init(prompt), seen)
    expected = prompt.mass[0, 0] + attention_by_window(plan, slice(0, 4)).sum((0, 1))
    torch.testing.assert_close(CumulativeAttention().score(state)[0, 0], expected, rtol=1e-5, atol=1e-6)


def test_decayed_halves_after_its_half_life():
    plan, prompt, seen = scene()
    one = DecayedAttention(half_life=4.0)
    rows = attention_by_window(plan, slice(0, 4)).sum(0)
    expected = prompt.mass[0, 0] / 2 + sum(rows[t] * 2 ** (-(3 - t) / 4) for t in range(4))
    torch.testing.assert_close(one.score(one.update(one.init(prompt), seen))[0, 0], expected, rtol=1e-5, atol=1e-6)


def test_observation_window_is_the_last_queries_alone():
    plan, prompt, seen = scene()
    one = ObservationWindow(queries=4, kernel=1)
    expected = attention_by_window(plan, slice(0, 4)).sum((0, 1))
    torch.testing.assert_close(one.score(one.update(one.init(prompt), seen))[0, 0], expected, rtol=1e-5, atol=1e-6)


def test_observation_window_pools_tokens_dividing_edges_by_the_kernel():
    _, prompt, _ = scene(window=1)
    plain, pooled = ObservationWindow(kernel=1), ObservationWindow(kernel=3)
    scores = plain.score(plain.init(prompt))[0, 0]
    smooth = pooled.score(pooled.init(prompt))[0, 0]
    assert float(smooth[0]) == pytest.approx(float(scores[:2].sum() / 3))
    assert float(smooth[5]) == pytest.approx(float(scores[4:7].sum() / 3))


def test_persistence_counts_rows_below_the_uniform_share():
    plan, prompt, seen = scene()
    one = Persistence(history=4)
    rows = attention_by_window(plan, slice(0, 4))
    positions = torch.arange(40, 44)
    ends = 2 + 4 * torch.arange(1, plan.grid.count + 1)
    low = (rows < 4 / (positions + 1)[:, None]) & (ends <= positions[:, None] + 1)
    score = one.score(one.update(one.init(prompt), seen))[0, 0]
    assert score.tolist() == (-low.sum((0, 1)).double()).tolist()


def test_norms_are_means_over_the_window_and_the_heads_of_the_unit():
    plan, prompt, seen = scene()
    layer = TRACE.layer(0)
    norm = {
        name: plan.grid.by_window(getattr(layer, name).double().norm(dim=-1)).mean(0) / 4 for name in ("key", "value")
    }
    torch.testing.assert_close(KeyNorm().score(KeyNorm().init(prompt))[0, 0], -norm["key"])
    state = ValueWeighted().update(ValueWeighted().init(prompt), seen)
    total = prompt.mass[0, 0] + attention_by_window(plan, slice(0, 4)).sum((0, 1))
    torch.testing.assert_close(ValueWeighted().score(state)[0, 0], total * norm["value"], rtol=1e-5, atol=1e-6)


def test_random_draws_depend_on_seed_and_layer_alone():
    _, prompt, _ = scene()
    three = replace(prompt, layers=Layers((3,), 8))
    draw = RandomRanking(seed=1).init(three)
    assert torch.equal(draw, RandomRanking(seed=1).init(three))
    assert not torch.equal(draw, RandomRanking(seed=2).init(three))
    assert not torch.equal(draw, RandomRanking(seed=1).init(prompt))


def test_a_value_sets_the_first_parameter():
    assert estimator("random:7") == RandomRanking(seed=7)
    assert estimator("decayed:32") == DecayedAttention(half_life=32.0)
    assert policy("R3[observation:16]").ranking == ObservationWindow(queries=16)


@pytest.mark.parametrize("name", ["R9", "R3[", "R3[none]", "R3[random:x]", "R3[key_norm:1]", ""])
def test_unknown_policies_and_estimators_are_refused(name):
    with pytest.raises(InputError):
        policy(name)


@dataclass(frozen=True)
class NewestFirst(Estimator):
    """Keep the newest windows: a third party's estimator in ten lines."""

    def init(self, prompt):
        return torch.arange(prompt.grid.count, dtype=torch.float64).expand(prompt.mass.shape)

    def update(self, state, seen: Interval):
        return state

    def score(self, state):
        return state


def test_an_estimator_from_another_package_is_found_by_its_entry_point(monkeypatch):
    point = EntryPoint("newest", f"{__name__}:NewestFirst", table.ESTIMATOR_POINTS)
    monkeypatch.setattr(plugins, "announced", lambda group: {"newest": point} if group == point.group else {})
    run = replay(TRACE, [policy("R2[newest]", grain=4)], SETTINGS)[0]
    kept = run.retained[0, 0, -1].nonzero().flatten().tolist()
    historical = run.grid.historical(run.grid.events - 1)
    assert kept == list(range(historical - run.capacity.full, historical))
    assert set(ESTIMATORS) < set(table.estimator_names())


def test_reading_local_exit_forgets_what_a_newcomer_collected():
    chosen = replace(SETTINGS, readings=SETTINGS.readings.with_(newcomer_history="local_exit"))
    plan = make_plan(policy("R2", grain=4), TRACE.shape, chosen)
    block = LayerBlock((TRACE.layer(0),), 1, torch.device("cpu"), torch.float64)
    state = decide(plan.rules, begin(plan.rules, first_view(plan, block)), 0)
    after = decide(plan.rules, state, 1)
    new = slice(plan.grid.historical(0), plan.grid.historical(1))
    assert torch.equal(after.offset[..., new], state.importance[..., new])


@pytest.mark.parametrize(
    "name",
    [
        *("observation:0", "observation:-3", "persistence:0", "decayed:0", "decayed:-1", "decayed:nan", "decayed:inf"),
        *("random:-1", "random:99999999999999999999", "split:1.5", "split:nan"),
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused(name):
    with pytest.raises(InputError, match=r"must be (at least|between)"):
        policy(f"R3[{name}]")


def test_a_parameter_that_is_no_number_is_refused():
    with pytest.raises(InputError, match="queries must be a whole number"):
        policy("R3[observation:few]")


def test_half_life_counts_all_queries_when_only_the_events_feed_the_score():
    chosen = replace(SETTINGS, readings=SETTINGS.readings.with_(score_queries="event"))
    plan, prompt, seen = scene()
    one, last = DecayedAttention(half_life=4.0), seen.last()
    row = attention_by_window(plan, slice(3, 4)).sum((0, 1))
    found = one.score(one.update(one.init(prompt), last))[0, 0]
    torch.testing.assert_close(found, prompt.mass[0, 0] / 2 + row, rtol=1e-5, atol=1e-6)
    assert replay(TRACE, [policy("R2[decayed:4]", grain=4)], chosen)


def test_persistence_counts_only_queries_that_see_the_window():
    """Under a sliding window of 12 positions the uniform share is Ω/12, and older windows are out of sight."""
    trace = random_trace(4, layers=1, prefill=40, decode=16, sliding_window=12)
    plan = make_plan(policy("R2", grain=4), trace.shape, SETTINGS)
    block = LayerBlock((trace.layer(0),), 1, torch.device("cpu"), torch.float64)
    one = Persistence()
    rows, positions = prompt_view(plan, block).rows()
    expected = torch.zeros(plan.grid.count, dtype=torch.float64)
    for query, position in enumerate(positions.tolist()):
        first, seen = max(0, position - 11), min(12, position + 1)
        for window in range(plan.grid.count):
            start = plan.grid.sinks + 4 * window
            if first <= start and start + 4 <= position + 1:
                expected[window] += (rows[0, 0, :, query, window] < 4 / seen).sum()
    assert torch.equal(one.score(one.init(prompt_view(plan, block)))[0, 0], -expected)


@pytest.mark.parametrize("name", ["key_norm", "value_weighted"])
def test_rows_without_keys_cannot_be_ranked_by_norms(name):
    part = TRACE.layer(0)
    imported = replace(TRACE, parts=(replace(part, spec=replace(part.spec, rope="imported")),))
    with pytest.raises(MetricError, match=r"imported rows have no (key|value)s"):
        replay(imported, [policy(f"R2[{name}]")], SETTINGS)
