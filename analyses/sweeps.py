"""A sweep as one table: every metric at every setting, with its interval, and what chance and foresight would miss."""

import polars as pl

from qevict_diag import metrics
from qevict_diag.analyses.estimates import estimates, rows_of, sample
from qevict_diag.analyses.regret import MEASURED, SCHEMA, regret
from qevict_diag.analyses.shown import one_group, one_lag
from qevict_diag.errors import InputError
from qevict_diag.metrics.metric import Metric
from qevict_diag.replay.settings import Settings

AXES = ("window", "quantized_fraction", "bits", "budget", "swept_reading")
KEYS = ("policy", *AXES)


def at_settings(frame: pl.DataFrame, metric: str = "fmm", min_inactive: int = Settings.min_inactive) -> pl.DataFrame:
    """Estimate and 95% interval of one metric for every policy at every setting; draws of a random policy are pooled.

    Columns `KEYS`, ``group`` and ``lag`` (m of a LIR) of what is shown, and those of `estimates.INTERVAL`. InputError
    for a sweep of several models, MetricError for a metric that the sweep has not measured.
    """
    one_model(frame)
    kind = metrics.metric(metric)
    rows, lag = of_sweep(rows_of(frame, metric), kind), one_lag(kind, min_inactive)
    if lag is not None:
        rows = rows.filter(pl.col("lag") == lag)
    shown = estimates(rows, sample(rows), KEYS, kind.how)
    group = pl.lit(kind.group, pl.String).alias("group")
    return shown.select(*KEYS, group, pl.lit(lag, pl.Int32).alias("lag"), pl.exclude(KEYS))


def sweep_table(
    frame: pl.DataFrame, used: pl.DataFrame, metric: str = "fmm", min_inactive: int = Settings.min_inactive
) -> pl.DataFrame:
    """`at_settings` with the share of FullKV's bytes really used and, for FMM, chance, regret to O2 and the gap closed.

    ``used`` is the sweep's byte use. Chance is in closed form where the sweep has measured it. Regret is null where
    the sweep has not replayed the optimum (`Sweep.regret`).
    """
    found = at_settings(frame, metric, min_inactive).join(bytes_used(used), on=KEYS, how="left", nulls_equal=True)
    missed = frame.filter(pl.col("metric").is_in(beside(metric))) if metric == "fmm" else frame.clear()
    return found.join(_regrets(missed), on=KEYS, how="left", nulls_equal=True).sort((*AXES, "policy"))


def beside(metric: str) -> tuple[str, ...]:
    """The metrics whose rows are shown with those of ``metric``: chance with Future Missed Mass."""
    return MEASURED if metric == "fmm" else (metric,)


def of_sweep(rows: pl.DataFrame, kind: Metric) -> pl.DataFrame:
    """Rows of the group that is shown, under the sweep's own reading."""
    return one_group(rows.filter(pl.col("reading") == pl.col("swept_reading")), kind)


def one_model(frame: pl.DataFrame) -> None:
    """Refuse a sweep over several models: their numbers are not samples of one thing (InputError)."""
    models = frame["model"].unique().sort().to_list()
    if len(models) > 1:
        raise InputError(f"a sweep of {len(models)} models ({', '.join(models)}); filter the frame to one of them")


def bytes_used(used: pl.DataFrame) -> pl.DataFrame:
    """Mean over traces of the peak share of FullKV's bytes, protected regions included: columns `KEYS`, ``bytes``."""
    return used.group_by(KEYS).agg(bytes=pl.col("share_peak").mean())


def _regrets(missed: pl.DataFrame) -> pl.DataFrame:
    """Regret of every policy at every setting, on one sample."""
    over = None if missed.is_empty() else sample(missed)
    parts = [
        regret(part, over).with_columns(pl.lit(part[name][0], part.schema[name]).alias(name) for name in AXES)
        for part in missed.partition_by(AXES, maintain_order=True)
    ]
    types = {name: missed.schema[name] for name in AXES}
    return pl.concat(parts) if parts else pl.DataFrame(schema=SCHEMA | types)
