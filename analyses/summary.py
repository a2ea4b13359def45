"""One row per policy and metric: what `analyze` prints."""

import polars as pl

from qevict_diag.analyses.estimates import estimates, sample
from qevict_diag.analyses.regret import MEASURED, SCHEMA, regret
from qevict_diag.metrics import metric, metric_names
from qevict_diag.replay.settings import Settings

KEYS = ("metric", "policy", "budget", "reading", "group", "lag")
AGAINST = ("chance", "regret", "closed", "closed_low", "closed_high")


def summarize(frame: pl.DataFrame, settings: Settings | None = None) -> pl.DataFrame:
    """Estimate and 95% interval of every metric, policy, group and lag in a `measurements` frame.

    Means over events, heads, layers and traces, or ratios of sums where counts are pooled (column ``how``); Global LIR
    is shown for the settings' m alone. One article gives no interval; ``layer_sd`` is the spread over layers.
    Rows of Future Missed Mass also say what chance would miss, the regret to the optimum and the share of the gap
    between the two that the policy closes, with its interval, where these were measured.
    """
    lag = (settings or Settings()).min_inactive
    names = [name for name in metric_names() if name in set(frame["metric"])]
    shown = frame.filter(pl.col("metric").is_in(names), (pl.col("metric") != "lir") | (pl.col("lag") == lag))
    over = sample(shown)
    parts = []
    for name in names:
        how = metric(name).how
        rows = estimates(shown.filter(pl.col("metric") == name), over, KEYS, how)
        parts.append(rows.with_columns(how=pl.lit(how)))
    table = pl.concat(parts)
    missed = frame.filter(pl.col("metric").is_in(MEASURED))
    bounded = regret(missed, over) if "fmm" in missed["metric"] else pl.DataFrame(schema=SCHEMA)
    joined = table.join(bounded.with_columns(metric=pl.lit("fmm")), on=("metric", "policy"), how="left")
    return joined.select(*KEYS, "how", "estimate", "low", "high", "layer_sd", *AGAINST, "count", "undefined", "method")


def readable(summary: pl.DataFrame) -> pl.DataFrame:
    """The same for people: intervals in one column, and only what tells rows apart."""
    changed = [name for name in KEYS if name in ("metric", "policy") or summary[name].n_unique() > 1]
    against = ("chance", "regret", "closed", _limits("closed_low", "closed_high").alias("closed, 95% interval"))
    counts = ("how", pl.col("count").alias("rows"), "undefined")
    shown = summary.with_columns(pl.col("reading").replace("", None))
    return shown.select(*changed, "estimate", interval_in_words(), "layer_sd", *against, *counts)


def interval_in_words() -> pl.Expr:
    """``low`` and ``high`` as one column for people; why there is no interval where there is none."""
    limits = _limits("low", "high")
    return pl.when(limits.is_null()).then(pl.col("method")).otherwise(limits).alias("95% interval")


def _limits(low: str, high: str) -> pl.Expr:
    """Two columns as one in words; null where there are no limits."""
    return pl.format("{} to {}", *(pl.col(name).fill_nan(None).round_sig_figs(4) for name in (low, high)))
