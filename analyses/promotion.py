"""What promotion from the quantized tier is worth: R3 with and without it on the same traces.

Table 18; paper, Appendix K. The paper's two conditions use different articles, so its difference is directional only;
here both replay the same traces, and the difference is paired.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl

from qevict_diag.analyses import published
from qevict_diag.analyses.estimates import Cells, How, Sample, cells, rows_of, sample
from qevict_diag.errors import MetricError
from qevict_diag.replay.settings import Settings
from qevict_diag.statistics import intervals
from qevict_diag.statistics.intervals import Interval, minus

WITH, WITHOUT = "R3", "R3-one-way"
QUANTITIES: tuple[tuple[str, str, How, str], ...] = (
    ("fmm", "fmm", "mean", "lower"),
    ("qsa", "qsa", "mean", "higher"),
    ("mass_ratio", "mass_ratio", "pooled", "higher"),
    ("lir", "lir", "pooled", "higher"),
    ("promotions", "promotions", "mean", "higher"),
)
COLUMNS = {
    "quantity": pl.String,
    "better": pl.String,
    "without": pl.Float64,
    "without_low": pl.Float64,
    "without_high": pl.Float64,
    "with": pl.Float64,
    "with_low": pl.Float64,
    "with_high": pl.Float64,
    "difference": pl.Float64,
    "difference_low": pl.Float64,
    "difference_high": pl.Float64,
    "p_value": pl.Float64,
    "n": pl.Int64,
    "layers": pl.Int64,
    "reading": pl.String,
}


def compare(frame: pl.DataFrame, settings: Settings | None = None, over: Sample | None = None) -> pl.DataFrame:
    """Put R3 without promotion, R3 with it and the paired difference (with - without) side by side, one quantity a row.

    ``promotions`` is the number of Q→F transitions over all layers and traces; LIR is the policy's own, pooled, at the
    settings' m. ``p_holm`` corrects the two-sided p-values for the number of quantities.
    """
    over, lag = over or sample(frame), (settings or Settings()).min_inactive
    reading = rows_of(frame, "fmm", policy=WITH)["reading"][0]
    rows = [
        (name, better, *_compared(_pair(frame, over, metric, how, reading, lag), over), reading)
        for name, metric, how, better in QUANTITIES
    ]
    table = pl.DataFrame(rows, schema=COLUMNS, orient="row")
    table = table.with_columns(p_holm=pl.Series(intervals.holm(table["p_value"].to_numpy())))
    for side in ("without", "with"):
        table = published.attach(table, f"published_{side}", ["quantity"], partial(published.value, "promotion", side))
    return table


def _pair(frame: pl.DataFrame, over: Sample, metric: str, how: How, reading: str, lag: int) -> Cells:
    """Without promotion first, then with it."""
    where: dict[str, str | int] = {"group": "policy", "lag": lag} if metric == "lir" else {}
    rows = rows_of(frame, metric, reading=reading, **where).filter(pl.col("policy").is_in((WITHOUT, WITH)))
    found = cells(rows, over, ("policy",), how)
    names = found.keys["policy"].to_list()
    missing = [policy for policy in (WITHOUT, WITH) if policy not in names]
    if missing:
        raise MetricError(f"no measurement of metric {metric}, policy {' and '.join(missing)}; measure it first")
    both = found.at([names.index(policy) for policy in (WITHOUT, WITH)])
    return _totals(both) if metric == "promotions" else both


def _totals(part: Cells) -> Cells:
    """Make the ratio a total: with a denominator that adds up to 1, Σ numerator / Σ denominator counts."""
    share = np.full(part.denominator.shape, 1 / part.denominator[0].size)
    return replace(part, denominator=share)


def _compared(pair: Cells, over: Sample) -> tuple[float | int, ...]:
    parts = [pair.at([0]).statistic(), pair.at([1]).statistic(), pair.at([1, 0]).statistic(minus)]
    limits = [number for part in parts for number in _numbers(part.interval())]
    return (*limits, parts[2].p_value(), parts[0].n, len(over.layers))


def _numbers(interval: Interval) -> tuple[float, float, float]:
    return interval.estimate, interval.low, interval.high
