"""The laws that other packages can run: every built-in policy and quantizer keeps them, and wrong ones are caught."""

from dataclasses import dataclass, replace

import pytest
import torch

from qevict_diag.cache.tier import Tier
from qevict_diag.metrics.fmm import MISSED
from qevict_diag.policies.catalogue import ESTIMATORS, POLICIES, policy
from qevict_diag.policies.ranking import Estimator
from qevict_diag.quantizers import QUANTIZERS
from qevict_diag.quantizers.qevict import WindowMinMax
from qevict_diag.replay.loop import replay
from qevict_diag.testing.laws import LAWS, SETTINGS, broken_by_policy, broken_by_quantizer
from qevict_diag.testing.traces import random_trace

RANKED = [f"{base}[{name}]" for base in ("R2", "R3-one-way") for name in ESTIMATORS]
CHOSEN = ("R3(scope=head)", "R3(allotment=pooled)", "R2(schedule=prompt)", "R3(scope=kv_head,prompt_tail=4)[random:7]")


@pytest.mark.parametrize("name", [*POLICIES, *RANKED, *CHOSEN])
def test_every_policy_keeps_the_laws(name):
    assert broken_by_policy(policy(name)) == ()


@pytest.mark.parametrize("kind", QUANTIZERS.values(), ids=QUANTIZERS)
def test_every_quantizer_keeps_the_laws(kind):
    assert broken_by_quantizer(kind()) == []


@dataclass(frozen=True)
class Fickle(Estimator):
    """Ranks by what it drew just now: neither blocks nor repeated runs agree."""

    def init(self, prompt):
        return prompt.mass

    def update(self, state, seen):
        return state

    def score(self, state):
        return torch.rand(state.shape, dtype=torch.float64)


def test_a_ranking_that_is_no_function_of_what_it_sees_is_caught():
    assert {"blocks", "causal"} <= set(broken_by_policy(policy("R2", ranking=Fickle())))


def test_laws_tell_decisions_that_break_them():
    one = replay(random_trace(0, prefill=60, decode=48), [policy("R3")], SETTINGS, folds=[MISSED])[0]
    assert [name for name, law in LAWS.items() if not law(one)] == []
    tier = torch.full_like(one.tier, Tier.FULL)
    assert not LAWS["regions"](replace(one, tier=tier))
    assert not LAWS["within_budget"](replace(one, tier=tier))
    back = one.tier.clone()
    back[:, :, 0, 0], back[:, :, 1, 0] = Tier.EVICTED, Tier.QUANTIZED
    assert not LAWS["final"](replace(one, tier=back))
    up = one.tier.clone()
    up[:, :, 0, 0], up[:, :, 1, 0] = Tier.QUANTIZED, Tier.FULL
    plan = replace(one.plan, rules=replace(one.plan.rules, policy=policy("R3-one-way")))
    assert LAWS["one_way"](replace(one, tier=up))
    assert not LAWS["one_way"](replace(one, tier=up, plan=plan))


@dataclass(frozen=True)
class Cheap(WindowMinMax):
    """Says that it takes less than it does."""

    def window_bytes(self, window, head_dim, value_dim):
        return 1


@dataclass(frozen=True)
class Shared(WindowMinMax):
    """Scales a window by the largest of all windows that are written with it."""

    def keys(self, windows):
        return super().keys(windows / windows.abs().max())


@dataclass(frozen=True)
class Overflowing(WindowMinMax):
    """Restores in half precision."""

    def restore(self, codes):
        return super().restore(codes).half()


@pytest.mark.parametrize(("kind", "law"), [(Cheap, "bytes"), (Shared, "alone"), (Overflowing, "shape")])
def test_a_wrong_quantizer_is_caught(kind, law):
    assert law in broken_by_quantizer(kind())
