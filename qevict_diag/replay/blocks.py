"""Layers of a trace, stacked in blocks that fit into memory, on the device that is asked for."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import lcm

import torch
from torch import Tensor

from qevict_diag.attention.logits import cap_, hide_, products
from qevict_diag.cache.windows import Grid
from qevict_diag.devices import torch_device
from qevict_diag.errors import MetricError
from qevict_diag.quantizers.quantizer import Quantizer
from qevict_diag.replay.plan import Plan
from qevict_diag.replay.quantized import restored_keys
from qevict_diag.replay.settings import Settings
from qevict_diag.trace.layer import LayerTrace, Recorded, TraceShape


@dataclass(frozen=True, eq=False)
class LayerBlock:
    """Recorded tensors of some layers, stacked: [layer, head or kv_head, query or position, channel]."""

    traces: tuple[LayerTrace, ...]
    total: int  # layers of the model
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
    def reach(self) -> Tensor:
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

    def restored_key(self, grid: Grid, quantizer: Quantizer) -> Tensor:
        """Keys [layer, kv_head, position, channel] as the quantized tier gives them back: see `restored_keys`."""
        return self.stack([restored_keys(trace, grid, quantizer) for trace in self.traces])

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
        mass = products(self.query[:, :, queries], key)
        for index, trace in enumerate(self.traces):
            cap_(mass[index], trace.spec)
        mass.sub_(self.lse[..., queries, None]).exp_()
        positions = torch.arange(self.prefill + queries.start, self.prefill + queries.stop, device=mass.device)
        for index, trace in enumerate(self.traces):
            hide_(mass[index], positions, trace.spec, start, fill=0)
        return mass

    def stack(self, tensors: Sequence[Tensor]) -> Tensor:
        """Stack on the working device in the working dtype."""
        return torch.stack([t.to(self.device, self.dtype) for t in tensors])


def block_queries(intervals: Iterable[int], decode: int, at_least: int = 32) -> int:
    """Queries per block: the smallest multiple of all intervals that holds ``at_least`` queries, at most ``decode``."""
    step = lcm(*intervals)
    return min(decode, step * -(-at_least // step))


# Bytes for each set, event and window: tier and ledger of every run, two sums of every grid, and what measuring one
# run makes of them.
DECIDED, SUMMED, MEASURED = 2, 8, 32


def layer_blocks(
    trace: Recorded, layers: Sequence[int], plans: Sequence[Plan], settings: Settings
) -> Iterator[LayerBlock]:
    """Load layers of one shape in blocks whose attention masses stay below ``settings.block_bytes``."""
    device = torch_device(settings.device)
    size = layers_per_block(trace.layer_shape(layers[0]), plans, settings)
    for start in range(0, len(layers), size):
        traces = tuple(trace.layer(layer) for layer in layers[start : start + size])
        yield LayerBlock(traces, trace.shape.layers, device, settings.dtype)


def layers_per_block(shape: TraceShape, plans: Sequence[Plan], settings: Settings) -> int:
    """How many layers fit into a block: attention of its queries and keys, and what every plan keeps of its events."""
    queries = block_queries([plan.grid.every for plan in plans], shape.decode)
    kinds = 1 + len({plan.key for plan in plans})
    per_layer = kinds * shape.length * (2 * shape.heads * queries + shape.kv_heads * shape.head_dim)
    masses = per_layer * torch.finfo(settings.dtype).bits // 8
    return max(1, settings.block_bytes // (masses + kept_bytes(plans)))


def kept_bytes(plans: Sequence[Plan]) -> int:
    """Bytes of a layer's decisions and sums, and of measuring the largest of its runs."""
    decided = {plan.decisive: _entries(plan) for plan in plans}
    summed = {(plan.grid, plan.units): _entries(plan) for plan in plans}
    return DECIDED * sum(decided.values()) + SUMMED * sum(summed.values()) + MEASURED * max(summed.values())


def _entries(plan: Plan) -> int:
    return plan.units * plan.grid.events * plan.grid.count
