"""From measurement rows to cells (article, layer), and from cells to estimates with intervals.

Every aggregate of the paper is a ratio of two sums over cells. A *mean* adds up the values and counts them, undefined
ones (NaN) in neither sum; a *pooled* rate adds up numerators and denominators (definitions.md, section 7). Both are
then summed over layers, which are all there are, and get their interval over articles, which are the sample
(section 12). How much a number varies over layers stands beside it as ``layer_sd``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from qevict_diag.errors import MetricError
from qevict_diag.statistics.intervals import Combine, Floats, Statistic, itself, over_articles, ratios

How = Literal["mean", "pooled"]

INTERVAL = {
    "estimate": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "method": pl.String,
    "n": pl.Int64,
    "layers": pl.Int64,
    "layer_sd": pl.Float64,
    "count": pl.Int64,
    "undefined": pl.Int64,
}


_SUMS = ("numerator", "denominator", "count", "undefined")


@dataclass(frozen=True)
class Sample:
    """The articles and layers that all estimates of one question share."""

    traces: tuple[str, ...]
    layers: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Cells:
    """Sums of one or more quantities over the sample; ``keys`` names the leading axis."""

    keys: pl.DataFrame
    numerator: Floats  # [key, article, layer]
    denominator: Floats
    count: Floats  # rows that are defined
    undefined: Floats  # rows that are not

    def at(self, places: Sequence[int]) -> "Cells":
        """Some of the quantities, in the order asked for."""
        index = list(places)
        return Cells(self.keys[index], *(getattr(self, name)[index] for name in _SUMS))

    def statistic(self, combine: Combine = itself) -> Statistic:
        """Combine the quantities into one number over articles; layers are summed over."""
        return over_articles(self.numerator.sum(axis=2), self.denominator.sum(axis=2), combine)

    def by_layer(self, combine: Combine = itself) -> Floats:
        """The same number of each layer [layer], all articles together; NaN where it is not defined."""
        return combine(ratios(self.numerator.sum(axis=1), self.denominator.sum(axis=1)).T)

    def layer_sd(self, combine: Combine = itself) -> float:
        """Standard deviation of the number over layers, none left to sample; NaN where no layer defines it."""
        own = self.by_layer(combine)
        known = own[~np.isnan(own)]
        return float(known.std()) if known.size else float("nan")


def sample(frame: pl.DataFrame) -> Sample:
    """Articles and layers of ``frame``; MetricError for a frame without rows."""
    if frame.is_empty():
        raise MetricError("no measurement to analyse; measure the policies and metrics that the analysis is about")
    return Sample(tuple(sorted(frame["trace"].unique())), tuple(sorted(frame["layer"].drop_nulls().unique())))


def rows_of(frame: pl.DataFrame, metric: str, **where: str | int) -> pl.DataFrame:
    """Rows of one metric, with other columns fixed; MetricError when there are none."""
    conditions = [pl.col("metric") == metric, *(pl.col(name) == value for name, value in where.items())]
    rows = frame.filter(*conditions)
    if rows.is_empty():
        told = ", ".join([f"metric {metric}", *(f"{name} {value}" for name, value in where.items())])
        raise MetricError(f"no measurement of {told}; measure it first")
    return rows


def cells(rows: pl.DataFrame, over: Sample, by: Sequence[str], how: How) -> Cells:
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


def estimates(rows: pl.DataFrame, over: Sample, by: Sequence[str], how: How) -> pl.DataFrame:
    """Estimate and 95% interval for each combination of ``by``: the columns of ``by``, then those of `INTERVAL`."""
    return described(cells(rows, over, by, how), over)


def described(of: Cells, over: Sample) -> pl.DataFrame:
    """Turn cells into rows with an interval each."""
    table = [_described(of.at([place]), over) for place in range(len(of.keys))]
    return of.keys.hstack(pl.DataFrame(table, schema=INTERVAL, orient="row"))


def _described(one: Cells, over: Sample) -> tuple[float | str | int, ...]:
    interval = one.statistic().interval()
    counts = (int(one.count.sum()), int(one.undefined.sum()))
    limits = (interval.estimate, interval.low, interval.high, interval.method, interval.n)
    return (*limits, len(over.layers), one.layer_sd(), *counts)


def stacked(parts: Sequence[Cells]) -> Cells:
    """Quantities of one sample one after the other, to be combined."""
    blocks = [np.concatenate([getattr(part, name) for part in parts]) for name in _SUMS]
    return Cells(pl.concat([part.keys for part in parts]), *blocks)


def window_of(rows: pl.DataFrame) -> pl.DataFrame:
    """Window size of each policy, in tokens, from steps and events: columns policy, window."""
    later = rows.filter(pl.col("event") > 0, pl.col("step").is_not_null())
    return later.group_by("policy").agg((pl.col("step") // pl.col("event")).first().alias("window"))


def _places(sums: pl.DataFrame, keys: pl.DataFrame, over: Sample, by: Sequence[str]) -> tuple[Floats, ...]:
    """Index of each row of ``sums`` on the three axes [key, article, layer]."""
    located = sums.join(keys.with_row_index("at"), on=list(by), how="left", nulls_equal=True, maintain_order="left")
    traces = {trace: index for index, trace in enumerate(over.traces)}
    layers = {layer: index for index, layer in enumerate(over.layers)}
    return (
        located["at"].to_numpy(),
        np.array([traces[trace] for trace in sums["trace"]], dtype=np.int64),
        np.array([layers[layer] for layer in sums["layer"]], dtype=np.int64),
    )


def _scatter(places: tuple[Floats, ...], values: pl.Series, keys: pl.DataFrame, over: Sample) -> Floats:
    block = np.zeros((len(keys), len(over.traces), len(over.layers)))
    block[places] = values.to_numpy()
    return block
