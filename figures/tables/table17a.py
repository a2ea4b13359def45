"""Table 17a: lagged transitions, the first of two things that the lost Table 17 may have shown."""

import polars as pl

from qevict_diag.analyses import needs, observation3
from qevict_diag.figures.tables.numbers import limits, number, percent, text
from qevict_diag.figures.tables.parts import BYTE_COLUMNS, PAPER, READING, sample_notes, with_bytes
from qevict_diag.figures.tables.sheet import Column, Sheet
from qevict_diag.figures.tables.table import Table
from qevict_diag.replay.settings import Settings


def table17a(frame: pl.DataFrame, used: pl.DataFrame, settings: Settings) -> Sheet:
    """Lagged transitions of R3's full-precision tier (Table 17, first possibility)."""
    rows = observation3.transitions(frame).filter(pl.col("policy").is_in(needs.TRANSITIONS.policies))
    into, out = "P01, entering F, %", "P10, leaving F, %"
    columns = (
        Column(("policy",), "policy", text),
        Column(("lag",), "Δ, events", number(0)),
        *(column for side, spanner in (("p01", into), ("p10", out)) for column in _transition_columns(side, spanner)),
        Column(("ratio",), "P10 / P01", number(1)),
        Column(("capacity_ratio",), "by capacity alone", number(1)),
        *BYTE_COLUMNS,
        READING,
    )
    notes = (
        "By capacity alone: pairs that start outside F over pairs that start in F, which is what the ratio would be "
        "for any selection of this size in equilibrium. A ratio near it is arithmetic, not dynamics.",
        *sample_notes(rows.with_columns(n=pl.lit(frame["trace"].n_unique()), layers=pl.lit(frame["layer"].n_unique()))),
    )
    return Sheet(
        "table17a", "Table 17a. Lagged transitions of the full-precision tier", with_bytes(rows, used), columns, notes
    )


def _transition_columns(side: str, spanner: str) -> tuple[Column, ...]:
    return (
        Column((side,), "rate", percent(2), spanner),
        Column((f"{side}_low", f"{side}_high"), "95% interval", limits(percent(2)), spanner),
        Column((f"{side}_moved", f"{side}_pairs"), "moved / pairs", _fraction, spanner),
        Column((f"published_{side}",), PAPER, percent(2), spanner),
    )


def _fraction(moved: float | None, pairs: float | None) -> str:
    return f"{number(0)(moved)} / {number(0)(pairs)}"


TABLE = Table("17a", "lagged transitions of the full-precision tier", needs.TRANSITIONS, table17a)
