"""Blocks of layers and of decode queries: the memory-bounded stream that every replay reads.

A `LayerBlock` stacks the recorded tensors of some layers. `stream` yields, block of queries by block of queries, the
FullKV mass of the windows of every requested grid, and the mass they have with dequantized keys. Logits of a block are
one matrix product; a coarse grid is summed from a finer one where their windows nest.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import lcm

import torch
from torch import Tensor

from qevict_diag.cache.windows import Grid, sum_groups
from qevict_diag.errors import MetricError
from qevict_diag.metrics.fmm import born_before
from qevict_diag.quantizers.minmax import TOKEN_AXIS, dequantize, quantize
from qevict_diag.trace.layer import LayerTrace


@dataclass(frozen=True)
class GridKey:
    """Which masses a policy needs: the window size, and the bits of its quantized tier (None: two tiers)."""

    window: int
    bits: int | None = None


@dataclass(frozen=True, eq=False)
class LayerBlock:
    """Recorded tensors of some layers, stacked: [layer, head or kv_head, query or position, channel]."""

    traces: tuple[LayerTrace, ...]
    device: torch.device
    dtype: torch.dtype

    @property
    def layers(self) -> tuple[int, ...]:
        """Layer numbers as in the model."""
        return tuple(trace.spec.layer for trace in self.traces)

    @property
    def prefill(self) -> int:
        """Prompt length P."""
        return self.traces[0].prefill

    @property
    def decode(self) -> int:
        """Decode queries G."""
        return self.traces[0].decode

    @property
    def heads(self) -> int:
        """Query heads H."""
        return self.traces[0].query.shape[0]

    @property
    def head_numbers(self) -> tuple[int, ...]:
        """Numbers of the query heads, as in the model."""
        return self.traces[0].head_numbers

    @property
    def kv_head_numbers(self) -> tuple[int, ...]:
        """Numbers of the key-value heads, as in the model."""
        return self.traces[0].kv_head_numbers

    @property
    def sight(self) -> Tensor:
        """How many positions a query of each layer sees at most, int64 [layer]: its sliding window, or all of them."""
        length = self.prefill + self.decode
        seen = [min(trace.spec.sliding_window or length, length) for trace in self.traces]
        return torch.tensor(seen, device=self.device)

    @cached_property
    def query(self) -> Tensor:
        """[layer, head, query, channel], times the layer's scaling."""
        scaling = torch.tensor([trace.spec.scaling for trace in self.traces], dtype=self.dtype)
        return self.stack([trace.query for trace in self.traces]) * scaling.to(self.device)[:, None, None, None]

    @cached_property
    def key(self) -> Tensor:
        """[layer, kv_head, position, channel] as the attention saw them."""
        return self.stack([trace.key for trace in self.traces])

    @cached_property
    def lse(self) -> Tensor:
        """[layer, head, query] recorded log-sum-exp."""
        return self.stack([trace.lse for trace in self.traces])

    @cached_property
    def prompt_mass(self) -> Tensor:
        """[layer, head, prompt position] float64 column sums."""
        return torch.stack([trace.prompt_mass for trace in self.traces]).to(self.device).double()

    def sink_share(self, queries: slice) -> Tensor:
        """exp(sink logit - lse) [layer, head, query]: what a learned sink takes; 0 without one."""
        lse = self.lse[..., queries]
        if all(trace.spec.sink_logits is None for trace in self.traces):
            return torch.zeros_like(lse)
        absent = (float("-inf"),) * self.heads
        logits = torch.tensor([trace.spec.sink_logits or absent for trace in self.traces], dtype=self.dtype)
        return torch.exp(logits.to(self.device)[..., None] - lse)

    def dequantized_key(self, grid: Grid, bits: int) -> Tensor:
        """Keys after the write-once round trip: each complete window quantized pre-RoPE per channel, then re-rotated.

        The tail that fills no window keeps its original keys. [layer, kv_head, position, channel].
        """
        return self.stack([_round_trip(trace, grid, bits) for trace in self.traces])

    def norm(self, name: str) -> Tensor:
        """L2 norm of every recorded ``key`` or ``value``: [layer, kv_head, position] float64.

        MetricError for imported rows, which have neither.
        """
        if any(trace.imported for trace in self.traces):
            raise MetricError(f"imported rows have no {name}s, so nothing can be ranked by their norm")
        return torch.stack([getattr(trace, name).double().norm(dim=-1) for trace in self.traces]).to(self.device)

    def attention(self, key: Tensor, queries: slice, start: int = 0) -> Tensor:
        """exp(logits - lse) [layer, head, query, position] of a range of queries, 0 where a position is invisible.

        ``key`` holds the positions from ``start`` on; what it holds beyond the last position counts as invisible.
        """
        layers, kv_heads = key.shape[:2]
        query = self.query[:, :, queries]
        grouped = query.reshape(layers, kv_heads, -1, query.shape[-1])
        logits = (grouped @ key.transpose(-1, -2)).view(layers, self.heads, query.shape[2], -1)
        self._softcap(logits)
        mass = logits.sub_(self.lse[..., queries, None]).exp_()
        return self._hide(mass, queries, start)

    def stack(self, tensors: Sequence[Tensor]) -> Tensor:
        """Stack on the working device in the working dtype."""
        return torch.stack([t.to(self.device, self.dtype) for t in tensors])

    def _softcap(self, logits: Tensor) -> None:
        for index, trace in enumerate(self.traces):
            if trace.spec.softcap is not None:
                logits[index].div_(trace.spec.softcap).tanh_().mul_(trace.spec.softcap)

    def _hide(self, mass: Tensor, queries: slice, start: int) -> Tensor:
        positions = torch.arange(self.prefill + queries.start, self.prefill + queries.stop, device=mass.device)
        distance = positions[:, None] - torch.arange(start, start + mass.shape[-1], device=mass.device)
        born = slice(max(0, self.prefill - start), None)  # every decode query sees the whole prompt,
        mass[..., born].masked_fill_(distance[:, born] < 0, 0)
        for index, trace in enumerate(self.traces):  # unless a sliding window hides it
            if trace.spec.sliding_window is not None:
                mass[index].masked_fill_(distance >= trace.spec.sliding_window, 0)
        return mass


