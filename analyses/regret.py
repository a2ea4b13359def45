"""How far a policy is from the best eviction there could have been, and from none at all.

    regret(P) = FMM(P) - FMM(O2),      closed(P) = (FMM(random) - FMM(P)) / (FMM(random) - FMM(O2))

O2 is the optimum of the same number of windows when eviction is final (`qevict_diag.oracle`), random the mean over
seeded draws of uniform eviction. 1 means that the policy is as good as foresight, 0 that it is as bad as chance.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import polars as pl

from qevict_diag.analyses.estimates import Cells, Grid, cells, grid, pooled_ratios, rows_of
from qevict_diag.policies.policy import OPTIMUM, POLICIES, RANDOM, Policy, arm_of, arms_of, base_of, policy
from qevict_diag.statistics.intervals import Floats, articles_of, interval_of

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


def regret(frame: pl.DataFrame, over: Grid | None = None) -> pl.DataFrame:
    """Regret and share of the gap closed of each policy in a frame with `fmm` rows, with paired 95% intervals.

    Columns: policy, regret, regret_low, regret_high, closed, closed_low, closed_high; only policies that can read their
    quantized windows and whose random arm and optimum were measured on the same traces. A policy with recall (O1) can
    have a negative regret.
    """
    over = over or grid(frame)
    counted = cells(rows_of(frame, "fmm"), over, ("policy",), "mean")
    names = counted.keys["policy"].to_list()
    ratios, draws, _ = pooled_ratios(counted, over)
    both = np.vstack((ratios, draws))  # [1 + resample, policy]
    places = {name: at for at, name in enumerate(names)}
    found = [_row(name, places, both, counted) for name in names if _bounded(name, places)]
    return pl.DataFrame(found, schema=SCHEMA, orient="row")


SCHEMA: dict[str, pl.DataType] = {"policy": pl.String()} | {
    f"{name}{limit}": pl.Float64() for name in ("regret", "closed") for limit in ("", "_low", "_high")
}


def _bounded(name: str, places: Mapping[str, int]) -> bool:
    arm = arm_of(name)
    return POLICIES[base_of(name)].readable and f"{arm}[{OPTIMUM}]" in places and bool(_chance(arm, places))


def _chance(arm: str, places: Mapping[str, int]) -> list[int]:
    """Where the draws of a random arm are: a policy each or, in a sweep, all in one; no other random policy is one."""
    drawn = [places[name] for name in random_arms([arm]) if name in places]
    pooled = f"{arm}[{RANDOM}]"
    return drawn or ([places[pooled]] if pooled in places else [])


def _row(name: str, places: Mapping[str, int], values: Floats, counted: Cells) -> tuple:
    arm = arm_of(name)
    at, best_at, drawn = places[name], places[f"{arm}[{OPTIMUM}]"], _chance(arm, places)
    own, best, chance = values[:, at], values[:, best_at], values[:, drawn].mean(axis=1)
    articles = articles_of(counted.denominator[[at, best_at, *drawn]])
    gap = chance - best
    closed = np.where(gap > 0, (chance - own) / np.where(gap > 0, gap, 1), np.nan)
    told = [interval_of(float(x[0]), x[1:], articles) for x in (own - best, closed)]
    return (name, *(limit for one in told for limit in (one.estimate, one.low, one.high)))
