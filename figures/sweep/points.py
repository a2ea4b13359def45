"""The points of a sweep that pictures are drawn from: estimates with intervals at its settings.

Where a picture fixes an axis of the sweep, it takes the paper's diagnostic value if the sweep has it and the smallest
one otherwise (`reference`).
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import polars as pl

from qevict_diag import metrics
from qevict_diag.analyses.sweeps import AXES, at_settings
from qevict_diag.errors import InputError
from qevict_diag.policies.arms import CHANCE, arm_of
from qevict_diag.policies.catalogue import POLICIES, policy
from qevict_diag.replay.settings import Settings

USUAL: dict[str, Any] = {"quantized_fraction": "1/2", "bits": 2, "budget": "1/5", "swept_reading": ""}


def points(frame: pl.DataFrame, metric: str = "fmm", min_inactive: int = Settings.min_inactive) -> pl.DataFrame:
    """Estimate and interval of one metric at every setting of a sweep, in percent where it is a share."""
    scale = metrics.metric(metric).scale
    return at_settings(frame, metric, min_inactive).with_columns(pl.col("estimate", "low", "high") * scale)


def with_chance(frame: pl.DataFrame, metric: str = "fmm", min_inactive: int = Settings.min_inactive) -> pl.DataFrame:
    """`points`, and beside FMM what chance would miss, where that was measured: once for each arm that is swept.

    Points of chance are called `chance_of` the policy of whose windows they are.
    """
    found = points(frame, metric, min_inactive)
    if metric != "fmm" or CHANCE not in frame["metric"]:
        return found
    missed = points(frame, CHANCE)
    arms = _arms(missed["policy"].unique().sort())
    return pl.concat([found, chance_of(missed.filter(pl.col("policy").is_in(arms)))])


def chance_of(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows under the names of their policies' chance."""
    return rows.with_columns(policy=pl.format(f"{{}}[{CHANCE}]", pl.col("policy")))


def reference(found: pl.DataFrame, name: str) -> Any:
    """The value at which a picture holds an axis fixed; None when the axis does not apply."""
    values = found[name].drop_nulls().unique(maintain_order=True).to_list()
    if USUAL.get(name) in values or not values:
        return USUAL.get(name) if values else None
    return min(values, key=str if name == "swept_reading" else Fraction)


def held(found: pl.DataFrame, free: Sequence[str]) -> pl.DataFrame:
    """Only points where every axis that is not ``free`` has its reference value, or does not apply.

    A policy's window is its own where the sweep has it: 1 for R1, 32 for R4, 8 for the others.
    """
    for name in AXES:
        if name in free:
            continue
        if name == "window":
            found = pl.concat([_own_window(part) for part in found.partition_by("policy", maintain_order=True)])
        else:
            value = reference(found, name)
            found = found if value is None else found.filter(pl.col(name).is_null() | (pl.col(name) == value))
    return found


def varied(found: pl.DataFrame, name: str) -> pl.DataFrame:
    """`varying`; InputError when there are none."""
    several = varying(found, name)
    if several.is_empty():
        raise InputError(f"the sweep has one value of {name.replace('_', ' ')}; sweep over several to see its effect")
    return several


def varying(found: pl.DataFrame, name: str) -> pl.DataFrame:
    """Points along one axis, of the policies that have several there."""
    along = held(found, (name,)).filter(pl.col(name).is_not_null())
    return along.filter(pl.len().over("policy") > 1)


def _arms(names: Iterable[str]) -> list[str]:
    """One policy for each arm, the arm itself where it is among them; what evicts nothing has none."""
    found: dict[str, str] = {}
    for one in (one for one in map(policy, names) if one.evicts):
        if one.name == arm_of(one) or arm_of(one) not in found:
            found[arm_of(one)] = one.name
    return list(found.values())


def _own_window(part: pl.DataFrame) -> pl.DataFrame:
    """The points of one policy at its own window, or at the first one that the sweep has."""
    base = POLICIES.get(part["policy"][0].partition("[")[0])
    windows = part["window"].unique().sort().to_list()
    own = base.grain if base is not None and base.grain in windows else windows[0]
    return part.filter(pl.col("window") == own)
