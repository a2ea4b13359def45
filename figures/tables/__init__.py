"""Tables 14 to 18 from the measurements, with the published Llama-3.1-8B values beside ours.

Every table has the published value where the paper's text states one, the 95% interval, the byte use and the reading.
Table 17's body is lost from the paper's text; it was either the lagged transitions (17a) or the comparison of
importance estimators (17b), so there are both. One table is ours: the heads that miss most.
"""

from collections.abc import Callable
from dataclasses import replace

import polars as pl

from qevict_diag.errors import InputError
from qevict_diag.figures.tables import heads, table14, table15, table16, table17a, table17b, table18
from qevict_diag.figures.tables.formats import FORMATS
from qevict_diag.figures.tables.parts import PAPER
from qevict_diag.figures.tables.table import Table
from qevict_diag.replay.settings import Settings

Build = Callable[[pl.DataFrame, pl.DataFrame, Settings], Table]

TABLES: dict[str, Build] = {  # what each needs measured: `NEEDS`
    "14": table14.table14,
    "15": table15.table15,
    "16": table16.table16,
    "17a": table17a.table17a,
    "17b": table17b.table17b,
    "18": table18.table18,
    "heads": heads.heads,
}


def build(
    name: str,
    frame: pl.DataFrame,
    used: pl.DataFrame,
    settings: Settings | None = None,
    lengths: str = "",
) -> Table:
    """Build the table called ``name``; InputError for one that does not exist.

    The ``settings`` that it was measured under, and the ``lengths`` of the traces (512+256), become a note.
    """
    settings = settings or Settings()
    table = builder(name)(frame, used, settings)
    return replace(table, notes=(*table.notes, settings_note(settings, lengths)))


def settings_note(settings: Settings, lengths: str = "") -> str:
    """Say under which settings a table was measured."""
    room = settings.budget
    return (
        f"Measured{f' at {lengths} tokens' if lengths else ''} with budget {room.ratio}, {room.sinks} sinks, "
        f"{room.recent} recent tokens, quantized fraction {room.quantized_fraction}, {room.bits} bits, horizon "
        f"{settings.horizon}. The published values are from {PAPER} at the paper's settings."
    )


def builder(name: str) -> Build:
    """Look a table up; InputError for one that does not exist."""
    if name not in TABLES:
        raise InputError(f"table {name!r}: there are {', '.join(TABLES)}")
    return TABLES[name]


def names_of(number: str, form: str) -> tuple[str, ...]:
    """Tables that a number stands for: 17 is 17a and 17b; InputError where one file cannot hold both."""
    if form not in FORMATS:
        raise InputError(f"table format {form!r}: allowed are {', '.join(FORMATS)}")
    if number == "17" and form == "csv":
        raise InputError("table 17 is two tables, which one CSV cannot hold; ask for 17a or 17b")
    names = ("17a", "17b") if number == "17" else (number,)
    for name in names:
        builder(name)
    return names
