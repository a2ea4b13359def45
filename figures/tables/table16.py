"""Table 16: Global LIR of full-precision selections."""

import polars as pl

from qevict_diag.analyses import needs, observation3
from qevict_diag.figures.tables.numbers import limits, number, percent, text
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

RETURN = "Median time to return, rescued episodes only"


def table16(frame: pl.DataFrame, used: pl.DataFrame, settings: Settings) -> Sheet:
    """Global LIR of the oracle's and the policy's selections (Table 16)."""
    rates = observation3.lir(frame)
    rows = rates.filter(pl.col("policy").is_in(needs.THREE_TIERS), pl.col("lag") == settings.min_inactive)
    columns = (
        Column(("policy",), "policy", text),
        Column(("group",), "selection", text),
        Column(("estimate",), "LIR, %", percent(2), "Rescued / eligible episodes"),
        Column(("low", "high"), "95% interval over articles", limits(percent(2)), "Rescued / eligible episodes"),
        Column(("wilson_low", "wilson_high"), "Wilson", limits(percent(2)), "Rescued / eligible episodes"),
        Column(("layer_sd",), LAYER_SD, percent(2), "Rescued / eligible episodes"),
        Column(("rescued",), "rescued", number(0), "Rescued / eligible episodes"),
        Column(("first_entries",), "of them never selected before", number(0), "Rescued / eligible episodes"),
        Column(("eligible",), "eligible", number(0), "Rescued / eligible episodes"),
        Column(("published",), PAPER, percent(2), "Rescued / eligible episodes"),
        Column(("median_return",), "events", number(1), RETURN),
        Column(("return_low", "return_high"), "95% interval", limits(number(1)), RETURN),
        Column(("published_return",), PAPER, number(0), RETURN),
        *BYTE_COLUMNS,
        READING,
    )
    notes = (
        f"m = {settings.min_inactive} inactive events. Literal episodes include windows that were never selected "
        "before, whose return is a first entry; after_exit counts only runs that began by leaving. Wilson's interval "
        "takes episodes as independent, which they are not. Episodes open at the end of the trace stay in the "
        "denominator.",
        *sample_notes(rows),
    )
    rows = ordered(rows, needs.THREE_TIERS, "reading", "group")
    return Sheet("table16", "Table 16. Global LIR of full-precision selections", with_bytes(rows, used), columns, notes)


TABLE = Table("16", "Global LIR of full-precision selections, and the time to return", needs.RETURNS, table16)
