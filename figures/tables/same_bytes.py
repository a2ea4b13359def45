"""The conditions again, at equal mean bytes instead of equal budgets."""

import polars as pl

from qevict_diag.analyses import needs, variants
from qevict_diag.figures.tables.numbers import limits, number, percent, text
from qevict_diag.figures.tables.parts import BYTE_COLUMNS, LAYER_SD, READING, ordered, sample_notes, with_bytes
from qevict_diag.figures.tables.sheet import Column, Sheet
from qevict_diag.figures.tables.table import Table
from qevict_diag.replay.settings import Settings

FIRST = needs.CONDITIONS[0]


def same_bytes(frame: pl.DataFrame, used: pl.DataFrame, settings: Settings) -> Sheet:
    """Future Missed Mass where every cache holds as many bytes, in the mean over queries, as R1's."""
    rows = variants.against(frame, dict.fromkeys(needs.CONDITIONS, FIRST), ("budget", "window"))
    columns = (
        Column(("policy",), "policy", text),
        Column(("window",), "Ω", number(0)),
        Column(("budget",), "budget", text),
        Column(("estimate",), "mean, %", percent(), "FMM"),
        Column(("low", "high"), "95% interval", limits(percent()), "FMM"),
        Column(("layer_sd",), LAYER_SD, percent(), "FMM"),
        Column(("difference",), f"less {FIRST}'s, points", percent(), "FMM"),
        Column(("difference_low", "difference_high"), "95% interval", limits(percent()), "FMM"),
        *BYTE_COLUMNS,
        READING,
    )
    notes = (
        f"Each policy has the largest budget at which its cache holds no more bytes, in the mean over queries, than "
        f"{FIRST}'s does at a budget of {settings.budget.ratio}: sinks and every local token count, the ledger does "
        "not. Whole windows leave some bytes unused.",
        *sample_notes(rows),
    )
    title = "Future Missed Mass at equal mean bytes"
    return Sheet("same-bytes", title, with_bytes(ordered(rows, needs.CONDITIONS), used), columns, notes)


TABLE = Table("same-bytes", "the conditions at equal mean bytes instead of budgets", needs.SAME_BYTES, same_bytes)
