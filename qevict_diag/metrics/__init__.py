"""The metrics of definitions.md, section 7, as pure functions on tensors; `METRICS` lists them."""

from collections.abc import Callable, Iterator

import polars as pl

from qevict_diag.errors import InputError
from qevict_diag.metrics.agreement import mass_ratio_rows, qsa_rows
from qevict_diag.metrics.churn import churn_rows
from qevict_diag.metrics.fmm import fmm_rows
from qevict_diag.metrics.lir import lir_rows
from qevict_diag.metrics.mass_share import mass_share_rows
from qevict_diag.metrics.metric import Metric
from qevict_diag.metrics.transitions import promotion_rows, transition_rows
from qevict_diag.replay.result import Replay

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            "fmm", "Future Missed Mass: future FullKV attention on positions already inaccessible", "share", "lower"
        ),
        Metric("churn", "Selection Churn: Jaccard distance of consecutive retained sets", "share", "lower"),
        Metric("mass_share", "cumulative FullKV attention mass by tier", "share", "lower evicted"),
        Metric("qsa", "Quantized-Score Agreement: cosine of INT2 and FullKV window scores", "cosine", "higher"),
        Metric("mass_ratio", "R_Q: attention mass of the quantized tier over its FullKV mass", "ratio", "near 1"),
        Metric("lir", "Global LIR: share of inactive episodes that return to the full tier", "share", "descriptive"),
        Metric("transitions", "lagged transition rates out of and into the full tier", "share", "descriptive"),
        Metric("promotions", "windows moved from the quantized to the full tier", "windows", "descriptive"),
    )
}


def known_metric(name: str) -> str:
    """``name`` itself if it is a metric's; InputError otherwise."""
    if name not in METRICS:
        raise InputError(f"metric {name!r}: there are {', '.join(METRICS)}")
    return name


ROWS: dict[str, Callable[[Replay, int], Iterator[pl.DataFrame]]] = {
    "fmm": fmm_rows,
    "churn": churn_rows,
    "mass_share": mass_share_rows,
    "qsa": qsa_rows,
    "mass_ratio": mass_ratio_rows,
    "lir": lir_rows,
    "transitions": transition_rows,
    "promotions": promotion_rows,
}
