"""Write a trace: into a hidden sibling folder, forced to disk, then renamed. It is there whole or not at all."""

import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch import Tensor

from qevict_diag import files
from qevict_diag.errors import InputError, TraceError
from qevict_diag.trace.manifest import MANIFEST, checksum, layer_file_name
from qevict_diag.trace.tensor_file import FileEntry, write_tensors


class TraceWriter:
    """Collects the files of one trace; `publish` makes it appear. Leaving the context earlier leaves nothing behind.

    InputError when the target exists or its parent cannot be written.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self._files: dict[str, FileEntry] = {}

    def __enter__(self) -> Self:
        refuse_existing(self.target)
        self._aside = ExitStack()
        try:
            self._folder = self._aside.enter_context(files.aside(self.target, None))
        except OSError as error:
            raise InputError(
                f"cannot write into {self.target.parent} ({error.strerror}); choose another --out"
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._aside.close()

    def write_tokens(self, tokens: Tensor) -> None:
        """Token ids, int64 [T]."""
        self._write("tokens.safetensors", {"token_ids": tokens})

    def write_rope(self, tables: Mapping[str, Tensor]) -> None:
        """Tables ``cos.NAME`` and ``sin.NAME``, float32 [T, rotary_dim]."""
        self._write("rope.safetensors", tables)

    def write_layer(self, number: int, tensors: Mapping[str, Tensor]) -> None:
        """The tensors of one layer, named as in the format."""
        self._write(layer_file_name(number), tensors)

    def publish(self, manifest: Mapping[str, Any]) -> Path:
        """Write the manifest last, force everything to disk and rename the folder to its name."""
        content = dict(manifest) | {"files": {name: entry.to_json() for name, entry in sorted(self._files.items())}}
        content["checksum"] = checksum(content)
        try:
            _write_text(self._folder / MANIFEST, json.dumps(content, indent=1, allow_nan=False) + "\n")
            refuse_existing(self.target)
            files.publish_folder(self._folder, self.target)
        except OSError as error:
            raise TraceError(
                f"cannot finish {self.target} ({error.strerror}); nothing was left, make room and try again"
            ) from error
        return self.target

    def _write(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        try:
            self._files[name] = write_tensors(self._folder / name, tensors)
        except OSError as error:
            raise TraceError(
                f"cannot write {self.target} ({error.strerror}); nothing was left, make room and try again"
            ) from error


def refuse_existing(target: Path) -> None:
    """InputError when something stands at ``target`` already."""
    if os.path.lexists(target):
        raise InputError(f"{target} exists already; traces are never overwritten, remove it or choose another --out")


def _write_text(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
