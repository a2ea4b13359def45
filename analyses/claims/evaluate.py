"""The paper's twelve claims, put to the test on whatever model was recorded.

A claim is one or more checks (`claim_checks`). A check *holds* when the whole 95% interval lies on the claimed side of
its threshold, *does not hold* when it lies on the other, and is *undecided* when the interval contains the threshold,
when its p-value is not below 5% after Holm's correction over all checks, or when there is no interval, as with one
article. A claim holds when all its checks do, and does not when one fails. The unit of replication is the article, with
its layers resampled within it (two-level bootstrap); comparisons are paired on the same cells. A check that a count is
0 needs no interval.
"""

import math
from dataclasses import dataclass

import numpy as np
import polars as pl

from qevict_diag.analyses import published
from qevict_diag.analyses.claims.checks import Check, Quantity, Setting, Side, checks
from qevict_diag.analyses.estimates import Cells, Grid, cells, grid, pooled_ratios, rows_of
from qevict_diag.errors import MetricError
from qevict_diag.replay.settings import Settings
from qevict_diag.statistics import intervals
from qevict_diag.statistics.intervals import Floats, Interval

HOLDS, FAILS, UNDECIDED, UNMEASURED = "holds", "does not hold", "undecided", "not measured"
EXACT = "exact count"
UNIT = "article, layers within"
COLUMNS = {
    "claim": pl.String,
    "statistic": pl.String,
    "estimate": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "side": pl.String,
    "threshold": pl.Float64,
    "verdict": pl.String,
    "p_value": pl.Float64,
    "numbers": pl.String,
    "more": pl.String,
    "method": pl.String,
    "unit": pl.String,
    "n": pl.Int64,
    "layers": pl.Int64,
    "reading": pl.String,
}


@dataclass(frozen=True, eq=False)
class _Measured:
    """Measurements of one setting, the grid over them, and the reading they were made under."""

    frame: pl.DataFrame
    over: Grid
    reading: str


def evaluate(
    diagnostic: pl.DataFrame | None, promotion: pl.DataFrame | None = None, settings: Settings | None = None
) -> pl.DataFrame:
    """Put every check to the test, one row each; ``diagnostic`` is 512+256, ``promotion`` 256+1024, either may lack.

    ``p_holm`` corrects over all checks that have a p-value; a check whose corrected p is not below 5% is undecided.
    """
    frames: dict[Setting, pl.DataFrame | None] = {"diagnostic": diagnostic, "promotion": promotion}
    measured = {setting: _measured(frame) for setting, frame in frames.items()}
    rows = [_row(check, measured[check.setting]) for check in checks((settings or Settings()).min_inactive)]
    table = pl.DataFrame(rows, schema=COLUMNS, orient="row")
    texts = pl.DataFrame(published.claims()).rename({"id": "claim"})
    table = table.with_columns(p_holm=pl.Series(intervals.holm(table["p_value"].to_numpy())))
    doubtful = pl.col("verdict").is_in((HOLDS, FAILS)) & (pl.col("p_holm").fill_nan(0) >= 1 - intervals.CONFIDENCE)
    table = table.with_columns(verdict=pl.when(doubtful).then(pl.lit(UNDECIDED)).otherwise("verdict"))
    open_ = pl.col("verdict").is_in((UNDECIDED, UNMEASURED))
    table = table.with_columns(more=pl.when(open_).then("more").otherwise(pl.lit("")))
    return table.join(texts, on="claim", how="left", maintain_order="left")


def summary(evaluated: pl.DataFrame) -> pl.DataFrame:
    """Combine the checks of each claim: claim, verdict, text, place, numbers; in the paper's order."""
    grouped = evaluated.group_by("claim", maintain_order=True).agg(
        pl.col("verdict").alias("parts"),
        pl.col("text").first(),
        pl.col("place").first(),
        pl.col("numbers"),
        pl.col("more").filter(pl.col("more") != "").unique(maintain_order=True).str.join("; "),
        pl.col("n").max(),
        pl.col("layers").max(),
    )
    verdicts = [combined(parts) for parts in grouped["parts"].to_list()]
    numbers = [_merged(told) for told in grouped["numbers"].to_list()]
    return grouped.with_columns(
        verdict=pl.Series(verdicts, dtype=pl.String), numbers=pl.Series(numbers, dtype=pl.String)
    ).select("claim", "verdict", "text", "numbers", "more", "n", "layers", "place")


