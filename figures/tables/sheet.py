"""What a table is, and how it is written: markdown, CSV, JSON, HTML and LaTeX from one typed frame.

The frame keeps full-precision numbers under plain names (CSV and JSON give exactly those); the columns say how people
see them, every text made `plain`. An undefined number is empty everywhere, never 0.
"""

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from qevict_diag.figures.tables.numbers import text
from qevict_diag.plain import plain


@dataclass(frozen=True)
class Column:
    """One column as people see it: the frame columns it shows, its label, and how to write them."""

    names: tuple[str, ...]
    label: str
    write: Callable[..., str]
    spanner: str = ""
    words: bool = False  # whether ``write`` gives words, not numbers; `text` does

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", plain(self.label))
        object.__setattr__(self, "spanner", plain(self.spanner))

    @property
    def numeric(self) -> bool:
        """Whether it is set flush right."""
        return not (self.words or self.write is text)


@dataclass(frozen=True, eq=False)
class Sheet:
    """A table: file name, title, typed rows, how to show them, and the notes that must travel with the numbers."""

    name: str
    title: str
    frame: pl.DataFrame
    columns: tuple[Column, ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", plain(self.title))
        object.__setattr__(self, "notes", tuple(map(plain, self.notes)))

    def cells(self) -> list[list[str]]:
        """Every row as the strings that people see."""
        return [
            [plain(column.write(*(row[name] for name in column.names))) for column in self.columns]
            for row in self.frame.iter_rows(named=True)
        ]
