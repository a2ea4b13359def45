"""Observation III: importance is persistent but not static, so some windows leave the top and come back.

Table 16 and the lagged transitions of Appendix I.4.
"""

import math
from functools import partial

import numpy as np
import polars as pl

from qevict_diag.analyses import published
from qevict_diag.analyses.estimates import Cells, Grid, cells, grid, rows_of
from qevict_diag.statistics import intervals
from qevict_diag.statistics.intervals import ratios

LIR_KEYS = ("policy", "reading", "budget", "group", "lag")
TRANSITION_KEYS = ("policy", "reading", "budget", "lag")
LIR_COLUMNS = {
    "estimate": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "wilson_low": pl.Float64,
    "wilson_high": pl.Float64,
    "trace_low": pl.Float64,
    "trace_high": pl.Float64,
    "rescued": pl.Int64,
    "eligible": pl.Int64,
    "method": pl.String,
    "n": pl.Int64,
    "layers": pl.Int64,
}
MEDIAN_COLUMNS = {"median_return": pl.Float64, "return_low": pl.Float64, "return_high": pl.Float64}


def lir(frame: pl.DataFrame, over: Grid | None = None) -> pl.DataFrame:
    """Global LIR of the oracle's and the policy's selection, pooled counts, for every minimum inactivity (``lag``).

    Three intervals: ``low``/``high`` from the two-level bootstrap, Wilson's on the pooled counts (episodes taken as
    independent, which they are not), and whole traces resampled. 0/0 is NaN. The time to return is the median over
    rescued episodes, in routing events since eligibility.
    """
    over = over or grid(frame)
    counted = cells(rows_of(frame, "lir"), over, LIR_KEYS, "pooled")
    blocks = zip(counted.numerator, counted.denominator, strict=True)
    table = pl.DataFrame([_lir_row(*block, over) for block in blocks], schema=LIR_COLUMNS, orient="row")
    rates = counted.keys.hstack(table)
    full = rates.join(return_times(frame, over), on=LIR_KEYS, how="left", nulls_equal=True)
    rates_known = published.attach(full, "published", ["policy", "group", "lag"], published.lir)
    return published.attach(rates_known, "published_return", ["policy", "group", "lag"], published.return_time)


def _lir_row(rescued: np.ndarray, eligible: np.ndarray, over: Grid) -> tuple:
    interval = intervals.two_level(rescued, eligible, over.weights)
    pooled = intervals.wilson(int(rescued.sum()), int(eligible.sum()))
    rng = np.random.default_rng(over.seed)
    traces = intervals.trace_bootstrap(rescued.sum(1), eligible.sum(1), rng)
    return (
        *(interval.estimate, interval.low, interval.high),
        *(pooled.low, pooled.high, traces.low, traces.high),
        *(int(rescued.sum()), int(eligible.sum())),
        *(interval.method, interval.n, len(over.layers)),
    )


def return_times(frame: pl.DataFrame, over: Grid) -> pl.DataFrame:
    """Median time to return with its interval, for each key of a LIR; no row where no episode was rescued.

    The median of counts: the histogram of return times is what is resampled.
    """
    rows = frame.filter(pl.col("metric") == "return_time", pl.col("value").is_not_nan())
    histogram = cells(rows, over, (*LIR_KEYS, "value"), "mean")
    found = []
    for key, at in _groups(histogram, LIR_KEYS):
        times = histogram.keys["value"].to_numpy()[at]
        found.append((*key, *_median(times, histogram.count[at], over)))
    schema = pl.Schema([*((name, frame.schema[name]) for name in LIR_KEYS), *MEDIAN_COLUMNS.items()])
    return pl.DataFrame(found, schema=schema, orient="row")


def transitions(frame: pl.DataFrame, over: Grid | None = None) -> pl.DataFrame:
    """Lagged transitions of the full-precision tier, Table 17a: one row per policy and lag.

    ``p01`` and ``p10`` with intervals and their counts, ``ratio`` = P10 / P01, and ``capacity_ratio``, what the ratio
    would be for any selection of that size in equilibrium: (pairs that start outside F) / (pairs that start in F).
    """
    over = over or grid(frame)
    rows = rows_of(frame, "transitions")
    sides = [_side(rows.filter(pl.col("group") == group), over, f"p{group}") for group in ("01", "10")]
    both = sides[0].join(sides[1], on=TRANSITION_KEYS, how="full", coalesce=True, nulls_equal=True)
    p01, p10, from_out, from_in = (both[name].to_numpy() for name in ("p01", "p10", "p01_pairs", "p10_pairs"))
    over_each_other = {"ratio": ratios(p10, p01), "capacity_ratio": ratios(from_out, from_in)}
    table = both.with_columns(**{name: pl.Series(found) for name, found in over_each_other.items()})
    table = table.sort(TRANSITION_KEYS)
    for kind in ("P01", "P10"):
        look = partial(_published, kind)
        table = published.attach(table, f"published_{kind.lower()}", ["policy", "lag"], look)
    return table


def _side(rows: pl.DataFrame, over: Grid, name: str) -> pl.DataFrame:
    counted = cells(rows, over, TRANSITION_KEYS, "pooled")
    table = []
    for moved, pairs in zip(counted.numerator, counted.denominator, strict=True):
        interval = intervals.two_level(moved, pairs, over.weights)
        table.append((interval.estimate, interval.low, interval.high, int(moved.sum()), int(pairs.sum())))
    names = (name, f"{name}_low", f"{name}_high", f"{name}_moved", f"{name}_pairs")
    return counted.keys.hstack(pl.DataFrame(table, schema=list(names), orient="row"))


def _published(kind: str, policy: str, lag: int) -> float | None:
    return published.value("transitions", policy, kind, str(lag))


def _groups(histogram: Cells, by: tuple[str, ...]) -> list[tuple[tuple, np.ndarray]]:
    """Rows of the leading axis that belong to one key."""
    numbered = histogram.keys.with_row_index("at").group_by(by, maintain_order=True).agg("at")
    return [(row[:-1], np.array(row[-1])) for row in numbered.rows()]


def _median(times: np.ndarray, counts: np.ndarray, over: Grid) -> tuple[float, float, float]:
    """Median of a histogram [time, article, layer] and its bootstrap limits."""
    order = np.argsort(times)
    draws = intervals.resampled_sums(counts[order], over.weights)
    estimate = weighted_median(times[order], counts[order].sum((1, 2))[None])[0]
    articles = intervals.articles_of(counts.sum(axis=0))
    interval = intervals.interval_of(estimate, weighted_median(times[order], draws), articles)
    return interval.estimate, interval.low, interval.high


def weighted_median(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Median of sorted ``values`` [value] that occur ``counts`` [..., value] times; NaN where nothing occurs.

    For an even number of values it is the mean of the two in the middle, as usual.
    """
    total, running = counts.sum(-1), counts.cumsum(-1)
    lower, upper = ((running <= (rank)[..., None]).sum(-1) for rank in (np.ceil(total / 2) - 1, np.floor(total / 2)))
    last = len(values) - 1
    middle = (values[np.minimum(lower, last)] + values[np.minimum(upper, last)]) / 2
    return np.where(total > 0, middle, math.nan)
