"""Safetensors files, written in one pass with checksums and read as if they were hostile.

A file is an 8-byte little-endian header length, a JSON header ``{name: {dtype, shape, data_offsets}}``, and the
tensors' bytes without gaps. The writer streams; the reader reads a tensor only after the file's size, names, shapes,
dtypes and offsets agree with the manifest that announced it. Source: https://huggingface.co/docs/safetensors, format.
"""

import hashlib
import json
import math
import os
import re
import stat
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from qevict_diag.errors import TraceError
from qevict_diag.trace.strict_json import parse_object

DTYPES = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "U16": torch.uint16,
}
CODES = {dtype: code for code, dtype in DTYPES.items()}
MAX_HEADER = 1 << 20
TENSOR_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}(\.[A-Za-z0-9_]{1,64})?")
_CHUNK = 1 << 24
Layout = tuple[torch.dtype, tuple[int, ...], int, int]  # of a tensor: type, shape, first byte, the byte after


@dataclass(frozen=True)
class FileEntry:
    """What the manifest says about a file: its bytes, its SHA-256 and the CRC-32 of each tensor in it."""

    bytes: int
    sha256: str
    tensors: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The entry as it stands in the manifest."""
        return {"bytes": self.bytes, "sha256": self.sha256, "tensors": self.tensors}


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> FileEntry:
    """Write ``tensors`` to a new file, force it to disk and return its entry; same tensors, same bytes."""
    header, offset = {}, 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": CODES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    digest, total, checks = hashlib.sha256(), 0, {}
    with path.open("xb") as file:
        for chunk in (len(text).to_bytes(8, "little"), text):
            digest.update(chunk)
            total += file.write(chunk)
        for name, tensor in tensors.items():
            checks[name] = 0
            for part in _byte_chunks(tensor):
                digest.update(part)
                checks[name] = zlib.crc32(part, checks[name])
                total += file.write(part)
        file.flush()
        os.fsync(file.fileno())
    return FileEntry(total, digest.hexdigest(), checks)


def _byte_chunks(tensor: Tensor) -> Iterator[memoryview]:
    content = _bytes_of(tensor.detach().cpu().contiguous())
    for start in range(0, len(content), _CHUNK):
        yield content[start : start + _CHUNK]


def _bytes_of(tensor: Tensor) -> memoryview:
    """The memory of a contiguous tensor on the CPU."""
    return tensor.view(-1).view(torch.uint8).numpy().data


def open_beneath(folder: Path, name: str) -> int:
    """A file descriptor of the regular file ``name`` in ``folder``; links are not followed. TraceError otherwise."""
    try:
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise TraceError(f"{folder} is not a folder that can be opened ({error.strerror})") from error
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    except OSError as error:
        raise TraceError(
            f"{folder / name} cannot be opened ({error.strerror}); the trace is incomplete, record it again"
        ) from error
    finally:
        os.close(directory)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise TraceError(f"{folder / name} is not a regular file; a trace holds regular files only")
    return descriptor


def file_sha256(folder: Path, name: str) -> str:
    """SHA-256 of the regular file ``name`` in ``folder``; TraceError when it is not there or cannot be read."""
    with os.fdopen(open_beneath(folder, name), "rb", buffering=0) as file:
        try:
            return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise TraceError(f"{folder / name} cannot be read ({error.strerror}); record it again") from error


class TensorFile:
    """A checked safetensors file. A tensor is read once, into memory of its own, and what was read is checked.

    ``expected`` gives the shape of every tensor in the file, as the manifest implies it. TraceError when file and
    manifest disagree in any way, also when the file changes later: no tensor depends on it once it is read.
    """

    def __init__(self, folder: Path, name: str, entry: FileEntry, expected: Mapping[str, tuple[int, ...]]) -> None:
        self._folder, self._name, self._entry = folder, name, entry
        self._read: dict[str, Tensor] = {}
        with self._opened() as file:
            self._layout, self._data = self._read_header(file, expected)

    def __contains__(self, name: str) -> bool:
        return name in self._layout

    def read(self, name: str) -> Tensor:
        """The tensor ``name``; TraceError when it is not there or its checksum is wrong."""
        if name not in self._layout:
            raise self._damaged(f"has no tensor {name}")
        if name not in self._read:
            dtype, shape, start, _ = self._layout[name]
            tensor = self._room(shape, dtype)
            content = _bytes_of(tensor)
            with self._opened() as file:
                file.seek(self._data + start)
                self._fill(content, file)
            if zlib.crc32(content) != self._entry.tensors[name]:
                raise self._damaged(f"has a wrong checksum in tensor {name}")
            self._read[name] = tensor
        return self._read[name]

    def sha256(self) -> str:
        """SHA-256 of the whole file."""
        with self._opened() as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    @contextmanager
    def _opened(self) -> Iterator[FileIO]:
        """The file, if it has the size that the manifest gives."""
        with os.fdopen(open_beneath(self._folder, self._name), "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if size != self._entry.bytes:
                raise self._damaged(f"has {size} bytes, the manifest says {self._entry.bytes}")
            try:
                yield file
            except OSError as error:
                raise self._damaged(f"cannot be read ({error.strerror})") from error

    def _room(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        try:
            return torch.empty(shape, dtype=dtype)
        except RuntimeError as error:
            size = math.prod(shape) * dtype.itemsize / 1e9
            raise TraceError(f"{self._folder / self._name}: no memory for a tensor of {size:.1f} GB") from error

    def _fill(self, content: memoryview, file: FileIO) -> None:
        at = 0
        while at < len(content):
            count = file.readinto(content[at : at + _CHUNK])
            if not count:
                raise self._damaged("was cut while it was read")
            at += count

    def _read_header(self, file: FileIO, expected: Mapping[str, tuple[int, ...]]) -> tuple[dict[str, Layout], int]:
        size, beginning = self._entry.bytes, bytearray(8)
        self._fill(memoryview(beginning), file)
        length = int.from_bytes(beginning, "little")
        if length > min(MAX_HEADER, size - 8):
            raise self._damaged(f"has an impossible header length of {length}")
        text = bytearray(length)
        self._fill(memoryview(text), file)
        header = parse_json(bytes(text), str(self._folder / self._name))
        layout = {name: self._layout_of(name, item) for name, item in header.items() if name != "__metadata__"}
        if set(layout) != set(self._entry.tensors):
            raise self._damaged("does not hold the tensors that the manifest lists")
        for name, shape in expected.items():
            if name in layout and layout[name][1] != shape:
                raise self._damaged(f"has {name} of shape {list(layout[name][1])}, the manifest implies {list(shape)}")
        self._check_offsets(layout, size - 8 - length)
        return layout, 8 + length

    def _layout_of(self, name: str, item: Any) -> Layout:
        if not TENSOR_NAME.fullmatch(name) or not isinstance(item, dict):
            raise self._damaged("has a malformed header")
        shape, offsets = _counts(item.get("shape")), _counts(item.get("data_offsets"))
        code = item.get("dtype")
        if not isinstance(code, str) or code not in DTYPES:
            raise self._damaged(f"has a tensor of type {str(code)[:20]!r}; allowed are {', '.join(DTYPES)}")
        if shape is None or len(shape) > 4 or offsets is None or len(offsets) != 2:
            raise self._damaged("has a malformed header")
        size = math.prod(shape) * torch.empty(0, dtype=DTYPES[code]).element_size()
        if offsets[1] - offsets[0] != size:
            raise self._damaged(f"has {name} of shape {list(shape)} in {offsets[1] - offsets[0]} bytes")
        return DTYPES[code], shape, offsets[0], offsets[1]

    def _check_offsets(self, layout: Mapping[str, Layout], room: int) -> None:
        at = 0
        for _, _, start, stop in sorted(layout.values(), key=lambda item: item[2:]):
            if start != at:
                raise self._damaged("has tensors that overlap or leave a gap")
            at = stop
        if at != room:
            raise self._damaged(f"has {room} bytes of tensors, its header describes {at}")

    def _damaged(self, what: str) -> TraceError:
        return TraceError(f"{self._folder / self._name} {what}; the file is damaged, record the trace again")


def parse_json(data: bytes, label: str) -> dict[str, Any]:
    """`parse_object` with its reason as a TraceError."""
    try:
        return parse_object(data)
    except ValueError as error:
        raise TraceError(
            f"{label} is not the JSON it should be ({str(error)[:80]}); the trace is damaged, record it again"
        ) from error


def _counts(value: Any) -> tuple[int, ...] | None:
    """A list of integers in ``[0, 2^53)`` as a tuple; None for anything else."""
    good = isinstance(value, list) and all(type(x) is int and 0 <= x < 1 << 53 for x in value)
    return tuple(value) if good else None
