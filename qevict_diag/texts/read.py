"""Inputs as people have them: files, folders, JSON lines, standard input, chat templates, shards."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qevict_diag.errors import InputError
from qevict_diag.texts.source import Source, slug

TEXT_SUFFIXES = (".txt", ".md", ".markdown", ".rst")


def read_inputs(paths: Sequence[Path], field: str = "text") -> list[Source]:
    """The texts of ``paths``: a text or Markdown file, a folder of them, JSON lines, or ``-`` for standard input."""
    return [source for path in paths for source in _read(path, field)]


def shard(sources: Sequence[Source], text: str) -> list[Source]:
    """Part ``i/n`` of the sources, i from 1: every n-th one, so that n machines share them without overlap."""
    parts = text.split("/")
    if len(parts) != 2 or not all(part.isdecimal() for part in parts) or not 1 <= int(parts[0]) <= int(parts[1]):
        raise InputError(f"shard {text!r}; write i/n with i from 1 to n, like 2/8")
    number, count = map(int, parts)
    return list(sources[number - 1 :: count])


def chat(sources: Sequence[Source], tokenizer: Any) -> list[Source]:
    """The token ids of each text as a user's message in the model's chat template, with the reply's beginning."""
    if getattr(tokenizer, "chat_template", None) is None:
        raise InputError("the model has no chat template; leave --chat out")
    return [source if source.text is None else _message(source, tokenizer) for source in sources]


def _message(source: Source, tokenizer: Any) -> Source:
    messages = [{"role": "user", "content": source.text}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return Source(source.name, tokens=tuple(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]))


def _read(path: Path, field: str) -> list[Source]:
    if str(path) == "-":
        return [Source("stdin", _decode(sys.stdin.buffer.read()))]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix.lower() in TEXT_SUFFIXES and file.is_file())
        if not files:
            raise InputError(f"{path} has no text files; {', '.join(TEXT_SUFFIXES)} are read")
        return [read_text(file) for file in files]
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        return _json_lines(path, field)
    return [read_text(path)]


def _json_lines(path: Path, field: str) -> list[Source]:
    sources = []
    for number, line in enumerate(read_bytes(path).splitlines(), start=1):
        if line.strip():
            sources.append(Source(f"{slug(path.stem)}-{number}", _field(line, field, f"{path}, line {number}")))
    if not sources:
        raise InputError(f"{path} has no lines; give one JSON object per line")
    return sources


def _field(line: bytes, field: str, where: str) -> str:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not JSON ({str(error)[:60]}); give one object per line") from error
    if not isinstance(record, dict) or not isinstance(record.get(field), str):
        has = ", ".join(sorted(map(str, record))[:8]) if isinstance(record, dict) else "no fields"
        raise InputError(f"{where} has no text in field {field!r}, it has {has}; name the field with --field")
    return record[field]


def _decode(data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"standard input is not UTF-8 (byte {error.start}); convert it first") from error
    if not text.strip():
        raise InputError("standard input has no text; give at least a prompt's worth")
    return text


MAX_INPUT_BYTES = 256 << 20


def read_text(path: Path) -> Source:
    """A UTF-8 text file; InputError when it is missing, empty or of another encoding."""
    data = read_bytes(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8 (byte {error.start} is 0x{data[error.start]:02x}); "
            "save it as UTF-8, for example with `iconv -f latin1 -t utf-8`"
        ) from error
    if not text.strip():
        raise InputError(f"{path} has no text; give a file with at least a prompt's worth")
    return Source(slug(path.stem), text)


def read_tokens(path: Path) -> Source:
    """A JSON list of token ids; InputError when it is anything else."""
    try:
        ids = json.loads(read_bytes(path))
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
        with path.open("rb") as file:
            data = file.read(MAX_INPUT_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror}); give a file that exists") from error
    if len(data) > MAX_INPUT_BYTES:
        raise InputError(
            f"{path} has more than {MAX_INPUT_BYTES >> 20} MiB; cut it, a recording uses the beginning only"
        )
    return data
