"""How far a policy is from the best eviction there could have been, and from none at all.

    regret(P) = FMM(P) - FMM(O2),      closed(P) = (FMM(random) - FMM(P)) / (FMM(random) - FMM(O2))

O2 is the optimum of the same number of windows when eviction is final (`qevict_diag.oracle`), random the mean over
seeded draws of uniform eviction. 1 means that the policy is as good as foresight, 0 that it is as bad as chance.
"""

from collections.abc import Mapping

import numpy as np
import polars as pl

from qevict_diag.analyses.estimates import Cells, Grid, cells, grid, pooled_ratios, rows_of
from qevict_diag.policies.arms import OPTIMUM, RANDOM, arm_of, random_arms
from qevict_diag.policies.conditions import POLICIES
from qevict_diag.policies.names import base_of
from qevict_diag.statistics.intervals import Floats, articles_of, interval_of


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
