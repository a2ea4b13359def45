"""Table 17b: importance estimators, the second of two things that the lost Table 17 may have shown."""

import polars as pl

from qevict_diag.analyses import importance, needs, regret
from qevict_diag.figures.tables.numbers import limits, number, percent, text
from qevict_diag.figures.tables.parts import (
    AGAINST_O2,
    BYTE_COLUMNS,
    LAYER_SD,
    READING,
    o2_note,
    sample_notes,
    with_bytes,
)
from qevict_diag.figures.tables.sheet import Column, Sheet
from qevict_diag.figures.tables.table import Table
from qevict_diag.replay.settings import Settings


def table17b(frame: pl.DataFrame, used: pl.DataFrame, settings: Settings) -> Sheet:
    """R3 under each importance estimator (Table 17, second possibility)."""
    frame = importance.with_chance(frame)
    rows = importance.compare(frame, settings)
    rows = rows.join(regret.regret(frame), on="policy", how="left", maintain_order="left")
    reading = frame.filter(pl.col("metric") == "fmm")["reading"][0]
    rows = rows.with_columns(reading=pl.lit(reading), layers=pl.lit(frame["layer"].n_unique()))
    columns = (
        Column(("estimator",), "estimator", text),
        Column(("fmm",), "mean, %", percent(), "FMM"),
        Column(("fmm_low", "fmm_high"), "95% interval", limits(percent()), "FMM"),
        Column(("fmm_layer_sd",), LAYER_SD, percent(), "FMM"),
        Column(("difference",), "less cumulative's, points", percent(2), "FMM"),
        Column(("difference_low", "difference_high"), "95% interval, paired", limits(percent(2)), "FMM"),
        *AGAINST_O2,
        Column(("churn",), "churn", number(4)),
        Column(("qsa",), "QSA", number(4)),
        Column(("r_q",), "R_Q", number(3)),
        Column(("lir",), "LIR, %", percent(2)),
        *BYTE_COLUMNS,
        READING,
    )
    notes = (
        "The paper's text states no number for any estimator (Appendix J). The oracle ranks by the attention of the "
        "coming horizon, which no cache knows; it is greedy; irreversible is O2, the best there could be; random is "
        "chance.",
        o2_note(frame),
        *sample_notes(rows),
    )
    return Sheet("table17b", "Table 17b. R3 under each importance estimator", with_bytes(rows, used), columns, notes)


TABLE = Table("17b", "R3 under each importance estimator", needs.RANKINGS, table17b)
