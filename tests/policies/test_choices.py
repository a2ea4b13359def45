"""Laws over random combinations of a policy's choices: sets of heads, pools, schedules, protected tokens, tiers."""

from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qevict_diag.cache.budget import Budget
from qevict_diag.cache.routing import Moves
from qevict_diag.cache.tier import Tier
from qevict_diag.errors import BudgetError, InputError
from qevict_diag.measure.bytes import byte_use
from qevict_diag.metrics.fmm import MISSED
from qevict_diag.policies.allotment import Equal, Pooled
from qevict_diag.policies.catalogue import policy
from qevict_diag.policies.policy import Policy, Protected
from qevict_diag.policies.schedule import Schedule
from qevict_diag.quantizers.qevict import WindowMinMax
from qevict_diag.replay.loop import replay
from qevict_diag.replay.settings import Settings
from qevict_diag.testing.traces import random_trace

TRACE = random_trace(7, layers=2, heads=4, kv_heads=2, prefill=64, decode=40)
SETTINGS = Settings(budget=Budget("1/2", sinks=3, recent=6), horizon=8, dtype=torch.float64)
POLICIES = st.builds(
    Policy,
    name=st.just("any"),
    grain=st.sampled_from([1, 2, 4]),
    schedule=st.builds(Schedule, st.sampled_from([None, 4, 8]), st.booleans()),
    scope=st.sampled_from(["layer", "kv_head", "head"]),
    allotment=st.sampled_from([Equal(), Pooled(), Pooled(0.5)]),
    protected=st.builds(Protected, sinks=st.sampled_from([None, 0, 4]), prompt_tail=st.sampled_from([0, 4])),
    moves=st.builds(Moves, promotion=st.booleans()),
    quantizer=st.sampled_from([None, WindowMinMax()]),
)
quick = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def played(one, ratio="1/2", **choices):
    budget = replace(SETTINGS.budget, ratio=ratio)
    return replay(TRACE, [replace(one, **choices)], replace(SETTINGS, budget=budget), folds=[MISSED])[0]


@quick
@given(POLICIES)
def test_what_stays_resident_is_within_the_budget(one):
    """With a share of its own for every set; a pool lets one set have what another lacks."""
    run = played(one, allotment=Equal())
    assert (byte_use(run, "t")["resident_bytes"] <= run.capacity.history_bytes).all()


@quick
@given(POLICIES)
def test_a_layer_is_within_its_budget(one):
    run = played(one)
    used = (run.tier == Tier.FULL).sum((1, 3)) * run.capacity.full_window_bytes
    used = used + (run.tier == Tier.QUANTIZED).sum((1, 3)) * run.capacity.quantized_window_bytes
    sharing = 2 if one.scope == "head" else 1
    assert (used * sharing <= run.capacity.history_bytes * run.plan.units).all()


@quick
@given(POLICIES)
def test_the_whole_budget_is_the_identity(one):
    run = played(one, ratio="1", quantizer=None)
    assert not (run.tier == Tier.EVICTED).any()
    assert (run.kept(MISSED).missed == 0).all()


@quick
@given(POLICIES)
def test_what_is_evicted_never_returns(one):
    gone = (played(one).tier == Tier.EVICTED).to(torch.uint8)
    assert (gone.diff(dim=2).to(torch.int8) >= 0).all()


@quick
@given(POLICIES)
def test_protected_prompt_tokens_and_what_is_born_after_a_prompt_schedule_stay(one):
    run = played(one)
    tail = run.plan.rules.protected
    assert not (run.tier[..., tail] == Tier.EVICTED).any()
    if one.schedule.prompt_only:
        assert torch.equal(run.tier, run.tier[:, :, :1].expand_as(run.tier))


@quick
@given(POLICIES)
def test_foresight_is_never_beaten(one):
    """O1 <= O2 <= policy for the same choices; pools and tails change what the optimum ranges over, so not there."""
    plain = replace(one, allotment=Equal(), protected=Protected(), moves=Moves(), schedule=Schedule())
    o1, o2, own = (_missed(plain, name) for name in ("free_recall", "irreversible", "cumulative"))
    assert (o1 <= o2 + 1e-9).all()
    assert (o2 <= own + 1e-9).all()


def _missed(one, ranking):
    run = played(replace(one, ranking=policy(f"R2[{ranking}]").ranking))
    sums, eligible = run.kept(MISSED), run.grid.eligible(SETTINGS.horizon)
    share = (sums.missed / sums.attended)[..., :eligible].mean(-1)
    return run.plan.per_unit(share).mean(2)  # the optimum is of the mean over a unit's heads


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("R3(scope=head)", lambda one: one.scope == "head"),
        ("R3(window=4)", lambda one: (one.grain, one.base) == (4, "R3(window=4)")),
        ("R3(allotment=pooled)", lambda one: one.allotment == Pooled()),
        ("R2(quantizer=minmax)", lambda one: one.quantizer == WindowMinMax()),
        ("R3(schedule=prompt)", lambda one: one.schedule.prompt_only),
        ("R1(prompt_tail=8)", lambda one: (one.grain, one.quantizer, one.protected.prompt_tail) == (1, None, 8)),
        ("R3(scope=kv_head,allotment=pooled)[random:7]", lambda one: one.seed == 7 and one.scope == "kv_head"),
        ("R3[observation(queries=16,kernel=7)]", lambda one: (one.ranking.queries, one.ranking.kernel) == (16, 7)),
    ],
)
def test_choices_are_named_and_replayed(name, check):
    one = policy(name)
    assert one.name == name
    assert check(one)
    assert replay(TRACE, [one], SETTINGS)[0].tier.shape[0] == 2


@pytest.mark.parametrize(
    "name", ["R3(scope=nobody)", "R3(nothing=1)", "R3(scope=head", "R3[observation(queries=x)]", ""]
)
def test_names_that_mean_nothing_are_refused(name):
    with pytest.raises(InputError):
        policy(name)


def test_a_tail_larger_than_the_budget_is_refused():
    with pytest.raises(BudgetError, match="protects the last 40"):
        played(policy("R1(prompt_tail=40)"), ratio="1/4")
