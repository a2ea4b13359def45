"""Inputs as people have them: files, folders, JSON lines, standard input, shards."""

import json
import os
import re
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from qevict_diag.errors import InputError
from qevict_diag.texts.decode import decode
from qevict_diag.texts.rows import line_sources, list_sources
from qevict_diag.texts.source import Source, slug

TEXT_SUFFIXES = (".txt", ".md", ".markdown", ".rst")
LINES_SUFFIXES = (".jsonl", ".ndjson")
MAX_INPUT_BYTES = 256 << 20
_OPEN_ALREADY = re.compile(r"/dev/(stdin|fd/\d+)|/proc/self/fd/\d+")  # what a shell's <(command) is called


def read_inputs(paths: Sequence[Path], field: str = "text", *, chat: bool = False) -> list[Source]:
    """The texts of ``paths``: a text or Markdown file, JSON lines, a folder of them, or ``-`` for standard input.

    ``field`` is where a row of JSON holds its text; with ``chat`` it may hold a conversation instead.
    """
    return [source for path in paths for source in _read(path, field, chat)]


def shard(sources: Sequence[Source], text: str) -> list[Source]:
    """Part ``i/n`` of the sources, i from 1: every n-th one, so that n machines share them without overlap."""
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text, re.ASCII)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise InputError(f"shard {text[:40]!r}; write i/n with i from 1 to n, like 2/8")
    number, count = map(int, found.groups())
    return list(sources[number - 1 :: count])


def read_text(path: Path) -> Source:
    """A UTF-8 text file; InputError when it is missing, empty or of another encoding."""
    return Source(slug(path.stem), decode(read_bytes(path), str(path)))


def read_tokens(path: Path) -> Source:
    """A JSON list of token ids; InputError when it is anything else."""
    data = read_bytes(path)
    try:
        ids = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path} is not JSON ({str(error)[:80]}); --tokens takes a list of ids like [1, 2, 3]"
        ) from error
    if not isinstance(ids, list) or not ids or not all(type(i) is int and 0 <= i < 1 << 31 for i in ids):
        raise InputError(f"{path} is not a non-empty JSON list of token ids like [1, 2, 3]")
    return Source(slug(path.stem), tokens=tuple(ids))


def read_bytes(path: Path) -> bytes:
    """The bytes of an input file; InputError when it cannot be read or is larger than any recording needs."""
    try:
        _refuse_pipe(path)
        with path.open("rb") as file:
            data = file.read(MAX_INPUT_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror}); give a file that exists") from error
    if len(data) > MAX_INPUT_BYTES:
        raise InputError(
            f"{path} has more than {MAX_INPUT_BYTES >> 20} MiB; cut it, a recording uses the beginning only"
        )
    return data


def _read(path: Path, field: str, chat: bool) -> list[Source]:
    if str(path) == "-":
        return [Source("stdin", decode(sys.stdin.buffer.read(), "standard input"))]
    if os.path.isdir(path):
        return [source for file in _texts_in(path) for source in _read(file, field, chat)]
    suffix, name = path.suffix.lower(), slug(path.stem)
    if suffix in LINES_SUFFIXES:
        return line_sources(read_bytes(path), name, str(path), field, chat=chat)
    if suffix == ".json":
        return list_sources(read_bytes(path), name, str(path), field, chat=chat)
    return [read_text(path)]


def _texts_in(folder: Path) -> list[Path]:
    """The files of a folder that are read: texts and JSON lines; InputError when it has none, or cannot be read."""
    read = (*TEXT_SUFFIXES, *LINES_SUFFIXES)
    try:
        found = sorted(file for file in folder.iterdir() if file.suffix.lower() in read and file.is_file())
    except OSError as error:
        raise InputError(f"cannot read the folder {folder} ({error.strerror}); give one that can be read") from error
    if not found:
        raise InputError(f"{folder} has no text files; {', '.join(read)} are read")
    return found


def _refuse_pipe(path: Path) -> None:
    """InputError for a pipe or device, which may have no end, or nobody who writes; a shell's <(command) is fine."""
    if not (stat.S_ISREG(path.stat().st_mode) or _OPEN_ALREADY.fullmatch(str(path))):
        raise InputError(f"cannot read {path}, it is no regular file; give a file, or - and standard input")
