"""Printing frames: a table for people, JSON for programs, files in any of the tidy formats."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    import polars as pl

PIPED = 160  # characters of a line where no terminal says how wide it is
WRITERS = {
    ".parquet": lambda frame, path: frame.write_parquet(path),
    ".csv": lambda frame, path: frame.write_csv(path),
    ".json": lambda frame, path: frame.write_json(path),
}


def write_frame(frame: "pl.DataFrame", out: Path) -> None:
    """Write a tidy frame by the suffix of ``out``, whole or not at all."""
    from polars.exceptions import ComputeError

    from qevict_diag import files
    from qevict_diag.errors import InputError

    with files.replacing(check_suffix(out)) as temporary:
        try:
            WRITERS[out.suffix](frame, temporary)
        except ComputeError as error:  # what polars makes of a full disk
            raise InputError(f"cannot write {out} ({str(error)[:80]}); make room, or give another place") from error


def check_suffix(out: Path) -> Path:
    """``out`` itself if a frame can be written there, in its format; InputError otherwise, before any work is done."""
    from qevict_diag.errors import InputError
    from qevict_diag.files import check_target

    if out.suffix not in WRITERS:
        raise InputError(f"--out {out}: the name must end in one of {', '.join(WRITERS)}")
    return check_target(out)


def print_frame(frame: "pl.DataFrame", *, as_json: bool, title: str = "") -> None:
    """Print a small frame: JSON for programs, a table without empty columns for people."""
    if as_json:
        typer.echo(frame.write_json())
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    shown = frame.select(name for name in frame.columns if frame[name].null_count() < len(frame))
    table = Table(title=title or None, title_justify="left", box=None)
    for name, dtype in shown.schema.items():
        table.add_column(name.replace("_", " "), justify="right" if dtype.is_numeric() else "left", overflow="fold")
    for row in shown.iter_rows():
        table.add_row(*(escape(_cell(value)) for value in row))
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, PIPED)  # nobody's window to fold columns into
    console.print(table)


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
