"""The paper's twelve claims, put to the test on whatever model was recorded.

A claim is one or more checks (`checks`). Articles are the sample, and comparisons are paired on them. A check

- *holds* when the whole 95% interval lies on the claimed side of its threshold,
- *does not hold* when it lies on the other,
- shows *no difference* when it lies within a stated margin of the threshold, and
- is *undecided* when it contains the threshold, when its p-value is not below 5% after Holm's correction over all
  checks, or when there is no interval, as with one article.

A claim holds when all checks that count towards it do, and does not when one fails. A check that a count is 0 needs no
interval. What has to be read beside a claim is in `remarks`.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from qevict_diag.analyses import published
from qevict_diag.analyses.claims.checks import Check, Quantity, Setting, Side, checks
from qevict_diag.analyses.claims.remarks import remarks
from qevict_diag.analyses.estimates import Cells, Sample, cells, rows_of, sample, stacked
from qevict_diag.analyses.observation3 import after_exit
from qevict_diag.errors import MetricError
from qevict_diag.replay.settings import Settings
from qevict_diag.statistics import intervals
from qevict_diag.statistics.intervals import Floats, Interval
from qevict_diag.statistics.power import more_articles

HOLDS, FAILS, SAME = "holds", "does not hold", "no difference"
UNDECIDED, UNMEASURED = "undecided", "not measured"
EXACT = "exact count"
UNIT = "article"
COLUMNS: dict[str, Any] = {
    "claim": pl.String,
    "statistic": pl.String,
    "estimate": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "side": pl.String,
    "threshold": pl.Float64,
    "word": pl.String,  # the paper's, where the threshold is ours
    "margin": pl.Float64,  # ours
    "counts": pl.Boolean,
    "verdict": pl.String,
    "sign": pl.String,  # whether the estimate lies on the claimed side: +, -, or empty where it is undefined
    "p_value": pl.Float64,
    "numbers": pl.String,
    "more": pl.String,
    "method": pl.String,
    "unit": pl.String,
    "n": pl.Int64,
    "by_article": pl.List(pl.Float64),
    "layers": pl.Int64,
    "layer_sd": pl.Float64,
    "reading": pl.String,
}


@dataclass(frozen=True, eq=False)
class _Measured:
    """Measurements of one setting, the sample they are of, and the reading they were made under."""

    frame: pl.DataFrame
    over: Sample
    reading: str


def evaluate(
    diagnostic: pl.DataFrame | None, promotion: pl.DataFrame | None = None, settings: Settings | None = None
) -> pl.DataFrame:
    """Put every check to the test, one row each; ``diagnostic`` is 512+256, ``promotion`` 256+1024, either may lack.

    ``p_holm`` corrects over all checks that have a p-value; a check whose corrected p is not below 5% is undecided.
    ``remark`` is what has to be read beside the claim.
    """
    frames: dict[Setting, pl.DataFrame | None] = {"diagnostic": diagnostic, "promotion": promotion}
    measured = {setting: _measured(frame) for setting, frame in frames.items()}
    rows = [_row(check, measured[check.setting]) for check in checks(settings)]
    table = pl.DataFrame(rows, schema=COLUMNS)
    texts = pl.DataFrame(published.claims()).rename({"id": "claim"})
    table = table.with_columns(p_holm=pl.Series(intervals.holm(table["p_value"].to_numpy())))
    doubtful = pl.col("verdict").is_in((HOLDS, FAILS)) & (pl.col("p_holm").fill_nan(0) >= 1 - intervals.CONFIDENCE)
    table = table.with_columns(verdict=pl.when(doubtful).then(pl.lit(UNDECIDED)).otherwise("verdict"))
    open_ = pl.col("verdict").is_in((UNDECIDED, UNMEASURED))
    told = {} if measured["diagnostic"] is None else remarks(measured["diagnostic"].frame, settings)
    table = table.with_columns(
        more=pl.when(open_).then("more").otherwise(pl.lit("")),
        remark=pl.col("claim").replace_strict(told, default="", return_dtype=pl.String),
    )
    return table.join(texts, on="claim", how="left", maintain_order="left")


def verdict(interval: Interval, threshold: float, side: Side, margin: float = 0.0) -> str:
    """Where the interval lies: within the margin, on the claimed side, on the other, or across the threshold."""
    if side == "equal":
        return UNDECIDED if math.isnan(interval.estimate) else HOLDS if interval.estimate == threshold else FAILS
    if interval.bounded and margin and threshold - margin <= interval.low and interval.high <= threshold + margin:
        return SAME
    if not interval.bounded or interval.low <= threshold <= interval.high:
        return UNDECIDED
    return HOLDS if (interval.low > threshold) == (side == "above") else FAILS


def sign(estimate: float, threshold: float, side: Side) -> str:
    """``+`` where an estimate lies on the claimed side of its threshold, ``-`` where not, empty if it is undefined."""
    if math.isnan(estimate):
        return ""
    claimed = {"above": estimate > threshold, "below": estimate < threshold, "equal": estimate == threshold}
    return "+" if claimed[side] else "-"


def apart(values: Floats) -> list[str]:
    """Numbers with four significant digits, or as many more, seven at most, as show the gaps between them truly."""
    gaps = np.diff(np.unique(values[np.isfinite(values)]))
    for digits in range(4, 8):
        told = [f"{value:.{digits}g}" for value in values]
        off = np.nanmax(np.abs(np.array(told, dtype=np.float64) - values), initial=0)
        if not gaps.size or off <= gaps.min() / 10:
            break
    return told


def _measured(frame: pl.DataFrame | None) -> _Measured | None:
    if frame is None or frame.is_empty():
        return None
    return _Measured(frame, sample(frame), rows_of(frame, "fmm")["reading"][0])


def _row(check: Check, measured: _Measured | None) -> dict[str, Any]:
    asked = {name: getattr(check, name) for name in ("claim", "statistic", "side", "threshold", "word", "margin")}
    asked |= {"counts": check.counts, "unit": UNIT}
    try:
        if measured is None:
            raise MetricError(f"the {check.setting} setting was not measured")
        return asked | _checked(check, measured)
    except MetricError as missing:
        unknown = dict.fromkeys(("estimate", "low", "high", "p_value", "layer_sd"), math.nan)
        told = {"verdict": UNMEASURED, "sign": "", "numbers": str(missing), "more": "", "method": "none"}
        return asked | unknown | told | {"n": 0, "by_article": [], "layers": 0, "reading": ""}


def _checked(check: Check, measured: _Measured) -> dict[str, Any]:
    counted = stacked([_cells(quantity, measured) for quantity in check.quantities])
    found, exact = counted.statistic(check.combine), check.side == "equal"
    interval = found.interval()
    own = intervals.ratios(counted.numerator.sum((1, 2)), counted.denominator.sum((1, 2)))
    return {
        **{"estimate": interval.estimate, "low": interval.low, "high": interval.high},
        "verdict": verdict(interval, check.threshold, check.side, check.margin),
        "sign": sign(interval.estimate, check.threshold, check.side),
        "p_value": math.nan if exact else found.p_value(check.threshold),
        "numbers": ", ".join(f"{q.label} {told}" for q, told in zip(check.quantities, apart(own), strict=True)),
        "more": more_articles(found, check.threshold),
        "method": EXACT if exact else interval.method,
        "n": interval.n,
        "by_article": [None if math.isnan(one) else float(one) for one in found.alone],
        "layers": len(measured.over.layers),
        "layer_sd": counted.layer_sd(check.combine),
        "reading": measured.reading,
    }


def _cells(quantity: Quantity, measured: _Measured) -> Cells:
    where: dict[str, str | int] = {"policy": quantity.policy, "reading": measured.reading}
    if quantity.after_exit:
        where["reading"] = after_exit(measured.reading)
    if quantity.group is not None:
        where["group"] = quantity.group
    if quantity.lag is not None:
        where["lag"] = quantity.lag
    return cells(rows_of(measured.frame, quantity.metric, **where), measured.over, ("policy",), quantity.how)
