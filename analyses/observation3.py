"""Observation III: importance is persistent but not static, so some windows leave the top and come back.

Table 16 and the lagged transitions of Appendix I.4.
"""

import math
from functools import partial

import numpy as np
import polars as pl

from qevict_diag.analyses import published
from qevict_diag.analyses.estimates import Cells, Sample, cells, rows_of, sample
from qevict_diag.readings import Readings
from qevict_diag.statistics import intervals
from qevict_diag.statistics.intervals import ratios

LIR_KEYS = ("policy", "reading", "budget", "group", "lag")
TRANSITION_KEYS = ("policy", "reading", "budget", "lag")
LIR_COLUMNS = {
    "estimate": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "layer_sd": pl.Float64,
    "wilson_low": pl.Float64,
    "wilson_high": pl.Float64,
    "rescued": pl.Int64,
    "eligible": pl.Int64,
    "method": pl.String,
    "n": pl.Int64,
    "layers": pl.Int64,
}
MEDIAN_COLUMNS = {"median_return": pl.Float64, "return_low": pl.Float64, "return_high": pl.Float64}


def lir(frame: pl.DataFrame, over: Sample | None = None) -> pl.DataFrame:
    """Global LIR of the oracle's and the policy's selection, pooled counts, for every minimum inactivity (``lag``).

    Two intervals: ``low``/``high`` over articles, and Wilson's on the pooled counts (episodes taken as independent,
    which they are not). 0/0 is NaN. ``first_entries`` is how many of the rescued had never been selected before; null
    where the other reading of episodes was not measured. The time to return is the median over rescued episodes, in
    routing events since eligibility.
    """
    over = over or sample(frame)
    counted = cells(rows_of(frame, "lir"), over, LIR_KEYS, "pooled")
    found = [_lir_row(counted.at([place]), over) for place in range(len(counted.keys))]
    rates = _with_first_entries(counted.keys.hstack(pl.DataFrame(found, schema=LIR_COLUMNS, orient="row")))
    full = rates.join(return_times(frame, over), on=LIR_KEYS, how="left", nulls_equal=True)
    rates_known = published.attach(full, "published", ["policy", "group", "lag"], published.lir)
    return published.attach(rates_known, "published_return", ["policy", "group", "lag"], published.return_time)


def _lir_row(one: Cells, over: Sample) -> tuple[float | str | int, ...]:
    interval = one.statistic().interval()
    rescued, eligible = int(one.numerator.sum()), int(one.denominator.sum())
    pooled = intervals.wilson(rescued, eligible)
    return (
        *(interval.estimate, interval.low, interval.high, one.layer_sd()),
        *(pooled.low, pooled.high, rescued, eligible),
        *(interval.method, interval.n, len(over.layers)),
    )


def _with_first_entries(rates: pl.DataFrame) -> pl.DataFrame:
    """Take from the rescued those that had left before, which are the rescued under the reading ``after_exit``."""
    keys = ["policy", "budget", "group", "lag"]
    left = rates.select(*keys, after="reading", left="rescued")
    after = {label: after_exit(label) for label in rates["reading"].unique()}
    both = rates.with_columns(after=pl.col("reading").replace_strict(after, return_dtype=pl.String))
    both = both.join(left, on=[*keys, "after"], how="left", nulls_equal=True, maintain_order="left")
    return both.with_columns(first_entries=pl.col("rescued") - pl.col("left")).drop("after", "left")


def after_exit(reading: str) -> str:
    """The label of a reading with episodes counted only after an exit (reading F)."""
    return Readings.parse(reading.split(",") if reading else []).with_(lir_episodes="after_exit").label()


def return_times(frame: pl.DataFrame, over: Sample) -> pl.DataFrame:
    """Median time to return with its interval, for each key of a LIR; no row where no episode was rescued."""
    rows = frame.filter(pl.col("metric") == "return_time", pl.col("value").is_not_nan())
    histogram = cells(rows, over, (*LIR_KEYS, "value"), "mean")
    found = []
    for key, at in _groups(histogram, LIR_KEYS):
        times = histogram.keys["value"].to_numpy()[at]
        found.append((*key, *_median(times, histogram.count[at])))
    schema = pl.Schema([*((name, frame.schema[name]) for name in LIR_KEYS), *MEDIAN_COLUMNS.items()])
    return pl.DataFrame(found, schema=schema, orient="row")


def transitions(frame: pl.DataFrame, over: Sample | None = None) -> pl.DataFrame:
    """Lagged transitions of the full-precision tier, Table 17a: one row per policy and lag.

    ``p01`` and ``p10`` with intervals and their counts, ``ratio`` = P10 / P01, and ``capacity_ratio``, what the ratio
    would be for any selection of that size in equilibrium: (pairs that start outside F) / (pairs that start in F).
    """
    over = over or sample(frame)
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


def _side(rows: pl.DataFrame, over: Sample, name: str) -> pl.DataFrame:
    counted = cells(rows, over, TRANSITION_KEYS, "pooled")
    table = []
    for place in range(len(counted.keys)):
        one = counted.at([place])
        interval = one.statistic().interval()
        counts = (int(one.numerator.sum()), int(one.denominator.sum()))
        table.append((interval.estimate, interval.low, interval.high, *counts))
    names = (name, f"{name}_low", f"{name}_high", f"{name}_moved", f"{name}_pairs")
    return counted.keys.hstack(pl.DataFrame(table, schema=list(names), orient="row"))


def _published(kind: str, policy: str, lag: int) -> float | None:
    return published.value("transitions", policy, kind, str(lag))


def _groups(histogram: Cells, by: tuple[str, ...]) -> list[tuple[tuple[object, ...], np.ndarray]]:
    """Rows of the leading axis that belong to one key."""
    numbered = histogram.keys.with_row_index("at").group_by(by, maintain_order=True).agg("at")
    return [(row[:-1], np.array(row[-1])) for row in numbered.rows()]


def _median(times: np.ndarray, counts: np.ndarray) -> tuple[float, float, float]:
    """Median of a histogram [time, article, layer], with limits from the spread of the articles' own medians."""
    order = np.argsort(times)
    counts = counts[order].sum(axis=2)
    pooled, alone = (weighted_median(times[order], number) for number in (counts.sum(axis=1), counts.T))
    interval = intervals.about(float(pooled), alone).interval()
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
