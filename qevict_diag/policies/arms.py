"""What bounds a policy: random arms of the same bytes, and the optimum."""

from collections.abc import Iterable

from qevict_diag.policies.catalogue import policy
from qevict_diag.policies.conditions import POLICIES
from qevict_diag.policies.names import base_of
from qevict_diag.policies.policy import Policy

RANDOM, OPTIMUM = "random", "irreversible"  # the rankings that bound all others: chance, and O2


def arm_of(name: str) -> str:
    """The condition whose random arm and optimum bound a policy: the first with its windows and tiers.

    The ablations of R3 have R3's budget, so R3's bounds are theirs.
    """
    one = POLICIES[base_of(name)]
    shape = (one.window, one.quantized, one.evicts)
    return next(p.name for p in POLICIES.values() if (p.window, p.quantized, p.evicts) == shape)


def arms_of(names: Iterable[str]) -> tuple[str, ...]:
    """The conditions whose random arms and optima bound some policies, each once; R0 evicts nothing and has none."""
    return tuple(dict.fromkeys(arm_of(name) for name in names if POLICIES[base_of(name)].evicts))


DRAWS = 3


BOUNDED = ("fmm",)  # what random arms and optima are measured by


def random_arms(policies: Iterable[str], draws: int = DRAWS) -> tuple[str, ...]:
    """Names of the random arms that the policies are held against, ``draws`` seeds each."""
    return tuple(f"{arm}[{RANDOM}:{seed}]" for arm in arms_of(policies) for seed in range(draws))


def optima(policies: Iterable[str]) -> tuple[str, ...]:
    """Names of the optima O2 that bound the policies."""
    return tuple(f"{arm}[{OPTIMUM}]" for arm in arms_of(policies))


def bounds(policies: Iterable[Policy], *, optimum: bool = True) -> tuple[Policy, ...]:
    """The random arms of some policies, and their optima, with the same windows; those given are not repeated."""
    given = {one.name: one for one in policies}
    found = {}
    for one in given.values():
        for name in (*random_arms([one.name]), *(optima([one.name]) if optimum else ())):
            found[name] = policy(name, window=one.window)
    return tuple(one for name, one in found.items() if name not in given)
