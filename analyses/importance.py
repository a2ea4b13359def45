"""Which importance estimator should rank the windows: R3 under each of them.

Table 17b; paper, Appendix J names the alternatives and gives no numbers that survive. Policies are called ``R3`` (the
default, cumulative attention) and ``R3[estimator]``.
"""

import polars as pl

from qevict_diag.analyses.estimates import How, Sample, cells, estimates, rows_of, sample
from qevict_diag.policies.arms import CHANCE, RANDOM
from qevict_diag.replay.settings import Settings
from qevict_diag.statistics.intervals import minus

DEFAULT = "cumulative"
ESTIMATORS = ("decayed", "persistence", "observation", "key_norm", "value_weighted", "oracle", "irreversible")
POLICIES = ("R3", *(f"R3[{name}]" for name in ESTIMATORS))  # to be replayed; chance needs no replay
CHANCE_ARM = f"R3[{RANDOM}]"
SHOWN: tuple[tuple[str, str, How], ...] = (
    ("fmm", "fmm", "mean"),
    ("churn", "churn", "mean"),
    ("qsa", "qsa", "mean"),
    ("r_q", "mass_ratio", "pooled"),
)


def estimator_of(policy: str) -> str:
    """Name of the estimator in ``R3[name]``; the default's for plain ``R3``."""
    return policy.partition("[")[2].rstrip("]") or DEFAULT


def compare(frame: pl.DataFrame, settings: Settings | None = None, over: Sample | None = None) -> pl.DataFrame:
    """R3 under each estimator: FMM with its interval, its paired difference to the default, and the other metrics.

    Rows are sorted by FMM, the lowest first. ``random`` is chance in closed form where that was measured.
    """
    frame = with_chance(frame)
    frame = frame.filter(pl.col("policy").is_in((*POLICIES, CHANCE_ARM)))
    over = over or sample(frame)
    table = _differences(frame, over)
    for name, metric, how in SHOWN:
        table = table.join(_column(rows_of(frame, metric), over, name, how), on="policy", how="left")
    reading = rows_of(frame, "fmm")["reading"][0]
    lir = rows_of(frame, "lir", group="policy", lag=(settings or Settings()).min_inactive, reading=reading)
    table = table.join(_column(lir, over, "lir", "pooled"), on="policy", how="left")
    names = pl.Series([estimator_of(policy) for policy in table["policy"]])
    return table.with_columns(estimator=names, n=pl.lit(len(over.traces))).sort("fmm")


def with_chance(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with chance in closed form, where R3's was measured, as R3 under the estimator ``random``."""
    chance = frame.filter(pl.col("metric") == CHANCE, pl.col("policy") == "R3")
    if chance.is_empty():
        return frame
    drawn = (pl.col("policy") == CHANCE_ARM) & (pl.col("metric") != CHANCE)
    return pl.concat([frame.filter(~drawn), chance.with_columns(metric=pl.lit("fmm"), policy=pl.lit(CHANCE_ARM))])


def _column(rows: pl.DataFrame, over: Sample, name: str, how: How) -> pl.DataFrame:
    found = estimates(rows, over, ("policy",), how)
    return found.select("policy", pl.col("estimate").alias(name), *(pl.col(x).alias(f"{name}_{x}") for x in _BESIDE))


_BESIDE = ("low", "high", "layer_sd")


def _differences(frame: pl.DataFrame, over: Sample) -> pl.DataFrame:
    """FMM of each estimator less the default's, on the same articles; null where the default was not measured."""
    counted = cells(rows_of(frame, "fmm"), over, ("policy",), "mean")
    policies = counted.keys["policy"].to_list()
    if "R3" not in policies:
        return counted.keys.with_columns(difference=None, difference_low=None, difference_high=None)
    base = policies.index("R3")
    found = [counted.at([at, base]).statistic(minus).interval() for at in range(len(policies))]
    return counted.keys.with_columns(
        difference=pl.Series([x.estimate for x in found]),
        difference_low=pl.Series([x.low for x in found]),
        difference_high=pl.Series([x.high for x in found]),
    )
