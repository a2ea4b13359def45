"""A sweep's folder: what it is a sweep of, and one part for each finished task.

    sweep.json              the grid, the traces and the names of all parts; another sweep into this folder is refused
    parts/NAME.parquet      measurements of one task
    parts/NAME.json         its receipt, written last: size and checksum of the part, its byte use, what it computed

A part without a receipt, or one that disagrees with it, does not exist: it is computed again. So is one whose receipt
was changed, or is another part's; all JSON here carries its own checksum. Both files appear by a rename, so a killed
sweep leaves nothing half-written, and two workers on one task write the same bytes.
"""

import io
import json
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from qevict_diag import files
from qevict_diag.errors import InputError, SweepError
from qevict_diag.frames import BYTES, MEASUREMENTS
from qevict_diag.sweep.tasks import Task, digest, program
from qevict_diag.trace.manifest import checksum
from qevict_diag.trace.strict_json import parse_object

FORMAT, VERSION = "qevict-sweep", 1
MANIFEST, LOCK = "sweep.json", ".lock"
CHANGED = f" ({MANIFEST} was changed after it was written; delete it to continue its sweep, finished parts are kept)"
SWEPT: dict[str, pl.DataType] = {"swept_reading": pl.String()}
SWEPT_ROWS: dict[str, pl.DataType] = {**MEASUREMENTS, **SWEPT}
SWEPT_BYTES: dict[str, pl.DataType] = {"model": pl.String(), **BYTES, **SWEPT}
_NAME = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class SweepFolder:
    """A folder of parts. `has` checks a part against its receipt, `write` adds one."""

    path: Path

    @property
    def parts(self) -> Path:
        """Where the parts lie."""
        return self.path / "parts"

    def part(self, name: str) -> Path:
        """The part called ``name``."""
        return self.parts / f"{name}.parquet"

    def receipt(self, name: str) -> dict[str, Any] | None:
        """The receipt of a part; None when there is none, or it was changed, or is that of another part."""
        found = _object(self.parts / f"{name}.json")
        if found is None or found.get("checksum") != checksum(found) or _name_of(found) != name:
            return None
        return found

    def use(self, name: str) -> pl.DataFrame | None:
        """Byte use of a part, from its receipt; None when there is none that can be believed."""
        rows = (self.receipt(name) or {}).get("use")
        if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
            return None
        try:
            return pl.DataFrame(rows, schema=SWEPT_BYTES)
        except (pl.exceptions.PolarsError, TypeError, OverflowError):
            return None

    def has(self, name: str) -> bool:
        """Whether the part and its receipt are there, whole and unchanged."""
        receipt = self.receipt(name)
        if receipt is None or self.use(name) is None:
            return False
        try:
            content = files.read_regular(self.part(name))
        except OSError:
            return False
        return (len(content), zlib.crc32(content)) == (receipt.get("bytes"), receipt.get("crc32"))

    def write(self, task: Task, measurements: pl.DataFrame, use: pl.DataFrame) -> int:
        """Write a part and then its receipt; the part's size. SweepError when the disk is full."""
        content = encoded(measurements)
        part = {"bytes": len(content), "crc32": zlib.crc32(content), "rows": len(measurements)}
        receipt = {**part, "program": program(), "task": task.content(), "use": use.to_dicts()}
        try:
            with files.replacing(self.part(task.name), tidy=False) as scratch:
                scratch.write_bytes(content)
            files.write_text(self.parts / f"{task.name}.json", _signed(receipt), tidy=False)
        except InputError as error:
            raise SweepError(f"cannot write a part into {self.parts}: {error}; then sweep again") from error
        return len(content)

    def manifest(self) -> dict[str, Any]:
        """What the folder is a sweep of; SweepError when it is no sweep's, or not as it was written."""
        found = self._described()
        parts, grid = found.get("parts"), found.get("grid")
        if found.get("checksum") != checksum(found):
            raise SweepError(f"{self.path / MANIFEST} cannot be read{CHANGED}")
        if not isinstance(grid, dict) or not _distinct_names(parts):
            raise SweepError(f"{self.path / MANIFEST} lists no grid, or a part twice; sweep anew into another folder")
        return found

    def claim(self, manifest: dict[str, Any]) -> None:
        """Make the folder that of the sweep ``manifest`` describes; SweepError when it is another's."""
        text = _signed({"format": FORMAT, "version": VERSION, **manifest}, indent=1)
        if (self.path / MANIFEST).exists():
            found = self._described()
            changed = found.get("checksum") != checksum(found)
            differing = _differences(found, json.loads(text))
            if differing:
                raise SweepError(
                    f"{self.path} holds a sweep of other {' and '.join(differing)}; give another --out, or the same "
                    f"sweep to continue it{CHANGED if changed else ''}"
                )
            if not changed:
                return
        files.write_text(self.path / MANIFEST, text)

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Hold the folder for one process; SweepError when another one sweeps into it. A killed one lets go.

        Gives whether it is held: a file system without locks cannot say who else is at work.
        """
        try:
            self.parts.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise SweepError(f"cannot write into {self.path} ({error.strerror}); choose another --out") from error
        try:
            yield self._lock(handle)
        finally:
            os.close(handle)

    def remove_leftovers(self) -> None:
        """Remove what killed workers had begun to write."""
        files.remove_abandoned(self.parts)

    def _described(self) -> dict[str, Any]:
        """The folder's description, whoever wrote it; SweepError when it has none."""
        found = _object(self.path / MANIFEST)
        if found is None:
            raise SweepError(f"{self.path} has no readable {MANIFEST}; name a folder that `sweep` has written")
        if (found.get("format"), found.get("version")) != (FORMAT, VERSION):
            raise SweepError(
                f"{self.path / MANIFEST} is not of format {FORMAT} {VERSION}; sweep anew into another folder"
            )
        return found

    def _lock(self, handle: int) -> bool:
        try:
            return files.lock(handle)
        except BlockingIOError as error:
            raise SweepError(f"another process sweeps into {self.path}; wait for it, or give another --out") from error


