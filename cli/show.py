"""Everything that a command says: lines, tables for people, JSON for programs.

All of it passes here, so that no text of a trace, a model or a file acts on the terminal, whatever its encoding, and a
full disk under standard output is one line.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from qevict_diag.errors import InputError
from qevict_diag.plain import plain

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

PIPED = 160  # characters of a line where no terminal says how wide it is
ENDLESS = 100_000  # characters


def say(line: str = "", *, err: bool = False) -> None:
    """Print one line."""
    say_text(plain(line) + "\n", err=err)


def say_text(text: str, *, err: bool = False) -> None:
    """Print text that is harmless already, line breaks and all."""
    with _printing():
        typer.echo(text, nl=False, err=err)


def say_json(content: Any) -> None:
    """Print JSON, of plain objects or as it was written, in ASCII: no letter of it can act on a terminal."""
    text = content if isinstance(content, str) else json.dumps(content, indent=1)
    say_text(re.sub(r"[^\n -~]", lambda match: json.dumps(match.group())[1:-1], text.rstrip("\n")) + "\n")


def print_frame(frame: "pl.DataFrame", *, as_json: bool, title: str = "") -> None:
    """Print a small frame: JSON for programs, a table without empty columns for people."""
    if as_json:
        say_json(frame.write_json())
        return
    shown = frame.select(name for name in frame.columns if frame[name].null_count() < len(frame))
    rows = [[_cell(value) for value in row] for row in shown.iter_rows()]
    numbers = [index for index, dtype in enumerate(shown.dtypes) if dtype.is_numeric()]
    say_table([name.replace("_", " ") for name in shown.columns], rows, title=title, numbers=numbers)


def say_table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str | Sequence[str]]],
    *,
    title: str = "",
    numbers: Sequence[int] = (),
    colors: Mapping[str, str] | None = None,
) -> None:
    """Print a table; where the terminal is too narrow for its words, each row as lines ``head: cell``.

    A cell is text, or several lines of it. ``numbers`` are the columns set flush right, ``colors`` those of cells by
    what they say.
    """
    from rich.measure import Measurement

    screen = console()
    cells = [[_lines(cell, colors or {}) for cell in row] for row in rows]
    table = _table(heads, cells, title, numbers)
    needed = Measurement.get(screen, screen.options.update(width=ENDLESS), table).minimum
    with _printing():
        screen.print(table if needed <= screen.width else _listed(heads, cells, title))


def console(*, err: bool = False) -> "Console":
    """A console for people that takes text as it is, no markup and no links; without colours where NO_COLOR is set."""
    from rich.console import Console

    made = Console(stderr=err, markup=False, emoji=False, highlight=False)
    if not made.is_terminal:
        made.width = max(made.width, PIPED)  # nobody's window to fold columns into
    return made


def _table(heads: Sequence[str], rows: Iterable[Sequence["Text"]], title: str, numbers: Sequence[int]) -> "Table":
    from rich.table import Table

    table = Table(title=_text(title) if title else None, title_justify="left", box=None, show_header=any(heads))
    for index, head in enumerate(heads):
        table.add_column(_text(head), justify="right" if index in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _listed(heads: Sequence[str], rows: Iterable[Sequence["Text"]], title: str) -> "Text":
    """The rows of a table below each other, without their empty cells."""
    from rich.text import Text

    lines = [_text(title), _text("")] if title else []
    for row in rows:
        named = zip(heads, row, strict=True)
        lines += [_text(f"{head}: " if head else "") + cell for head, cell in named if cell] + [_text("")]
    return Text("\n").join(lines)


def _lines(cell: str | Sequence[str], colors: Mapping[str, str]) -> "Text":
    from rich.text import Text

    lines = [cell] if isinstance(cell, str) else cell
    return Text("\n").join(_text(line, colors.get(line, "")) for line in lines)


def _text(text: str, style: str = "") -> "Text":
    from rich.text import Text

    return Text(plain(text), style=style)


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


@contextmanager
def _printing() -> Iterator[None]:
    """InputError when what is printed cannot be written; a reader who has gone away is told nothing."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(
            f"cannot write to standard output ({error.strerror}); make room, or send it to another place"
        ) from error
