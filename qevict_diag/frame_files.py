"""Frames as files: parquet, CSV and JSON, whole or not at all."""

import errno
import os
import re
from pathlib import Path

import polars as pl
from polars.exceptions import ComputeError

from qevict_diag import files
from qevict_diag.errors import InputError
from qevict_diag.plain import plain

ENDINGS = (".parquet", ".csv", ".json")
FORMULA = ("=", "+", "-", "@")  # what a spreadsheet takes for the beginning of a formula
_NUMBER = r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?"
NUMBERS = re.compile(rf"{_NUMBER}(;{_NUMBER})*")  # are no formula


def check_frame_file(out: Path) -> Path:
    """``out`` itself if a frame can be written there, in its format; InputError otherwise, before any work is done."""
    if out.suffix not in ENDINGS:
        raise InputError(f"--out {out}: the name must end in one of {', '.join(ENDINGS)}")
    files.check_target(out)
    return out


def write_frame(frame: pl.DataFrame, out: Path) -> Path:
    """Write a frame by the ending of ``out``; InputError where it cannot be, or the disk is full."""
    with files.replacing(check_frame_file(out)) as scratch:
        write(frame, scratch)
    return out


def write(frame: pl.DataFrame, path: Path) -> None:
    """Write a frame by the ending of ``path``; OSError when the disk is full, whatever polars calls it."""
    try:
        if path.suffix == ".parquet":
            frame.write_parquet(path)
        elif path.suffix == ".csv":
            _harmless(frame).write_csv(path)
        else:
            frame.write_json(path)
    except (ComputeError, OSError) as error:
        number = re.search(r"\(os error (\d+)\)", str(error))  # lost where the disk fills up within a page
        refused = errno.EIO if number is None else int(number[1])
        raise OSError(refused, os.strerror(refused)) from error


def csv_text(frame: pl.DataFrame) -> str:
    """A frame as CSV whose cells are text to every program: `plain`, an apostrophe before what would be a formula."""
    return _harmless(frame).write_csv()


def _harmless(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(_column(frame[name]) for name, kind in frame.schema.items() if kind == pl.String)


def _column(column: pl.Series) -> pl.Series:
    known = column.unique().drop_nulls().to_list()
    changed = {text: new for text in known if (new := _cell(text)) != text}
    return column.replace(changed) if changed else column


def _cell(text: str) -> str:
    line = plain(text)
    return f"'{line}" if line.startswith(FORMULA) and not NUMBERS.fullmatch(line) else line