@dataclass(frozen=True, eq=False)
class QueryBlock:
    """What one block of decode queries gave to the sequence, for all layers of a `LayerBlock`."""

    queries: range  # decode query numbers
    full: dict[int, Tensor]  # Ω -> FullKV mass [layer, head, query, window]
    quantized: dict[GridKey, Tensor]  # the same with dequantized keys, on the same normalizer
    sight: Tensor  # [layer] see `LayerBlock.sight`
    sinks: Tensor  # [layer, head, query] mass of the S sink positions
    sink_share: Tensor  # [layer, head, query] mass of a learned sink logit
    prompt: Tensor  # [layer, head, query] mass of the prompt without its sinks
    born_before: Tensor  # [layer, head, query, decode + 1] mass of the first j positions born while decoding


def stream(block: LayerBlock, keys: Sequence[GridKey], grids: dict[int, Grid], queries: int) -> Iterator[QueryBlock]:
    """Yield the decode queries in blocks of at most ``queries`` (a multiple of every Ω)."""
    sinks = next(iter(grids.values())).sinks
    original = _history(block.key, sinks, grids)
    dequantized = {
        key: _history(block.dequantized_key(grids[key.window], key.bits), sinks, grids)
        for key in keys
        if key.bits is not None
    }
    for start in range(0, block.decode, queries):
        yield _query_block(block, slice(start, min(start + queries, block.decode)), original, dequantized, grids)


def _history(key: Tensor, sinks: int, grids: dict[int, Grid]) -> Tensor:
    """Keys behind the sinks, padded to whole windows of the widest grid so that sums need no copy."""
    history = key[:, :, sinks:]
    return torch.nn.functional.pad(history, (0, 0, 0, -history.shape[2] % max(grids))).contiguous()


def _query_block(
    block: LayerBlock, queries: slice, original: Tensor, dequantized: dict[GridKey, Tensor], grids: dict[int, Grid]
) -> QueryBlock:
    sinks = next(iter(grids.values())).sinks
    history = block.attention(original, queries, sinks)
    prompt = block.prefill - sinks
    return QueryBlock(
        queries=range(queries.start, queries.stop),
        full=_nested_masses(history, grids),
        quantized={
            key: grids[key.window].sum_windows(_finite(block.attention(replaced, queries, sinks)))
            for key, replaced in dequantized.items()
        },
        sight=block.sight,
        sinks=block.attention(block.key[:, :, :sinks], queries).sum(-1),
        sink_share=block.sink_share(queries),
        prompt=history[..., :prompt].sum(-1),
        born_before=born_before(history[..., prompt : prompt + block.decode]),
    )


def _nested_masses(history: Tensor, grids: dict[int, Grid]) -> dict[int, Tensor]:
    masses: dict[int, Tensor] = {}
    for window in sorted(grids):
        finer = max((w for w in masses if window % w == 0), default=None)
        if finer is None:
            masses[window] = grids[window].sum_windows(history)
        else:
            masses[window] = sum_groups(masses[finer], window // finer)
    return masses


def _finite(mass: Tensor) -> Tensor:
    if not bool(torch.isfinite(mass.sum())):
        raise MetricError(
            "logits of the dequantized keys exceed the recorded normalizer beyond this precision; use --dtype float64"
        )
    return mass


def _round_trip(trace: LayerTrace, grid: Grid, bits: int) -> Tensor:
    pre = trace.key_pre_rope()
    kept = grid.sinks + (grid.length - grid.sinks) // grid.window * grid.window
    windows = pre[:, grid.sinks : kept].unflatten(1, (-1, grid.window))
    restored = pre.clone()
    restored[:, grid.sinks : kept] = dequantize(quantize(windows, TOKEN_AXIS, bits)).flatten(1, 2)
    rotated = trace.rotate(restored)
    rotated[:, : grid.sinks], rotated[:, kept:] = trace.key[:, : grid.sinks].float(), trace.key[:, kept:].float()
    return rotated


def block_queries(windows: Sequence[int], decode: int, at_least: int = 32) -> int:
    """Queries per block: the smallest multiple of every Ω that holds ``at_least`` queries, at most ``decode``."""
    step = lcm(*windows)
    return min(decode, step * -(-at_least // step))