def apart(values: Floats) -> list[str]:
    """Numbers with four significant digits, or as many more, seven at most, as show the gaps between them truly."""
    gaps = np.diff(np.unique(values[np.isfinite(values)]))
    for digits in range(4, 8):
        told = [f"{value:.{digits}g}" for value in values]
        off = np.nanmax(np.abs(np.array(told, dtype=np.float64) - values), initial=0)
        if not gaps.size or off <= gaps.min() / 10:
            break
    return told


def _merged(told: list[str]) -> str:
    """Every number once, in order of first mention."""
    return ", ".join(dict.fromkeys(part for one in told for part in one.split(", ")))


def combined(parts: list[str]) -> str:
    """Verdict of a claim from those of its checks: the worst news wins, what was not measured decides nothing."""
    for verdict in (FAILS, UNMEASURED, UNDECIDED):
        if verdict in parts:
            return verdict
    return HOLDS


def verdict(interval: Interval, threshold: float, side: Side) -> str:
    """Where the interval lies: on the claimed side, on the other, or across the threshold."""
    if side == "equal":
        return UNDECIDED if math.isnan(interval.estimate) else HOLDS if interval.estimate == threshold else FAILS
    if not interval.bounded or interval.low <= threshold <= interval.high:
        return UNDECIDED
    return HOLDS if (interval.low > threshold) == (side == "above") else FAILS


def _measured(frame: pl.DataFrame | None) -> _Measured | None:
    if frame is None or frame.is_empty():
        return None
    return _Measured(frame, grid(frame), rows_of(frame, "fmm")["reading"][0])


def _row(check: Check, measured: _Measured | None) -> tuple[object, ...]:
    try:
        if measured is None:
            raise MetricError(f"the {check.setting} setting was not measured")
        return _checked(check, measured)
    except MetricError as missing:
        nothing = (math.nan, math.nan, math.nan)
        told = (UNMEASURED, math.nan, str(missing), "", "none", UNIT, 0, 0, "")
        return (check.claim, check.statistic, *nothing, check.side, check.threshold, *told)


def _checked(check: Check, measured: _Measured) -> tuple[object, ...]:
    over = measured.over
    counted = [_cells(quantity, measured) for quantity in check.quantities]
    parts = [pooled_ratios(part, over) for part in counted]
    values, draws, single = (np.concatenate(kind, axis=-1) for kind in zip(*parts, strict=True))
    estimate, spread = float(check.combine(values)), check.combine(draws)
    articles = intervals.articles_of(*(part.denominator for part in counted))
    interval = intervals.interval_of(estimate, spread, articles)
    found = verdict(interval, check.threshold, check.side)
    return (
        *(check.claim, check.statistic, interval.estimate, interval.low, interval.high),
        *(check.side, check.threshold, found),
        _p_value(check, interval, spread),
        ", ".join(f"{q.label} {told}" for q, told in zip(check.quantities, apart(values), strict=True)),
        _more(check.combine(single) - check.threshold),
        EXACT if check.side == "equal" else interval.method,
        *(UNIT, interval.n, len(over.layers), measured.reading),
    )


def _cells(quantity: Quantity, measured: _Measured) -> Cells:
    where: dict[str, str | int] = {"policy": quantity.policy, "reading": measured.reading}
    if quantity.group is not None:
        where["group"] = quantity.group
    if quantity.lag is not None:
        where["lag"] = quantity.lag
    return cells(rows_of(measured.frame, quantity.metric, **where), measured.over, ("policy",), quantity.how)


def _p_value(check: Check, interval: Interval, draws: Floats) -> float:
    if check.side == "equal" or not interval.bounded:
        return math.nan
    return intervals.bootstrap_p(draws, check.threshold)


def _more(effects: Floats) -> str:
    return intervals.detectable(effects[~np.isnan(effects)]).words()
