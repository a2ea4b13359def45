"""Safetensors files, written in one pass with checksums and read as if they were hostile.

A file is an 8-byte little-endian header length, a JSON header ``{name: {dtype, shape, data_offsets}}``, and the
tensors' bytes without gaps. The writer streams; the reader maps a file only after its size, names, shapes, dtypes and
offsets agree with the manifest that announced it. Source: https://huggingface.co/docs/safetensors, format.
"""

import hashlib
import json
import math
import mmap
import os
import re
import stat
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
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
            for chunk in _byte_chunks(tensor):
                digest.update(chunk)
                checks[name] = zlib.crc32(chunk, checks[name])
                total += file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    return FileEntry(total, digest.hexdigest(), checks)


def _byte_chunks(tensor: Tensor):
    flat = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
    for start in range(0, len(flat), _CHUNK):
        yield flat[start : start + _CHUNK].data


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


class TensorFile:
    """A checked, memory-mapped safetensors file; a tensor's CRC-32 is checked when it is first read.

    ``expected`` gives the shape of every tensor in the file, as the manifest implies it. TraceError when file and
    manifest disagree in any way.
    """

    def __init__(self, folder: Path, name: str, entry: FileEntry, expected: Mapping[str, tuple[int, ...]]) -> None:
        self._label = str(folder / name)
        self._entry = entry
        self._checked: dict[str, Tensor] = {}
        descriptor = open_beneath(folder, name)
        try:
            size = os.fstat(descriptor).st_size
            if size != entry.bytes:
                raise self._damaged(f"has {size} bytes, the manifest says {entry.bytes}")
            if size < 8:
                raise self._damaged("is too short to have a header")
            self._map = mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY)
        finally:
            os.close(descriptor)
        self._layout, self._data = self._read_header(size, expected)

    def __contains__(self, name: str) -> bool:
        return name in self._layout

    def read(self, name: str) -> Tensor:
        """The tensor ``name``, backed by the map; TraceError when it is not there or its checksum is wrong."""
        if name in self._checked:
            return self._checked[name]
        if name not in self._layout:
            raise self._damaged(f"has no tensor {name}")
        dtype, shape, start, stop = self._layout[name]
        with memoryview(self._map)[self._data + start : self._data + stop] as view:
            if zlib.crc32(view) != self._entry.tensors[name]:
                raise self._damaged(f"has a wrong checksum in tensor {name}")
        if start == stop:
            return torch.empty(shape, dtype=dtype)
        tensor = torch.frombuffer(self._map, dtype=dtype, count=math.prod(shape), offset=self._data + start)
        self._checked[name] = tensor.reshape(shape)
        return self._checked[name]

    def sha256(self) -> str:
        """SHA-256 of the whole file."""
        digest = hashlib.sha256()
        with memoryview(self._map) as view:
            for start in range(0, len(view), _CHUNK):
                digest.update(view[start : start + _CHUNK])
        return digest.hexdigest()

    def _read_header(self, size: int, expected: Mapping[str, tuple[int, ...]]):
        length = int.from_bytes(self._map[:8], "little")
        if length > min(MAX_HEADER, size - 8):
            raise self._damaged(f"has an impossible header length of {length}")
        header = parse_json(self._map[8 : 8 + length], self._label)
        layout = {name: self._layout_of(name, item) for name, item in header.items() if name != "__metadata__"}
        if set(layout) != set(self._entry.tensors):
            raise self._damaged("does not hold the tensors that the manifest lists")
        for name, shape in expected.items():
            if name in layout and layout[name][1] != shape:
                raise self._damaged(f"has {name} of shape {list(layout[name][1])}, the manifest implies {list(shape)}")
        self._check_offsets(layout, size - 8 - length)
        return layout, 8 + length

    def _layout_of(self, name: str, item: Any) -> tuple[torch.dtype, tuple[int, ...], int, int]:
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

    def _check_offsets(self, layout: Mapping[str, tuple], room: int) -> None:
        at = 0
        for _, _, start, stop in sorted(layout.values(), key=lambda item: item[2:]):
            if start != at:
                raise self._damaged("has tensors that overlap or leave a gap")
            at = stop
        if at != room:
            raise self._damaged(f"has {room} bytes of tensors, its header describes {at}")

    def _damaged(self, what: str) -> TraceError:
        return TraceError(f"{self._label} {what}; the file is damaged, record the trace again")


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
