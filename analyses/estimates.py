"""From measurement rows to cells (article, layer), and from cells to estimates with intervals.

Every aggregate of the paper is a ratio of two sums over cells. A *mean* adds up the values and counts them, undefined
ones (NaN) in neither sum; a *pooled* rate adds up numerators and denominators (definitions.md, section 7). Both
then go through the same two-level bootstrap, whose draws depend only on the seed and the grid of cells: estimates that
share a grid share their draws, so differences between them are paired.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from qevict_diag.errors import MetricError
from qevict_diag.statistics import intervals
from qevict_diag.statistics.intervals import Floats

How = Literal["mean", "pooled"]

SEED = 20250607
INTERVAL = {
    "estimate": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "method": pl.String,
    "n": pl.Int64,
    "layers": pl.Int64,
    "count": pl.Int64,
    "undefined": pl.Int64,
}


@dataclass(frozen=True, eq=False)
class Grid:
    """The articles and layers that all estimates of one question share, and the bootstrap draws over them."""

    traces: tuple[str, ...]
    layers: tuple[int, ...]
    weights: Floats  # [resample, article, layer]
    seed: int


@dataclass(frozen=True, eq=False)
class Cells:
    """Sums of one or more quantities over the grid; ``keys`` names the leading axis."""

    keys: pl.DataFrame
    numerator: Floats  # [key, article, layer]
    denominator: Floats
    count: Floats  # rows that are defined
    undefined: Floats  # rows that are not


def grid(frame: pl.DataFrame, seed: int = SEED, resamples: int = intervals.RESAMPLES) -> Grid:
    """Lay out the cells of ``frame`` and draw the bootstrap weights; MetricError for a frame without rows."""
    if frame.is_empty():
        raise MetricError("no measurement to analyse; measure the policies and metrics that the analysis is about")
    traces = tuple(sorted(frame["trace"].unique()))
    layers = tuple(sorted(frame["layer"].drop_nulls().unique()))
    rng = np.random.default_rng(seed)
    return Grid(traces, layers, intervals.two_level_weights(len(traces), len(layers), rng, resamples), seed)


def rows_of(frame: pl.DataFrame, metric: str, **where: str | int) -> pl.DataFrame:
    """Rows of one metric, with other columns fixed; MetricError when there are none."""
    conditions = [pl.col("metric") == metric, *(pl.col(name) == value for name, value in where.items())]
    rows = frame.filter(*conditions)
    if rows.is_empty():
        told = ", ".join([f"metric {metric}", *(f"{name} {value}" for name, value in where.items())])
        raise MetricError(f"no measurement of {told}; measure it first")
    return rows


def cells(rows: pl.DataFrame, over: Grid, by: Sequence[str], how: How) -> Cells:
    """Sum ``rows`` of one metric into the cells of ``over``, one block for each combination of ``by``."""
    defined = pl.col("value").is_not_nan() & pl.col("value").is_not_null()
    top, bottom = (pl.col("value"), pl.lit(1.0)) if how == "mean" else (pl.col("numerator"), pl.col("denominator"))
    sums = rows.group_by([*by, "trace", "layer"]).agg(
        top.filter(defined).sum().alias("top"),
        (bottom.filter(defined).sum() if how == "pooled" else defined.sum()).cast(pl.Float64).alias("bottom"),
        defined.sum().alias("count"),
        (~defined).sum().alias("undefined"),
    )
    keys = sums.select(by).unique().sort(by, nulls_last=False)
    places = _places(sums, keys, over, by)
    return Cells(keys, *(_scatter(places, sums[name], keys, over) for name in ("top", "bottom", "count", "undefined")))


def estimates(rows: pl.DataFrame, over: Grid, by: Sequence[str], how: How) -> pl.DataFrame:
    """Estimate and 95% interval for each combination of ``by``: the columns of ``by``, then those of `INTERVAL`."""
    return described(cells(rows, over, by, how), over)


def described(of: Cells, over: Grid) -> pl.DataFrame:
    """Turn cells into rows with an interval each."""
    found = [intervals.two_level(num, den, over.weights) for num, den in zip(of.numerator, of.denominator, strict=True)]
    counts = zip(of.count.sum((1, 2)), of.undefined.sum((1, 2)), strict=True)
    table = [
        (i.estimate, i.low, i.high, i.method, i.n, len(over.layers), int(count), int(undefined))
        for i, (count, undefined) in zip(found, counts, strict=True)
    ]
    return of.keys.hstack(pl.DataFrame(table, schema=INTERVAL, orient="row"))


def pooled_ratios(of: Cells, over: Grid) -> tuple[Floats, Floats, Floats]:
    """Ratios of sums [key] over all cells, their bootstrap draws [resample, key], and by article [article, key].

    NaN where nothing was counted.
    """
    draws = [intervals.resampled_sums(part, over.weights) for part in (of.numerator, of.denominator)]
    return (
        intervals.ratios(of.numerator.sum((1, 2)), of.denominator.sum((1, 2))),
        intervals.ratios(draws[0], draws[1]),
        intervals.ratios(of.numerator.sum(2).T, of.denominator.sum(2).T),
    )


def window_of(rows: pl.DataFrame) -> pl.DataFrame:
    """Window size of each policy, in tokens, from steps and events: columns policy, window."""
    later = rows.filter(pl.col("event") > 0, pl.col("step").is_not_null())
    return later.group_by("policy").agg((pl.col("step") // pl.col("event")).first().alias("window"))


def _places(sums: pl.DataFrame, keys: pl.DataFrame, over: Grid, by: Sequence[str]) -> tuple[Floats, ...]:
    """Index of each row of ``sums`` on the three axes [key, article, layer]."""
    located = sums.join(keys.with_row_index("at"), on=list(by), how="left", nulls_equal=True, maintain_order="left")
    traces = {trace: index for index, trace in enumerate(over.traces)}
    layers = {layer: index for index, layer in enumerate(over.layers)}
    return (
        located["at"].to_numpy(),
        np.array([traces[trace] for trace in sums["trace"]], dtype=np.int64),
        np.array([layers[layer] for layer in sums["layer"]], dtype=np.int64),
    )


def _scatter(places: tuple[Floats, ...], values: pl.Series, keys: pl.DataFrame, over: Grid) -> Floats:
    block = np.zeros((len(keys), len(over.traces), len(over.layers)))
    block[places] = values.to_numpy()
    return block
