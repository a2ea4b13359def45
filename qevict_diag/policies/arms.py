"""What bounds a policy: chance, drawn or in closed form, and the optimum."""

from collections.abc import Iterable

from qevict_diag.policies.catalogue import policy
from qevict_diag.policies.conditions import CONDITIONS
from qevict_diag.policies.policy import Policy

RANDOM, OPTIMUM = "random", "irreversible"  # the rankings that bound all others: chance, and O2
CHANCE = "chance"  # the metric that is chance in closed form


def arm_of(one: Policy) -> str:
    """The policy whose random arm and optimum bound another: the first condition with its windows, tiers and sets.

    The ablations of R3 have R3's budget, so R3's bounds are theirs. A policy that is no condition bounds itself.
    """
    usual = CONDITIONS.get(one.base)
    if usual is None:
        return one.base
    return next(p.name for p in CONDITIONS.values() if _shape(p) == _shape(usual))


def arms_of(policies: Iterable[Policy]) -> tuple[str, ...]:
    """The conditions whose random arms and optima bound some policies, each once; R0 evicts nothing and has none."""
    return tuple(dict.fromkeys(arm_of(one) for one in policies if one.evicts))


def _shape(one: Policy) -> tuple[object, ...]:
    return (one.grain, one.schedule, one.scope, one.allotment, one.protected, one.quantizer)


DRAWS = 3


BOUNDED = ("fmm",)  # what random arms and optima are measured by


def random_arms(policies: Iterable[Policy], draws: int = DRAWS) -> tuple[str, ...]:
    """Names of the random arms that the policies are held against, ``draws`` seeds each."""
    return tuple(f"{arm}[{RANDOM}:{seed}]" for arm in arms_of(policies) for seed in range(draws))


def optima(policies: Iterable[Policy]) -> tuple[str, ...]:
    """Names of the optima O2 that bound the policies."""
    return tuple(f"{arm}[{OPTIMUM}]" for arm in arms_of(policies))


def bounds(policies: Iterable[Policy]) -> tuple[Policy, ...]:
    """The optima of some policies, with the same windows; those given are not repeated."""
    given = {one.name: one for one in policies}
    found = {name: policy(name, grain=one.grain) for one in given.values() for name in optima([one])}
    return tuple(one for name, one in found.items() if name not in given)
