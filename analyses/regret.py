"""How far a policy is from the best eviction there could have been, and from chance (definitions.md, section 15).

    regret(P) = FMM(P) - FMM(O2),      closed(P) = (E[FMM(chance)] - FMM(P)) / (E[FMM(chance)] - FMM(O2))

O2 is the optimum of the same number of windows when eviction is final. Chance is a uniformly random set of as many
windows: its expectation in closed form where it was measured (rows of `chance`), else the mean over seeded draws of
uniform eviction. 1 means that the policy is as good as foresight, 0 that it is as bad as chance.
"""

from collections.abc import Mapping

import numpy as np
import polars as pl

from qevict_diag.analyses.estimates import Cells, Sample, cells, rows_of, sample
from qevict_diag.policies.arms import CHANCE, OPTIMUM, RANDOM, arm_of, random_arms
from qevict_diag.policies.catalogue import policy
from qevict_diag.statistics.intervals import Floats, Interval, minus

MEASURED = ("fmm", CHANCE)  # what regret is made of
SCHEMA: dict[str, pl.DataType] = {"policy": pl.String(), "chance": pl.Float64()} | {
    f"{name}{limit}": pl.Float64() for name in ("regret", "closed") for limit in ("", "_low", "_high")
}


def regret(frame: pl.DataFrame, over: Sample | None = None) -> pl.DataFrame:
    """What chance would miss, regret, and share of the gap closed of each policy, with paired 95% intervals.

    Columns: `SCHEMA`; ``frame`` has rows of `fmm` and, where they were measured, of `chance`. Only policies that can
    read their quantized windows, and whose chance or optimum was measured on the same traces; what lacks one of them is
    null. A policy with recall (O1) can have a negative regret.
    """
    over = over or sample(frame)
    counted = cells(missed_rows(frame), over, ("policy",), "mean")
    places = {name: at for at, name in enumerate(counted.keys["policy"].to_list())}
    rows = [_row(name, places, counted) for name in places if not name.startswith(CHANCE)]
    found = pl.DataFrame(rows, schema=SCHEMA)
    return found.filter(pl.any_horizontal(pl.exclude("policy").is_not_null()))


def missed_rows(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows of FMM, and those of chance as if of a policy called ``chance of`` and its name; MetricError without any."""
    chance = frame.filter(pl.col("metric") == CHANCE)
    named = chance.with_columns(metric=pl.lit("fmm"), policy=pl.format(f"{CHANCE} of {{}}", pl.col("policy")))
    return pl.concat([rows_of(frame, "fmm"), named])


def _row(name: str, places: Mapping[str, int], counted: Cells) -> dict[str, str | float]:
    """What can be said of one policy; what lacks a part is left out."""
    if not policy(name).readable:
        return {"policy": name}
    best = [places[one] for one in (f"{arm_of(policy(name))}[{OPTIMUM}]",) if one in places]
    chance = _chance(name, places)
    row: dict[str, str | float] = {"policy": name}
    if chance:
        row["chance"] = counted.at(chance).statistic(_mean).estimate
    if best:
        row |= _limits("regret", counted.at([places[name], *best]).statistic(minus).interval())
    if best and chance:
        row |= _limits("closed", counted.at([places[name], *best, *chance]).statistic(_closed).interval())
    return row


def _limits(name: str, interval: Interval) -> dict[str, float]:
    return {name: interval.estimate, f"{name}_low": interval.low, f"{name}_high": interval.high}


def _chance(name: str, places: Mapping[str, int]) -> list[int]:
    """Where chance is measured: in closed form for the policy or its arm, else in draws, or draws pooled in a sweep."""
    arm = arm_of(policy(name))
    closed_form = [places[one] for one in (f"{CHANCE} of {name}", f"{CHANCE} of {arm}") if one in places]
    drawn = [places[one] for one in random_arms([policy(arm)]) if one in places]
    pooled = [places[one] for one in (f"{arm}[{RANDOM}]",) if one in places]
    return closed_form[:1] or drawn or pooled


def _mean(values: Floats) -> Floats:
    mean: Floats = values.mean(axis=-1)
    return mean


def _closed(values: Floats) -> Floats:
    """Share of the gap closed, from the policy, the optimum and chance [..., quantity]; NaN without a gap."""
    own, best, chance = values[..., 0], values[..., 1], values[..., 2:].mean(axis=-1)
    gap = chance - best
    return np.where(gap > 0, (chance - own) / np.where(gap > 0, gap, 1), np.nan)
