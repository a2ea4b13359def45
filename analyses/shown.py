"""What is shown of a metric where there is room for one number: one of its groups, one of its lags, one average."""

import polars as pl

from qevict_diag.errors import MetricError
from qevict_diag.metrics import metric_names
from qevict_diag.metrics.metric import Metric


def measured(frame: pl.DataFrame) -> str:
    """The metric that a frame holds, the first if there are several; MetricError when it holds none."""
    known = set(frame["metric"])
    found = next((name for name in metric_names() if name in known), None)
    if found is None:
        raise MetricError("no measurement of any metric; measure one first")
    return found


def one_group(rows: pl.DataFrame, kind: Metric) -> pl.DataFrame:
    """The rows of `Metric.group`, where the metric has several groups."""
    return rows if kind.group is None else rows.filter(pl.col("group") == kind.group)


def one_lag(kind: Metric, min_inactive: int) -> int | None:
    """The lag at which a metric is shown: m of Global LIR, else `Metric.lag`; None where it has none."""
    return min_inactive if kind.name == "lir" else kind.lag


def average(kind: Metric) -> pl.Expr:
    """Mean of defined values, or ratio of sums where counts are pooled."""
    pooled = pl.col("numerator").sum() / pl.col("denominator").sum()
    return pooled if kind.how == "pooled" else pl.col("value").mean()
