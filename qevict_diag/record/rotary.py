"""Which rotary embedding a layer applies, found on actual data.

The modelling module's own ``apply_rotary*`` functions are wrapped while a model runs. What went in, what came out and
the tables between them are compared with the two styles of `qevict_diag.rope`, and the style that takes the output
back to the input is the layer's. No table of architectures is needed: partial rotary embedding, half-width tables
(gpt-oss), doubled tables (GLM), complex tables (Llama 4) and rotary parts of wider keys (MLA) are all the same
question. DeepSeek's interleaved weights rotate pairs (2c, 2c+1) and store them as halves: its keys are in half style,
un-rotated up to a fixed permutation of channels.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from qevict_diag.attention import rope
from qevict_diag.attention.spec import AttentionSpec
from qevict_diag.errors import RecordError
from qevict_diag.models.intercept import modelling_modules, patched

TOLERANCE = {torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 4e-2, torch.float64: 1e-6}


@dataclass(frozen=True, eq=False)
class RotaryCall:
    """One call of a rotary function: pairs (before, after), and the tables [..., S, width] it used."""

    pairs: tuple[tuple[Tensor, Tensor], ...]
    tables: tuple[Tensor, Tensor]

    @property
    def width(self) -> int:
        """Channels of the tables as the model has them."""
        return self.tables[0].shape[-1]

    def full(self, width: int, style: rope.Style) -> tuple[Tensor, Tensor]:
        """Cos and sin [S, width] of the batch's first sequence at full width, float32."""
        cos, sin = (table.reshape(-1, *table.shape[-2:])[0].float() for table in self.tables)
        return full_table(cos, width, style), full_table(sin, width, style)


@dataclass(frozen=True)
class RotaryStyle:
    """How a layer rotates the channels ``[start, start + width)``; ``style`` is None when no known formula does."""

    style: rope.Style | None
    start: int = 0
    width: int = 0


@dataclass(eq=False)
class _Kind:
    """Tables of layers that agree so far: full width [S, rotary_dim], pass by pass, and the model's own last ones."""

    parts: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    own: tuple[Tensor, Tensor] | None = None

    def add(self, part: tuple[Tensor, Tensor], own: tuple[Tensor, Tensor]) -> None:
        """The tables of the next pass."""
        self.parts.append(part)
        self.own = own


class RopeTables:
    """Collects the rotary tables of every layer, pass by pass; layers of one kind agree from the first to the last.

    The dry run compares a few positions, where kinds may agree that part later: frequencies that grow with the length
    beside ones that do not. A layer whose tables part from those of its kind goes on in a kind of its own.
    """

    def __init__(self, specs: Sequence[AttentionSpec]) -> None:
        self._specs = {spec.layer: spec for spec in specs if spec.rope is not None and spec.rope_style is not None}
        kinds: dict[str | None, _Kind] = {}
        self._kinds = {layer: kinds.setdefault(spec.rope, _Kind()) for layer, spec in self._specs.items()}
        self._passes = dict.fromkeys(self._specs, 0)

    def keep(self, layer: int, describe: Callable[[], RotaryCall | None]) -> None:
        """Keep the tables of the call that a layer has just made."""
        call = describe() if layer in self._specs else None
        if call is None:
            return
        kind, number, spec = self._kinds[layer], self._passes[layer], self._specs[layer]
        self._passes[layer] += 1
        if number == len(kind.parts) - 1 and _same_memory(kind.own, call.tables):
            return  # most models hand one pair of tables to all layers
        part = call.full(spec.rotary_dim, spec.rope_style or "half")
        if number == len(kind.parts):
            kind.add(part, call.tables)
        elif not _equal(kind.parts[number], part):
            self._kinds[layer] = self._parted(kind, number, part, call.tables)

    def names(self) -> dict[int, str]:
        """Each layer's kind: rope0, rope1, .. by their first layers."""
        order = list(dict.fromkeys(self._kinds[layer] for layer in sorted(self._kinds)))
        return {layer: f"rope{order.index(kind)}" for layer, kind in self._kinds.items()}

    def stacked(self, layers: Iterable[int], length: int) -> dict[str, Tensor]:
        """``cos.NAME``, ``sin.NAME`` [T, rotary_dim] of the kinds of ``layers``; RecordError unless T is ``length``."""
        names, tables = self.names(), {}
        for name, kind in sorted({names[layer]: self._kinds[layer] for layer in layers if layer in names}.items()):
            seen = sum(len(cos) for cos, _ in kind.parts)
            if seen != length:
                raise RecordError(f"the rotary tables {name} were seen at {seen} of {length} positions")
            tables[f"cos.{name}"] = torch.cat([cos.cpu() for cos, _ in kind.parts])
            tables[f"sin.{name}"] = torch.cat([sin.cpu() for _, sin in kind.parts])
        return tables

    def _parted(self, kind: _Kind, number: int, part: tuple[Tensor, Tensor], own: tuple[Tensor, Tensor]) -> _Kind:
        """The kind of a layer that agreed with ``kind`` up to pass ``number``: one that did so too, or a new one."""
        before = kind.parts[:number]
        for other in dict.fromkeys(self._kinds.values()):
            alike = all(one is two for one, two in zip(other.parts, before, strict=False))
            if alike and len(other.parts) > number and _equal(other.parts[number], part):
                return other
        new = _Kind(before)
        new.add(part, own)
        return new


