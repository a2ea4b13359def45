"""Layers of a trace, stacked in blocks that fit into memory, on the device that is asked for."""

from collections.abc import Iterator, Sequence

import torch

from qevict_diag.devices import torch_device
from qevict_diag.replay.plan import Plan, Settings
from qevict_diag.replay.stream import LayerBlock, block_queries
from qevict_diag.trace.layer import Recorded, TraceShape

KEPT = 4  # numbers for each event and window: cumulative and interval mass, tiers, and what measuring makes of them


def layer_blocks(
    trace: Recorded, layers: Sequence[int], plans: Sequence[Plan], settings: Settings
) -> Iterator[LayerBlock]:
    """Load layers of one shape in blocks whose attention masses stay below ``settings.block_bytes``."""
    device = torch_device(settings.device)
    size = layers_per_block(trace.layer_shape(layers[0]), plans, settings)
    for start in range(0, len(layers), size):
        traces = tuple(trace.layer(layer) for layer in layers[start : start + size])
        yield LayerBlock(traces, device, settings.dtype)


def layers_per_block(shape: TraceShape, plans: Sequence[Plan], settings: Settings) -> int:
    """How many layers fit into a block: attention of its queries and keys, and what every plan keeps of its events."""
    queries = block_queries([plan.grid.window for plan in plans], shape.decode)
    kinds = 1 + len({plan.key for plan in plans})
    per_layer = kinds * shape.length * (2 * shape.heads * queries + shape.kv_heads * shape.head_dim)
    kept = sum(plan.units * plan.grid.events * plan.grid.count for plan in plans)
    bytes_per_layer = (per_layer + KEPT * kept) * torch.finfo(settings.dtype).bits // 8
    return max(1, settings.block_bytes // bytes_per_layer)