def encoded(frame: pl.DataFrame) -> bytes:
    """The bytes of a part: the same for the same rows."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()


def _object(path: Path) -> dict[str, Any] | None:
    try:
        return parse_object(files.read_regular(path))
    except (OSError, ValueError):
        return None


def _signed(content: dict[str, Any], indent: int | None = None) -> str:
    plain = json.loads(json.dumps(content, default=str))
    return json.dumps({**plain, "checksum": checksum(plain)}, indent=indent) + "\n"


def _name_of(receipt: dict[str, Any]) -> str | None:
    """The part that a receipt is of, by what it says was computed."""
    task = receipt.get("task")
    return digest({"program": receipt.get("program"), **task}) if isinstance(task, dict) else None


def _distinct_names(parts: Any) -> bool:
    texts = isinstance(parts, list) and all(isinstance(name, str) for name in parts)
    return texts and len(set(parts)) == len(parts) and all(map(_NAME.fullmatch, parts))


def _differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Which parts of two sweeps differ; where the traces lie is none of them."""
    grid = old.get("grid")
    known = grid if isinstance(grid, dict) else {}
    names = [name.replace("_", " ") for name in new["grid"] if known.get(name) != new["grid"][name]]
    names += ["traces"] if _identities(old) != _identities(new) else []
    names += ["program versions"] if old.get("program") != new["program"] else []
    return names or (["parts"] if old.get("parts") != new["parts"] else [])


def _identities(manifest: dict[str, Any]) -> list[str]:
    traces = manifest.get("traces")
    return sorted(
        str(trace.get("identity")) if isinstance(trace, dict) else ""
        for trace in (traces if isinstance(traces, list) else [])
    )
