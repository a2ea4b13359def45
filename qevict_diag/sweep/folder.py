"""A sweep's folder: what it is a sweep of, and one part for each finished task.

    sweep.json              the grid, the traces and the names of all parts; another sweep into this folder is refused
    parts/NAME.parquet      measurements of one task
    parts/NAME.json         its receipt, written last: size and checksum of the part, its byte use, what it computed

A part without a receipt, or one that disagrees with it, does not exist: it is computed again. Both files appear by a
rename, so a killed sweep leaves nothing half-written, and two workers on one task write the same bytes.
"""

import fcntl
import io
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from qevict_diag import files
from qevict_diag.errors import InputError, SweepError
from qevict_diag.sweep.tasks import Task

FORMAT, VERSION = "qevict-sweep", 1
MANIFEST, LOCK = "sweep.json", ".lock"


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
        """The receipt of a part; None when there is none that can be read."""
        try:
            found = json.loads((self.parts / f"{name}.json").read_bytes())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) and {"bytes", "crc32", "use"} <= found.keys() else None

    def has(self, name: str) -> bool:
        """Whether the part is there, whole and unchanged."""
        receipt = self.receipt(name)
        if receipt is None:
            return False
        try:
            content = self.part(name).read_bytes()
        except OSError:
            return False
        return (len(content), zlib.crc32(content)) == (receipt["bytes"], receipt["crc32"])

    def write(self, task: Task, measurements: pl.DataFrame, use: pl.DataFrame) -> int:
        """Write a part and then its receipt; the part's size. SweepError when the disk is full."""
        content = encoded(measurements)
        receipt = {"bytes": len(content), "crc32": zlib.crc32(content), "rows": len(measurements)}
        told = {**receipt, "task": task.content(), "use": use.to_dicts()}
        text = json.dumps(told, default=str)
        try:
            with files.replacing(self.part(task.name)) as scratch:
                scratch.write_bytes(content)
            files.write_text(self.parts / f"{task.name}.json", text + "\n")
        except InputError as error:
            raise SweepError(f"cannot write a part into {self.parts}: {error}; then sweep again") from error
        return len(content)

    def manifest(self) -> dict[str, Any]:
        """What the folder is a sweep of; SweepError when it is no sweep's."""
        try:
            found = json.loads((self.path / MANIFEST).read_bytes())
        except (OSError, ValueError) as error:
            raise SweepError(
                f"{self.path} has no readable {MANIFEST}; name a folder that `sweep` has written"
            ) from error
        if not isinstance(found, dict) or (found.get("format"), found.get("version")) != (FORMAT, VERSION):
            raise SweepError(
                f"{self.path / MANIFEST} is not of format {FORMAT} {VERSION}; sweep anew into another folder"
            )
        return found

    def claim(self, manifest: dict[str, Any]) -> None:
        """Make the folder that of the sweep ``manifest`` describes; SweepError when it is another's."""
        if (self.path / MANIFEST).exists():
            differing = _differences(self.manifest(), manifest)
            if differing:
                raise SweepError(
                    f"{self.path} holds a sweep of other {' and '.join(differing)}; give another --out, or the same "
                    "sweep to continue it"
                )
            return
        text = json.dumps({"format": FORMAT, "version": VERSION, **manifest}, indent=1, default=str)
        files.write_text(self.path / MANIFEST, text + "\n")

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
        for path in self.parts.glob(".*"):
            path.unlink(missing_ok=True)

    def _lock(self, handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SweepError(f"another process sweeps into {self.path}; wait for it, or give another --out") from error
        except OSError:
            return False  # no locks: parts are still written whole, and the same whoever writes them
        return True


def encoded(frame: pl.DataFrame) -> bytes:
    """The bytes of a part: the same for the same rows."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()


def _differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Which parts of two sweeps differ; where the traces lie is none of them."""
    fresh = json.loads(json.dumps(new, default=str))
    grids = [{**old.get("grid", {})}, fresh["grid"]]
    names = [name.replace("_", " ") for name in fresh["grid"] if grids[0].get(name) != grids[1][name]]
    traces = [sorted(trace.get("identity", "") for trace in manifest.get("traces", [])) for manifest in (old, fresh)]
    names += ["traces"] if traces[0] != traces[1] else []
    names += ["program versions"] if old.get("program") != fresh["program"] else []
    return names or (["parts"] if old.get("parts") != fresh["parts"] else [])
