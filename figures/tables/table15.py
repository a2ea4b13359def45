"""Table 15: agreement between INT2 and FullKV scores."""

import polars as pl

from qevict_diag.analyses import needs, observation2
from qevict_diag.figures.tables.numbers import limits, number, text
from qevict_diag.figures.tables.parts import (
    BYTE_COLUMNS,
    LAYER_SD,
    PAPER,
    READING,
    ordered,
    sample_notes,
    with_bytes,
)
from qevict_diag.figures.tables.sheet import Column, Sheet
from qevict_diag.figures.tables.table import Table
from qevict_diag.replay.settings import Settings

AGREEMENT_NAMES = {
    "qsa": "QSA, mean over events",
    "qsa pooled": "QSA, Σ dot products / Σ norms",
    "mass_ratio": "R_Q, ratio of sums",
    "mass_ratio mean": "R_Q, mean of ratios",
    "logit_bias": "error of a logit, mean",
    "logit_variance": "error of a logit, variance s²",
}


def table15(frame: pl.DataFrame, used: pl.DataFrame, settings: Settings) -> Sheet:
    """Agreement between INT2 and FullKV scores over the quantized windows (Table 15)."""
    rows = observation2.agreement(frame).filter(pl.col("policy").is_in(needs.THREE_TIERS))
    rows = rows.with_columns(shown=pl.col("statistic").replace_strict(AGREEMENT_NAMES))
    columns = (
        Column(("policy",), "policy", text),
        Column(("shown",), "statistic", text),
        Column(("estimate",), "value", number(4)),
        Column(("low", "high"), "95% interval", limits(number(4))),
        Column(("layer_sd",), LAYER_SD, number(4)),
        Column(("published",), PAPER, number(4)),
        Column(("count",), "head events", number(0)),
        Column(("undefined",), "undefined", number(0)),
        *BYTE_COLUMNS,
        READING,
    )
    notes = (
        "Undefined: no mass on quantized windows or, for QSA, fewer than two of them; not in the mean. R_Q above 1 "
        "is arithmetic: an unbiased quantizer whose logit errors have variance s² has R_Q = exp(s²/2), because the "
        "exponential inflates the mean. The paper calls R_Q lower than 1 and states no number here.",
        *sample_notes(rows),
    )
    title = "Table 15. Agreement between INT2 and FullKV scores over quantized windows"
    return Sheet("table15", title, with_bytes(ordered(rows, needs.THREE_TIERS), used), columns, notes)


TABLE = Table("15", "agreement between INT2 and FullKV scores (QSA, R_Q)", needs.AGREEMENT, table15)
