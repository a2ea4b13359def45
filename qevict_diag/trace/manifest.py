"""The manifest of a trace: what it promises, read strictly. Format v1, see docs/trace-format.md."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, fields
from itertools import pairwise
from typing import Any

from qevict_diag.attention.rope import STYLES
from qevict_diag.attention.spec import AttentionSpec
from qevict_diag.errors import TraceError
from qevict_diag.trace.layer import TraceShape
from qevict_diag.trace.tensor_file import FileEntry

FORMAT, VERSION = "qevict-trace", 1
MANIFEST = "manifest.json"
FILE_NAME = re.compile(r"tokens\.safetensors|rope\.safetensors|layer_\d{3,4}\.safetensors")
MAX_COUNT = 1 << 31
MAX_HEADS = 1 << 16  # numbers of heads fit the columns of every frame
MAX_LOGIT = 1e4  # no scaling, softcap or sink logit of a model lies beyond; float32 resolves it to 0.001
_FACTS: dict[str, Any] = {  # optional entries whose content is used, with its types; null stands for none
    "model": dict.fromkeys(("id", "architecture", "revision", "weights_sha256", "state_sha256", "dtype"), str),
    "source": {
        "name": str,
        "text_sha256": str,
        "continuation": str,
        "seed": int,
        "distinct_4grams": float,
        "redacted": bool,
        "imported": bool,
    },
    "recorder": {"options": {}, "column_sums": {"probes": float, "relative_error": float, "measured_in_layer": int}},
    "software": {},
    "created": str,
}
_ROPE_NAME = re.compile(r"[A-Za-z0-9_]{1,64}")


def layer_file_name(number: int) -> str:
    """The file of a layer."""
    return f"layer_{number:03d}.safetensors"


def checksum(manifest: Mapping[str, Any]) -> str:
    """SHA-256 of the manifest without its ``checksum`` entry, as JSON with sorted keys and no spaces."""
    content = {key: value for key, value in manifest.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def spec_to_json(spec: AttentionSpec) -> dict[str, Any]:
    """A layer's entry of the manifest's ``attention`` list."""
    optional = ("head_numbers", "kv_head_numbers", "kv_of")
    entry = {name: value for name, value in asdict(spec).items() if value is not None or name not in optional}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in entry.items()}


class Reader:
    """Typed access to untrusted JSON; every refusal is a TraceError that names the manifest."""

    def __init__(self, label: str) -> None:
        self.label = label

    def bad(self, what: str) -> TraceError:
        """The error for a manifest that breaks the format."""
        return TraceError(f"{self.label}: {what}; the trace is damaged or of another program, record it again")

    def count(self, value: Any, what: str, least: int = 0) -> int:
        """An integer in ``[least, 2^31)``, of heads below 2^16; booleans and floats are none."""
        if type(value) is not int or not least <= value < (MAX_HEADS if what.endswith("heads") else MAX_COUNT):
            raise self.bad(f"{what} is {_short(value)}, not a count of at least {least} that fits")
        return value

    def number(self, value: Any, what: str) -> float:
        """A finite number."""
        if type(value) not in (int, float) or abs(value) > 1e308 or not math.isfinite(value):
            raise self.bad(f"{what} is {_short(value)}, not a finite number")
        return float(value)

    def text(self, value: Any, what: str, pattern: re.Pattern[str] | None = None) -> str:
        """A string of at most 4096 characters, fully matching ``pattern`` if there is one."""
        if not isinstance(value, str) or len(value) > 4096 or (pattern and not pattern.fullmatch(value)):
            raise self.bad(f"{what} is {_short(value)}")
        return value

    def mapping(self, value: Any, what: str) -> dict[str, Any]:
        """A JSON object."""
        if not isinstance(value, dict):
            raise self.bad(f"{what} is missing or no object")
        return value

    def facts(self, value: Any, what: str = "", kinds: Any = None) -> None:
        """Refuse optional entries that are not of the types of `_FACTS`; entries that are not in it may be anything."""
        kinds = _FACTS if kinds is None else kinds
        if value is None:
            return
        if isinstance(kinds, dict):
            entry = self.mapping(value, what)
            for name, kind in kinds.items():
                self.facts(entry.get(name), f"{what}.{name}".lstrip("."), kind)
        elif kinds is float:
            self.number(value, what)
        elif kinds is str:
            self.text(value, what)
        elif type(value) is not kinds:
            raise self.bad(f"{what} is {_short(value)}")

    def shape(self, value: Any) -> TraceShape:
        """The manifest's ``shape``."""
        entry = self.mapping(value, "shape")
        shape = TraceShape(**{f.name: self.count(entry.get(f.name), f"shape.{f.name}", 1) for f in fields(TraceShape)})
        if shape.heads % shape.kv_heads:
            raise self.bad(f"{shape.heads} query heads do not group on {shape.kv_heads} key-value heads")
        return shape

    def spec(self, value: Any) -> AttentionSpec:
        """One entry of the manifest's ``attention``."""
        entry = self.mapping(value, "an entry of attention")
        sinks = entry.get("sink_logits")
        style = entry.get("rope_style")
        if style not in (None, *STYLES):
            raise self.bad(f"rope_style is {_short(style)}")
        return AttentionSpec(
            layer=self.count(entry.get("layer"), "a layer number"),
            scaling=self._positive(entry.get("scaling"), "scaling"),
            sliding_window=self._optional(entry, "sliding_window", lambda x, what: self.count(x, what, 1)),
            softcap=self._optional(entry, "softcap", self._positive),
            sink_logits=None if sinks is None else self._sinks(sinks),
            rope=self._optional(entry, "rope", lambda x, what: self.text(x, what, _ROPE_NAME)),
            rope_style=style,
            rotary_dim=self.count(entry.get("rotary_dim", 0), "rotary_dim"),
            rotary_start=self.count(entry.get("rotary_start", 0), "rotary_start"),
            pv_residual=self.number(entry.get("pv_residual", 0.0), "pv_residual"),
            head_numbers=self._optional(entry, "head_numbers", self._numbers),
            kv_head_numbers=self._optional(entry, "kv_head_numbers", self._numbers),
            kv_of=self._optional(entry, "kv_of", self.count),
        )

    def file(self, name: str, value: Any) -> FileEntry:
        """One entry of the manifest's ``files``."""
        entry = self.mapping(value, f"files.{_short(name)}")
        self.text(name, "a file name", FILE_NAME)
        size = entry.get("bytes")
        if type(size) is not int or not 8 <= size < 1 << 53:
            raise self.bad(f"the size of {name} is {_short(size)}")
        sha256 = self.text(entry.get("sha256"), f"the SHA-256 of {name}", re.compile(r"[0-9a-f]{64}"))
        tensors = self.mapping(entry.get("tensors"), f"files.{name}.tensors")
        return FileEntry(size, sha256, {key: self._crc(crc, name) for key, crc in tensors.items()})

    def _crc(self, value: Any, name: str) -> int:
        if type(value) is not int or not 0 <= value < 1 << 32:
            raise self.bad(f"a checksum of {name} is {_short(value)}")
        return value

    def _positive(self, value: Any, what: str) -> float:
        number = self._logit(value, what)
        if number <= 0:
            raise self.bad(f"{what} is {_short(value)}, not above 0")
        return number

    def _logit(self, value: Any, what: str) -> float:
        number = self.number(value, what)
        if abs(number) > MAX_LOGIT:
            raise self.bad(f"{what} is {_short(value)}, beyond {MAX_LOGIT:g}")
        return number

    def _sinks(self, value: Any) -> tuple[float, ...]:
        if not isinstance(value, list):
            raise self.bad("sink_logits is no list")
        return tuple(self._logit(x, "a sink logit") for x in value)

    def _numbers(self, value: Any, what: str) -> tuple[int, ...]:
        """Ascending numbers, each once, at least one."""
        numbers = [self.count(x, what) for x in value] if isinstance(value, list) else []
        if not numbers or any(a >= b for a, b in pairwise(numbers)) or numbers[-1] >= MAX_HEADS:
            raise self.bad(f"{what} is {_short(value)}, not a list of ascending numbers below {MAX_HEADS}")
        return tuple(numbers)

    def _optional(self, entry: dict[str, Any], name: str, read: Any) -> Any:
        value = entry.get(name)
        return None if value is None else read(value, name)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