def same_memory(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are one."""
    return one.data_ptr() == other.data_ptr() and one.shape == other.shape and one.stride() == other.stride()


def _same_memory(one: tuple[Tensor, Tensor] | None, other: tuple[Tensor, Tensor]) -> bool:
    return one is not None and all(same_memory(a, b) for a, b in zip(one, other, strict=True))


def _equal(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> bool:
    return all(a.shape == b.shape and torch.equal(a, b.to(a.device)) for a, b in zip(one, other, strict=True))


RotaryObserver = Callable[[Callable[[], RotaryCall | None]], None]


@contextmanager
def watch_rotary(model: Any, observer: RotaryObserver) -> Iterator[None]:
    """Tell ``observer`` of every call of the rotary functions in ``model``'s modelling modules.

    It gets a function that describes the call (None when that has no tables): not every call needs a description.
    """
    with ExitStack() as patches:
        for namespace in modelling_modules(model):
            for name in _rotary_functions(namespace):
                patches.enter_context(patched(namespace, name, lambda function: _watched(function, observer)))
        yield


def has_rotary(model: Any) -> bool:
    """Whether any part of the model calls itself rotary."""
    return any("rotary" in type(module).__name__.lower() for module in model.modules())


def find_style(calls: list[RotaryCall], query: Tensor, key: Tensor) -> tuple[RotaryStyle, RotaryCall] | None:
    """The style that ``calls``, made just before an attention call, applied to its key (or else its query).

    ``query`` [B, H, S, d] and ``key`` [B, KV, S, d] are what attention got for the same S positions. None when no
    call's output is found in them.
    """
    for seen in (key, query):
        for call in reversed(calls):
            for before, after in call.pairs:
                found = _match(before, after, call, seen)
                if found is not None:
                    return found, call
    return None


def full_table(table: Tensor, width: int, style: rope.Style) -> Tensor:
    """A table [S, width or width/2] at full width: each pair's angle stands at both of its channels."""
    if style == "half":
        half = table[..., : width // 2]
        return torch.cat((half, half), dim=-1)
    if table.shape[-1] == width and torch.equal(table[..., 0::2], table[..., 1::2]):
        return table
    return table[..., : width // 2].repeat_interleave(2, dim=-1)


def _rotary_functions(namespace: Any) -> list[str]:
    names = [
        name for name in vars(namespace) if name.startswith("apply_rotary") or name == "apply_multimodal_rotary_pos_emb"
    ]
    return [
        name
        for name in names
        if "vision" not in name and "2d" not in name and inspect.isfunction(getattr(namespace, name))
    ]


def _watched(function: Callable[..., Any], observer: RotaryObserver) -> Callable[..., Any]:
    names = tuple(inspect.signature(function).parameters)

    @functools.wraps(function)
    def watched(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        observer(lambda: _describe(dict(zip(names, args, strict=False)) | kwargs, result))
        return result

    return watched


def _describe(arguments: dict[str, Any], result: Any) -> RotaryCall | None:
    tables = _tables(arguments)
    if tables is None:
        return None
    inputs = [x for name, x in arguments.items() if name not in ("cos", "sin") and _is_states(x)]
    outputs = [x for x in (result if isinstance(result, tuple) else (result,)) if _is_states(x)]
    return RotaryCall(tuple(zip(inputs, outputs, strict=False)), tables)


def _tables(arguments: dict[str, Any]) -> tuple[Tensor, Tensor] | None:
    for value in arguments.values():
        if isinstance(value, Tensor) and value.is_complex():
            return value.real, value.imag
    cos, sin = arguments.get("cos"), arguments.get("sin")
    return (cos, sin) if isinstance(cos, Tensor) and isinstance(sin, Tensor) else None


def _is_states(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point() and x.ndim == 4


def _match(before: Tensor, after: Tensor, call: RotaryCall, seen: Tensor) -> RotaryStyle | None:
    """Where ``after`` lies in the channels of ``seen`` [B, heads, S, d], and in which style it was rotated."""
    for x, y in ((before, after), (before.transpose(1, 2), after.transpose(1, 2))):
        start = _locate(y, seen)
        if start is not None:
            style, width = _style(x[:1].float(), y[:1].float(), call, TOLERANCE.get(seen.dtype, 4e-2))
            return RotaryStyle(style, start, width)
    return None


def _locate(part: Tensor, seen: Tensor) -> int | None:
    """The channel at which ``part`` [B, heads or 1, S, w] stands in ``seen``; None when it does not."""
    width, room = part.shape[-1], seen.shape[-1]
    if part.shape[2] != seen.shape[2] or width > room or part.shape[1] not in (1, seen.shape[1]):
        return None
    for start in dict.fromkeys((0, room - width)):
        if torch.equal(part.to(seen.dtype).expand(-1, seen.shape[1], -1, -1), seen[..., start : start + width]):
            return start
    return None


def _style(before: Tensor, after: Tensor, call: RotaryCall, tolerance: float) -> tuple[rope.Style | None, int]:
    """The style whose inverse takes ``after`` back to ``before``, and the rotated width; (None, width) if none does."""
    width = call.width
    for candidate in (width, 2 * width):
        for style in rope.STYLES:
            if (
                candidate <= before.shape[-1]
                and candidate % 2 == 0
                and _undoes(before, after, call, style, candidate, tolerance)
            ):
                return style, candidate
    return None, min(width, before.shape[-1])


def _undoes(before: Tensor, after: Tensor, call: RotaryCall, style: rope.Style, width: int, tolerance: float) -> bool:
    cos, sin = call.full(width, style)
    undone = rope.unrotate(after, cos.to(after.device), sin.to(after.device), style)
    deinterleaved = torch.cat((before[..., 0:width:2], before[..., 1:width:2], before[..., width:]), dim=-1)
    scale = before.abs().amax().clamp_min(1e-30)
    return any(bool((undone - x).abs().amax() <= tolerance * scale) for x in (before, deinterleaved))
