"""Random in-memory traces: what the recorder would write for a model with random queries and keys."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from qevict_diag.attention import rope
from qevict_diag.attention.spec import AttentionSpec, visible
from qevict_diag.trace.layer import LayerTrace, TraceShape


@dataclass(frozen=True, eq=False)
class MemoryTrace:
    """A trace that lives in memory; everything a replay asks for."""

    shape: TraceShape
    parts: tuple[LayerTrace, ...]
    name: str = "random"
    model_id: str = "random"

    @property
    def layers(self) -> tuple[int, ...]:
        """Layer numbers."""
        return tuple(range(len(self.parts)))

    def layer(self, layer: int) -> LayerTrace:
        """One layer."""
        return self.parts[layer]

    def layer_shape(self, layer: int) -> TraceShape:
        """Its sizes."""
        part = self.parts[layer]
        (kv_heads, _, width), value_dim = part.key.shape, part.value.shape[-1]
        return replace(self.shape, heads=len(part.query), kv_heads=kv_heads, head_dim=width, value_dim=value_dim)


def random_trace(
    seed: int = 0,
    *,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 8,
    prefill: int = 60,
    decode: int = 32,
    style: rope.Style | None = "half",
    rotary_dim: int | None = None,
    spread: float = 2.0,
    name: str = "random",
    **spec: Any,
) -> MemoryTrace:
    """Random keys with outlier channels and drifting queries, their exact column sums and normalizers in float64."""
    generator = torch.Generator().manual_seed(seed)
    shape = TraceShape(layers, heads, kv_heads, head_dim, head_dim, prefill, decode, 100)
    rotary_dim = head_dim if rotary_dim is None else rotary_dim
    parts = []
    for layer in range(layers):
        kind: dict[str, Any] = {"rope": "r0", "rope_style": style, "rotary_dim": rotary_dim} if style else {}
        one = AttentionSpec(layer=layer, scaling=spread / head_dim**0.5, **kind, **spec)
        parts.append(_random_layer(one, shape, generator))
    return MemoryTrace(shape, tuple(parts), name)


def _random_layer(spec: AttentionSpec, shape: TraceShape, generator: torch.Generator) -> LayerTrace:
    length, width = shape.length, shape.head_dim
    scale = 1 + 2 * torch.rand(width, generator=generator)
    key = torch.randn(shape.kv_heads, length, width, generator=generator) * scale
    drift = torch.randn(shape.heads, length, width, generator=generator).cumsum(1) / 4
    query = torch.randn(shape.heads, length, width, generator=generator) + drift.tanh()
    cos = sin = None
    if spec.rope_style is not None:
        cos, sin = _tables(length, spec.rotary_dim, spec.rope_style)
        key = rope.rotate(key, cos, sin, spec.rope_style)
        query = rope.rotate(query, cos, sin, spec.rope_style)
    value = torch.randn(shape.kv_heads, length, width, generator=generator)
    logits = _logits(spec, query.double(), key.double())
    lse = torch.logsumexp(logits, -1)
    if spec.sink_logits is not None:
        lse = torch.logaddexp(lse, torch.tensor(spec.sink_logits).double()[:, None])
    probability = torch.exp(logits - lse[..., None])
    last = max(0, shape.prefill - 64)
    return LayerTrace(
        spec=spec,
        query=query[:, shape.prefill :],
        key=key,
        value=value,
        prompt_mass=probability[:, : shape.prefill, : shape.prefill].sum(1),
        lse=lse[:, shape.prefill :],
        prompt_query=query[:, last : shape.prefill],
        prompt_query_positions=tuple(range(last, shape.prefill)),
        cos=cos,
        sin=sin,
    )


def _tables(length: int, rotary_dim: int, style: rope.Style) -> tuple[torch.Tensor, torch.Tensor]:
    angles = torch.arange(length)[:, None] / 100 ** (torch.arange(rotary_dim // 2) / (rotary_dim // 2))
    full = torch.cat((angles, angles), -1) if style == "half" else angles.repeat_interleave(2, dim=-1)
    return full.cos(), full.sin()


def _logits(spec: AttentionSpec, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    repeated = key.repeat_interleave(query.shape[0] // key.shape[0], dim=0)
    logits = query @ repeated.transpose(-1, -2) * spec.scaling
    if spec.softcap is not None:
        logits = torch.tanh(logits / spec.softcap) * spec.softcap
    hidden = ~visible(torch.arange(query.shape[1]), key.shape[1], spec.sliding_window)
    return logits.masked_fill(hidden, -np.inf)
