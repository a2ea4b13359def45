"""Observation II: binary eviction discards a useful middle region, and INT2 scores agree with FullKV scores.

Figure 1(b) and Table 15; paper, section 3 and Appendix I.3.
"""

import polars as pl

from qevict_diag.analyses import published
from qevict_diag.analyses.estimates import How, Sample, estimates, rows_of, sample

GROUPS = ("full", "quantized", "evicted", "local")
KEYS = ("policy", "reading", "budget")
LOGITS = ("logit_bias", "logit_variance")  # what R_Q follows from


def mass_shares(frame: pl.DataFrame, over: Sample | None = None) -> pl.DataFrame:
    """Tier-mass shares of each policy, mean over events, layers and traces: policy, group and the interval's.

    The four shares of a policy add up to 1. ``published`` has the paper's for R2 and R3.
    """
    over = over or sample(frame)
    shares = estimates(rows_of(frame, "mass_share"), over, ("policy", "reading", "budget", "group"), "mean")
    order = pl.col("group").replace_strict({group: index for index, group in enumerate(GROUPS)}, return_dtype=pl.Int64)
    return published.attach(
        shares.sort("policy", "reading", "budget", order),
        "published",
        ["policy", "group"],
        lambda policy, group: published.value("mass_share", policy, group),
    )


def agreement(frame: pl.DataFrame, over: Sample | None = None) -> pl.DataFrame:
    """QSA and mass ratio R_Q over the quantized tier, Table 15: one row per policy and statistic.

    Statistics: ``qsa`` (mean over events, heads, layers), ``qsa pooled`` (Σ dot products / Σ products of norms),
    ``mass_ratio`` (ratio of sums) and ``mass_ratio mean`` (mean of ratios), and where they were measured ``logit_bias``
    and ``logit_variance``. Events with fewer than two quantized windows or no mass are undefined and only counted.
    """
    over = over or sample(frame)
    parts = [
        _statistic(frame, over, "qsa", "mean", "qsa"),
        _statistic(frame, over, "qsa", "pooled", "qsa pooled"),
        _statistic(frame, over, "mass_ratio", "pooled", "mass_ratio"),
        _statistic(frame, over, "mass_ratio", "mean", "mass_ratio mean"),
        *(_statistic(frame, over, name, "pooled", name) for name in LOGITS if name in frame["metric"]),
    ]
    return published.attach(pl.concat(parts), "published", ["statistic", "policy"], published.value)


def _statistic(frame: pl.DataFrame, over: Sample, metric: str, how: How, name: str) -> pl.DataFrame:
    rows = estimates(rows_of(frame, metric), over, KEYS, how)
    return rows.filter(pl.col("count") > 0).with_columns(statistic=pl.lit(name))
