"""A random layer of a given shape, as a trace in memory: what the replay benchmarks run on at any length."""

from dataclasses import dataclass

import torch

from qevict_diag.attention.spec import AttentionSpec
from qevict_diag.trace.layer import LayerTrace, TraceShape


@dataclass(frozen=True, eq=False)
class LayerOf:
    """A trace whose layers are all the same random one."""

    shape: TraceShape
    one: LayerTrace
    name: str = "random"
    model_id: str = "random"

    @property
    def layers(self) -> tuple[int, ...]:
        """Layer numbers."""
        return tuple(range(self.shape.layers))

    def layer(self, layer: int) -> LayerTrace:
        """The random layer."""
        return self.one

    def layer_shape(self, layer: int) -> TraceShape:
        """All layers have one shape."""
        return self.shape


def random_layers(
    prefill: int, decode: int, layers: int = 1, heads: int = 32, kv_heads: int = 8, width: int = 128
) -> LayerOf:
    """Random bf16 keys, values and queries; normalizers computed in blocks, prompt mass uniform."""
    generator = torch.Generator().manual_seed(0)
    shape = TraceShape(layers, heads, kv_heads, width, width, prefill, decode, 100)
    key, value = (torch.randn(kv_heads, shape.length, width, generator=generator).bfloat16() for _ in range(2))
    query = torch.randn(heads, decode, width, generator=generator).bfloat16()
    angle = torch.arange(shape.length)[:, None] / 10_000 ** (torch.arange(width // 2) / (width // 2))
    table = torch.cat((angle, angle), -1)
    mass = torch.full((heads, prefill), 1.0)
    spec = AttentionSpec(0, width**-0.5, rope="r0", rope_style="half", rotary_dim=width)
    trace = LayerTrace(spec, query, key, value, mass, torch.zeros(heads, decode), cos=table.cos(), sin=table.sin())
    lse = torch.cat([trace.logits(slice(t, t + 16)).logsumexp(-1) for t in range(0, decode, 16)], dim=-1)
    return LayerOf(shape, LayerTrace(spec, query, key, value, mass, lse, cos=table.cos(), sin=table.sin()))
