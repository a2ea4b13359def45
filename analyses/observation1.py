"""Observation I: windows miss less future attention than tokens, and stabilize the selection.

Table 14 and Figure 1(a); paper, section 3 and Appendix I.2.
"""

import polars as pl

from qevict_diag.analyses import published
from qevict_diag.analyses.estimates import Sample, cells, described, estimates, rows_of, sample, window_of

POLICIES = ("R1", "R2", "R3", "R4", "R3-full-only")
KEYS = ("policy", "reading", "budget")


def fmm(frame: pl.DataFrame, over: Sample | None = None) -> pl.DataFrame:
    """Future Missed Mass of each policy: mean of the per-head ratios, and the ratio of sums beside it.

    Columns: policy, reading, budget, the interval's, ``pooled``. The mean runs over eligible events, heads, layers and
    traces; events whose denominator is 0 are undefined and only counted.
    """
    over = over or sample(frame)
    rows = rows_of(frame, "fmm")
    pooled = estimates(rows, over, KEYS, "pooled").select(*KEYS, pooled="estimate")
    return estimates(rows, over, KEYS, "mean").join(pooled, on=KEYS, how="left", nulls_equal=True)


def churn(frame: pl.DataFrame, over: Sample | None = None) -> pl.DataFrame:
    """Average the Selection Churn per routing event of each policy, and say what it means in tokens and windows.

    ``windows_per_event`` is how many windows were swapped at an event, and also how many tokens were swapped per
    generated token: Jaccard distances of sets of different size are not comparable, this is. It is half the symmetric
    difference, so while a cache still fills, a window that enters counts as half a swap.
    """
    over = over or sample(frame)
    rows = rows_of(frame, "churn")
    swapped = rows.with_columns(value=pl.col("numerator") / 2)
    tokens = estimates(swapped, over, KEYS, "mean").select(*KEYS, tokens_per_event="estimate")
    table = (
        estimates(rows, over, KEYS, "mean")
        .join(tokens, on=KEYS, how="left", nulls_equal=True)
        .join(window_of(frame), on="policy", how="left")
        .with_columns(windows_per_event=pl.col("tokens_per_event") / pl.col("window"))
    )
    return published.attach(table, "published", ["policy"], lambda policy: published.value("churn_per_event", policy))


def series(frame: pl.DataFrame, over: Sample | None = None) -> pl.DataFrame:
    """Future Missed Mass at every eligible routing event, Figure 1(a): policy, event, step and the interval's."""
    over = over or sample(frame)
    return described(cells(rows_of(frame, "fmm"), over, ("policy", "event", "step"), "mean"), over)
