"""Which importance estimator should rank the windows: R3 under each of them.

Table 17b; paper, Appendix J names the alternatives and gives no numbers that survive. Policies are called ``R3`` (the
default, cumulative attention) and ``R3[estimator]``.
"""

import polars as pl

from qevict_diag.analyses.estimates import Grid, How, cells, estimates, grid, pooled_ratios, rows_of
from qevict_diag.replay.settings import Settings
from qevict_diag.statistics.intervals import articles_of, interval_of

DEFAULT = "cumulative"
ESTIMATORS = ("decayed", "persistence", "observation", "key_norm", "value_weighted", "random", "oracle", "irreversible")
POLICIES = ("R3", *(f"R3[{name}]" for name in ESTIMATORS))
SHOWN: tuple[tuple[str, str, How], ...] = (
    ("fmm", "fmm", "mean"),
    ("churn", "churn", "mean"),
    ("qsa", "qsa", "mean"),
    ("r_q", "mass_ratio", "pooled"),
)


def estimator_of(policy: str) -> str:
    """Name of the estimator in ``R3[name]``; the default's for plain ``R3``."""
    return policy.partition("[")[2].rstrip("]") or DEFAULT


def compare(frame: pl.DataFrame, settings: Settings | None = None, over: Grid | None = None) -> pl.DataFrame:
    """R3 under each estimator: FMM with its interval, its paired difference to the default, and the other metrics.

    Rows are sorted by FMM, the lowest first.
    """
    frame = frame.filter(pl.col("policy").is_in(POLICIES))
    over = over or grid(frame)
    table = _differences(frame, over)
    for name, metric, how in SHOWN:
        table = table.join(_column(rows_of(frame, metric), over, name, how), on="policy", how="left")
    reading = rows_of(frame, "fmm")["reading"][0]
    lir = rows_of(frame, "lir", group="policy", lag=(settings or Settings()).min_inactive, reading=reading)
    table = table.join(_column(lir, over, "lir", "pooled"), on="policy", how="left")
    names = pl.Series([estimator_of(policy) for policy in table["policy"]])
    return table.with_columns(estimator=names, n=pl.lit(len(over.traces))).sort("fmm")


def _column(rows: pl.DataFrame, over: Grid, name: str, how: How) -> pl.DataFrame:
    found = estimates(rows, over, ("policy",), how)
    return found.select("policy", pl.col("estimate").alias(name), *(pl.col(x).alias(f"{name}_{x}") for x in _LIMITS))


_LIMITS = ("low", "high")


def _differences(frame: pl.DataFrame, over: Grid) -> pl.DataFrame:
    """FMM of each estimator less the default's, on the same cells; null where the default was not measured."""
    counted = cells(rows_of(frame, "fmm"), over, ("policy",), "mean")
    policies = counted.keys["policy"].to_list()
    ratios, draws, _ = pooled_ratios(counted, over)
    if "R3" not in policies:
        return counted.keys.with_columns(difference=None, difference_low=None, difference_high=None)
    base = policies.index("R3")
    found = [
        interval_of(
            *(ratios[at] - ratios[base], draws[:, at] - draws[:, base]), articles_of(counted.denominator[[at, base]])
        )
        for at in range(len(policies))
    ]
    return counted.keys.with_columns(
        difference=pl.Series([x.estimate for x in found]),
        difference_low=pl.Series([x.low for x in found]),
        difference_high=pl.Series([x.high for x in found]),
    )
