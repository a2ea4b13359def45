"""One row per policy and metric: what `analyze` prints."""

import polars as pl

from qevict_diag.analyses.estimates import How, estimates, grid
from qevict_diag.analyses.regret import SCHEMA, regret
from qevict_diag.replay.settings import Settings

HOW: dict[str, How] = {
    "fmm": "mean",
    "churn": "mean",
    "mass_share": "mean",
    "qsa": "mean",
    "mass_ratio": "pooled",
    "lir": "pooled",
    "transitions": "pooled",
    "promotions": "mean",
}
KEYS = ("metric", "policy", "budget", "reading", "group", "lag")


def summarize(frame: pl.DataFrame, settings: Settings | None = None) -> pl.DataFrame:
    """Estimate and 95% interval of every metric, policy, group and lag in a `measurements` frame.

    Means over events, heads, layers and traces, or ratios of sums where counts are pooled (column ``how``); Global LIR
    is shown for the settings' m alone. One article gives no interval. Rows of Future Missed Mass also have the regret
    to the optimum and the share of the gap that the policy closes, where random arm and optimum were measured.
    """
    lag = (settings or Settings()).min_inactive
    shown = frame.filter(pl.col("metric").is_in(list(HOW)), (pl.col("metric") != "lir") | (pl.col("lag") == lag))
    over = grid(shown)
    parts = []
    for metric, how in HOW.items():
        rows = shown.filter(pl.col("metric") == metric)
        if not rows.is_empty():
            parts.append(estimates(rows, over, KEYS, how).with_columns(how=pl.lit(how)))
    table = pl.concat(parts)
    missed = shown.filter(pl.col("metric") == "fmm")
    bounded = pl.DataFrame(schema=SCHEMA) if missed.is_empty() else regret(missed, over)
    joined = table.join(bounded.with_columns(metric=pl.lit("fmm")), on=("metric", "policy"), how="left")
    return joined.select(*KEYS, "how", "estimate", "low", "high", "regret", "closed", "count", "undefined", "method")


def readable(summary: pl.DataFrame) -> pl.DataFrame:
    """The same for people: the interval in one column, and only what tells rows apart."""
    changed = [name for name in KEYS if name in ("metric", "policy") or summary[name].n_unique() > 1]
    numbers = ("estimate", interval_in_words(), "regret", "closed", "how", pl.col("count").alias("rows"), "undefined")
    shown = summary.with_columns(pl.col("reading").replace("", None))
    return shown.select(*changed, *numbers)


def interval_in_words() -> pl.Expr:
    """``low`` and ``high`` as one column for people; why there is no interval where there is none."""
    bounds = pl.format("{}–{}", *(pl.col(name).round_sig_figs(4) for name in ("low", "high")))
    return pl.when(pl.col("low").is_nan()).then(pl.col("method")).otherwise(bounds).alias("95% interval")
