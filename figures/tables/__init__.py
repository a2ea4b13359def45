"""Tables 14 to 18 from the measurements, with the published Llama-3.1-8B values beside ours.

Every table has the published value where the paper's text states one, the 95% interval, the byte use and the reading.
Table 17's body is lost from the paper's text; it was either the lagged transitions (17a) or the comparison of
importance estimators (17b), so there are both. Four tables are ours: the heads that miss most, missed mass by age, the
conditions at equal mean bytes, and layer-wide sets against sets of heads.

`TABLES` lists them; another package adds one by announcing a `Table` in the entry-point group `TABLE_POINTS`.
"""

from dataclasses import replace

import polars as pl

from qevict_diag import plugins
from qevict_diag.errors import InputError
from qevict_diag.figures.tables import (
    age,
    heads,
    same_bytes,
    sets,
    table14,
    table15,
    table16,
    table17a,
    table17b,
    table18,
)
from qevict_diag.figures.tables.formats import FORMATS
from qevict_diag.figures.tables.parts import PAPER
from qevict_diag.figures.tables.sheet import Sheet
from qevict_diag.figures.tables.table import Table
from qevict_diag.replay.settings import Settings

TABLE_POINTS = "qevict_diag.tables"
TABLES: dict[str, Table] = {
    made.name: made
    for made in (
        table14.TABLE,
        table15.TABLE,
        table16.TABLE,
        table17a.TABLE,
        table17b.TABLE,
        table18.TABLE,
        heads.TABLE,
        age.TABLE,
        same_bytes.TABLE,
        sets.TABLE,
    )
}


def table(name: str) -> Table:
    """The table called ``name``, built in or announced; InputError when there is none."""
    return plugins.find("table", name, TABLES, TABLE_POINTS, lambda found: isinstance(found, Table))


def table_names() -> tuple[str, ...]:
    """Every table there is."""
    return plugins.names(TABLES, TABLE_POINTS)


def build(
    name: str,
    frame: pl.DataFrame,
    used: pl.DataFrame,
    settings: Settings | None = None,
    lengths: str = "",
) -> Sheet:
    """Fill the table called ``name`` with measurements and byte use; InputError for one that does not exist.

    The ``settings`` that it was measured under, and the ``lengths`` of the traces (512+256), become a note.
    """
    settings = settings or Settings()
    sheet = table(name).fill(frame, used, settings)
    return replace(sheet, notes=(*sheet.notes, settings_note(settings, lengths)))


def settings_note(settings: Settings, lengths: str = "") -> str:
    """Say under which settings a table was measured."""
    room = settings.budget
    return (
        f"Measured{f' at {lengths} tokens' if lengths else ''} with budget {room.ratio}, {room.sinks} sinks, "
        f"{room.recent} recent tokens, quantized fraction {room.quantized_fraction}, {room.bits} bits, horizon "
        f"{settings.horizon}. The published values are from {PAPER} at the paper's settings."
    )


def names_of(number: str, form: str) -> tuple[str, ...]:
    """Tables that a number stands for: 17 is 17a and 17b; InputError where one file cannot hold both."""
    if form not in FORMATS:
        raise InputError(f"table format {form!r}: allowed are {', '.join(FORMATS)}")
    if number == "17" and form == "csv":
        raise InputError("table 17 is two tables, which one CSV cannot hold; ask for 17a or 17b")
    names = ("17a", "17b") if number == "17" else (number,)
    for name in names:
        table(name)
    return names
