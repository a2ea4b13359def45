"""Whether a trace is there already: the one that would be recorded now, and whole."""

import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from qevict_diag.errors import InputError
from qevict_diag.models.identity import difference
from qevict_diag.record.batch import Item
from qevict_diag.record.options import RecordOptions
from qevict_diag.trace.tensor_file import FileEntry, file_sha256
from qevict_diag.trace.trace import Trace


def is_done(item: Item, options: RecordOptions, who: Mapping[str, Any]) -> bool:
    """Whether an item's trace is there, whole; InputError when it is of another text, model or options, or damaged.

    A redacted trace does not tell its text: it is known by its name, with a warning.
    """
    if not item.target.exists():
        return False
    trace = Trace.open(item.target)
    text, origin = None if options.redacted else item.source.sha256, trace.entry("source")
    found = origin.get("text_sha256"), origin.get("chat_template_sha256"), _options_of(trace)
    wanted = text, item.template_sha256, _plain(asdict(options))
    if found != wanted or difference(trace.entry("model"), who):
        raise InputError(
            f"{item.target} was recorded from another text, model or options; choose another --out to keep both"
        )
    _refuse_damaged(trace)
    if options.redacted:
        warnings.warn(f"{item.target} is redacted and kept by its name; its text was not compared", stacklevel=4)
    return True


def _options_of(trace: Trace) -> dict[str, Any]:
    """The options a trace was recorded with; those that an older recorder did not know have their defaults."""
    found = trace.entry("recorder").get("options")
    return _plain(asdict(RecordOptions())) | (found if isinstance(found, dict) else {})


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """Options as a manifest holds them."""
    plain: dict[str, Any] = json.loads(json.dumps(options))
    return plain


def _refuse_damaged(trace: Trace) -> None:
    for name, entry in trace.files.items():
        wrong = _damage(trace.path, name, entry)
        if wrong:
            raise InputError(f"{trace.path} is not whole: {name} {wrong}; remove that folder, and it is recorded again")


def _damage(folder: Path, name: str, entry: FileEntry) -> str | None:
    """What is wrong with a file of a trace; None when it is, byte for byte, the one that was written."""
    path = folder / name
    size = path.stat().st_size if path.is_file() else 0
    if size != entry.bytes:
        return f"has {size} of {entry.bytes} bytes"
    return None if file_sha256(folder, name) == entry.sha256 else "has another SHA-256 than its manifest says"
