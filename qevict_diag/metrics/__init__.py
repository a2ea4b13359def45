"""The metrics of definitions.md, section 7, as pure functions on tensors; `METRICS` lists them."""

from dataclasses import dataclass

from qevict_diag.errors import InputError


@dataclass(frozen=True)
class Metric:
    """A metric's name, what it measures, its unit and which direction is better for a policy."""

    name: str
    summary: str
    unit: str
    better: str


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
