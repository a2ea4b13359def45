"""The points of a sweep that pictures are drawn from: estimates with intervals at its settings.

Where a picture fixes an axis of the sweep, it takes the paper's diagnostic value if the sweep has it and the smallest
one otherwise (`reference`).
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import polars as pl

from qevict_diag.analyses.cells import estimates, grid, rows_of
from qevict_diag.analyses.summary import HOW
from qevict_diag.errors import InputError
from qevict_diag.policies import POLICIES

AXES = ("window", "quantized_fraction", "bits", "budget", "swept_reading")
USUAL: dict[str, Any] = {"quantized_fraction": "1/2", "bits": 2, "budget": "1/5", "swept_reading": ""}
KEYS = ("policy", *AXES)
PERCENT = ("fmm", "churn", "mass_share", "lir", "transitions")
GROUPS = {"mass_share": "evicted", "lir": "policy", "transitions": "01"}  # the one of several groups that is drawn
LAGS = {"lir": 3, "transitions": 1}  # and the lag, where a setting is one point


def points(frame: pl.DataFrame, metric: str = "fmm") -> pl.DataFrame:
    """Estimate and interval of one metric at every setting of a sweep; columns `KEYS` and the interval's."""
    one_model(frame)
    rows = one_group(rows_of(frame, metric), metric)
    if metric in LAGS:
        rows = rows.filter(pl.col("lag") == LAGS[metric])
    scale = 100 if metric in PERCENT else 1
    found = estimates(rows, grid(rows), KEYS, HOW[metric])
    return found.with_columns(pl.col("estimate", "low", "high") * scale)


def one_group(rows: pl.DataFrame, metric: str) -> pl.DataFrame:
    """Rows of the group of `GROUPS` where a metric has several, under the sweep's own reading."""
    own = rows.filter(pl.col("reading") == pl.col("swept_reading"))
    return own.filter(pl.col("group") == GROUPS[metric]) if metric in GROUPS else own


def one_model(frame: pl.DataFrame) -> None:
    """Refuse a sweep over several models: their numbers are not samples of one thing (InputError)."""
    models = frame["model"].unique().sort().to_list()
    if len(models) > 1:
        raise InputError(f"a sweep of {len(models)} models ({', '.join(models)}); filter the frame to one of them")


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
            found = found.filter(pl.col(name).is_null() | (pl.col(name) == value))
    return found


def varied(found: pl.DataFrame, name: str) -> pl.DataFrame:
    """Points along one axis, of the policies that have several there."""
    along = held(found, (name,)).filter(pl.col(name).is_not_null())
    several = along.filter(pl.len().over("policy") > 1)
    if several.is_empty():
        raise InputError(f"the sweep has one value of {name.replace('_', ' ')}; sweep over several to see its effect")
    return several


def averages(rows: pl.DataFrame, metric: str, across: str) -> pl.DataFrame:
    """Layers down, ``across`` to the right: means of defined values, or ratios of sums where counts are pooled."""
    defined = rows.filter(pl.col("value").is_not_nan())
    pooled = pl.col("numerator").sum() / pl.col("denominator").sum()
    value = pooled if HOW[metric] == "pooled" else pl.col("value").mean()
    means = defined.group_by("layer", across).agg(value=value).sort(across, "layer")
    return means.pivot(across, index="layer", values="value").sort("layer")


def bytes_used(used: pl.DataFrame) -> pl.DataFrame:
    """Mean over traces of the peak share of FullKV's bytes, in percent."""
    return used.group_by(KEYS).agg(share=pl.col("persistent_ratio").mean() * 100)


def _own_window(part: pl.DataFrame) -> pl.DataFrame:
    """The points of one policy at its own window, or at the first one that the sweep has."""
    base = POLICIES.get(part["policy"][0].partition("[")[0])
    windows = part["window"].unique().sort().to_list()
    own = base.window if base is not None and base.window in windows else windows[0]
    return part.filter(pl.col("window") == own)
