"""Where in a model a number comes from: layer by layer, and the heads that miss most.

Layers and heads are not a sample. Their spread is a result: a mean over them can hide a few retrieval heads whose
attention is nearly all lost.
"""

from typing import Any

import polars as pl

from qevict_diag.analyses.estimates import How, cells, estimates, rows_of, sample
from qevict_diag.statistics.intervals import ratios

QUANTILES = (0.5, 0.9, 0.99)


def by_layer(frame: pl.DataFrame, metric: str = "fmm", how: How = "mean") -> pl.DataFrame:
    """A metric of each layer: policy, layer, ``estimate`` over all articles, and ``by_article``, a list of their own.

    Undefined numbers are null.
    """
    over = sample(rows_of(frame, metric))
    counted = cells(rows_of(frame, metric), over, ("policy",), how)
    pooled = ratios(counted.numerator.sum(axis=1), counted.denominator.sum(axis=1))  # [policy, layer]
    own = ratios(counted.numerator, counted.denominator)  # [policy, article, layer]
    rows = [
        {"policy": policy, "layer": layer, "estimate": pooled[at, place], "by_article": own[at, :, place]}
        for at, (policy,) in enumerate(counted.keys.rows())
        for place, layer in enumerate(over.layers)
    ]
    schema: dict[str, Any] = {
        "policy": pl.String,
        "layer": pl.Int32,
        "estimate": pl.Float64,
        "by_article": pl.List(pl.Float64),
    }
    table = pl.DataFrame(rows, schema=schema)
    return table.with_columns(
        pl.col("estimate").fill_nan(None), pl.col("by_article").list.eval(pl.element().fill_nan(None))
    )


def worst_heads(frame: pl.DataFrame) -> pl.DataFrame:
    """Future Missed Mass over heads, for each policy: how much the worst of them miss.

    ``mean`` with its interval; quantiles of the heads' means over events and articles (``head_50`` and so on) and the
    largest, with its ``layer``, ``head`` and range over articles; and the quantiles of single head events
    (``event_50`` and so on), which means cannot show.
    """
    rows = rows_of(frame, "fmm").filter(pl.col("value").is_not_nan())
    over = sample(rows)
    mean = estimates(rows, over, ("policy", "reading"), "mean")
    heads = rows.group_by("policy", "layer", "head").agg(missed=pl.col("value").mean())
    worst = heads.sort("missed", "layer", "head", descending=[True, False, False]).group_by("policy").first()
    return (
        mean.select("policy", "reading", "n", "layers", "layer_sd", "low", "high", mean="estimate")
        .join(_quantiles(heads, "missed", "head"), on="policy")
        .join(worst.rename({"missed": "worst"}), on="policy")
        .join(_range(rows, worst), on="policy")
        .join(_quantiles(rows, "value", "event"), on="policy")
        .sort("policy")
    )


def _quantiles(rows: pl.DataFrame, column: str, name: str) -> pl.DataFrame:
    named = {f"{name}_{q * 100:g}": pl.col(column).quantile(q, interpolation="linear") for q in QUANTILES}
    return rows.group_by("policy").agg(**named)


def _range(rows: pl.DataFrame, worst: pl.DataFrame) -> pl.DataFrame:
    """The smallest and largest mean over articles of each policy's worst head."""
    own = rows.join(worst.select("policy", "layer", "head"), on=["policy", "layer", "head"])
    means = own.group_by("policy", "trace").agg(missed=pl.col("value").mean())
    return means.group_by("policy").agg(worst_low=pl.col("missed").min(), worst_high=pl.col("missed").max())
