"""A table as Markdown, CSV, HTML, LaTeX or JSON."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from qevict_diag.errors import InputError
from qevict_diag.figures.tables.sheet import Sheet
from qevict_diag.frame_files import csv_text

FORMATS = ("md", "csv", "html", "latex", "json")


SUFFIXES = {"md": "md", "csv": "csv", "html": "html", "latex": "tex", "json": "json"}


LATEX_SYMBOLS = {
    "Ω": r"$\Omega$",
    "Δ": r"$\Delta$",
    "Σ": r"$\Sigma$",
    "→": r"$\rightarrow$",
    "×": r"$\times$",
    "−": "$-$",
    "≈": r"$\approx$",
    "≤": r"$\leq$",
    "–": "--",
    "\u00a0": "~",
}


def form_of(form: str | None, out: Path | None) -> str:
    """The format that was asked for, else the one that the ending of ``out`` says, else markdown.

    InputError when the two disagree.
    """
    by_ending = None if out is None else {f".{suffix}": name for name, suffix in SUFFIXES.items()}.get(out.suffix)
    if form is None:
        return by_ending or "md"
    if by_ending not in (None, form):
        raise InputError(f"--out {out} ends as {by_ending} does, --format is {form}; give one of them")
    return form


def render(table: Sheet, form: str) -> str:
    """Write a table in one of `FORMATS`; InputError for another."""
    writers = {"md": markdown, "csv": csv, "html": html, "latex": latex, "json": as_json}
    if form not in writers:
        raise InputError(f"table format {form!r}: allowed are {', '.join(FORMATS)}")
    return writers[form](table)


def render_all(tables: Sequence[Sheet], form: str) -> str:
    """Write several tables one after the other; as JSON they are a list when there are more than one."""
    if form == "json" and len(tables) > 1:
        return _dumped([records(table) for table in tables])
    return "\n".join(render(table, form) for table in tables)


def markdown(table: Sheet) -> str:
    """Write a pipe table with its title above and its notes below."""
    heads = [f"{column.spanner}: {column.label}" if column.spanner else column.label for column in table.columns]
    rules = ["---:" if column.numeric else ":---" for column in table.columns]
    body = [_pipes(row) for row in table.cells()]
    notes = [f"\n{_unmarked(note)}" for note in table.notes]
    return "\n".join([f"**{_unmarked(table.title)}**\n", _pipes(heads), _pipes(rules), *body, *notes]) + "\n"


def csv(table: Sheet) -> str:
    """Write the typed frame; undefined numbers are empty fields, and a list is one field, with semicolons."""
    lists = pl.selectors.by_dtype(pl.List(pl.Float64)).cast(pl.List(pl.String)).list.join(";", ignore_nulls=True)
    return csv_text(defined(table.frame).with_columns(lists))


def records(table: Sheet) -> dict[str, Any]:
    """Give the typed frame, title and notes as plain objects, undefined numbers as None."""
    rows = defined(table.frame).to_dicts()
    return {"table": table.name, "title": table.title, "notes": list(table.notes), "rows": rows}


def defined(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with null where a number is not finite."""
    numbers = pl.selectors.float()
    return frame.with_columns(pl.when(numbers.is_finite()).then(numbers))


def as_json(table: Sheet) -> str:
    """Write `records` as JSON."""
    return _dumped(records(table))


def _dumped(content: object) -> str:
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def html(table: Sheet) -> str:
    """Write an HTML fragment with its own style, by great_tables."""
    from great_tables import loc, style

    made = _great(table).tab_options(table_font_size="13px", heading_align="left", heading_title_font_size="15px")
    made = made.tab_options(data_row_padding="4px", source_notes_padding="3px")
    return str(made.tab_style(style.text(weight="bold"), loc.column_labels()).as_raw_html())


def latex(table: Sheet) -> str:
    """Write a LaTeX table, by great_tables; symbols become commands, so that any engine sets it."""
    return _commands(_great(table).tab_options(table_font_size="7px").as_latex())


def _pipes(values: Sequence[str]) -> str:
    return "| " + " | ".join(map(_unmarked, values)) + " |"


def _unmarked(text: str) -> str:
    """Text that is no HTML, no link and no end of a cell in Markdown."""
    return text.replace("<", "&lt;").replace("](", "]\\(").replace("|", "\\|")


def _commands(source: str) -> str:
    return re.sub("|".join(LATEX_SYMBOLS), lambda match: LATEX_SYMBOLS[match.group()], source)


def _great(table: Sheet) -> Any:
    """Lay the shown strings out with great_tables."""
    from great_tables import GT

    names = {f"c{index}": column for index, column in enumerate(table.columns)}
    frame = pl.DataFrame(table.cells(), schema=dict.fromkeys(names, pl.String), orient="row")
    made = GT(frame, id=table.name).tab_header(title=table.title)
    made = made.cols_label(cases={name: column.label for name, column in names.items()})
    made = made.cols_align("left").cols_align("right", columns=[name for name in names if names[name].numeric])
    for spanner in dict.fromkeys(column.spanner for column in table.columns if column.spanner):
        made = made.tab_spanner(label=spanner, columns=[name for name in names if names[name].spanner == spanner])
    for note in table.notes:
        made = made.tab_source_note(note)
    return made
