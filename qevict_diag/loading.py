"""Layers of a trace, stacked in blocks that fit into memory, on the device that is asked for."""

from collections.abc import Iterator, Sequence

import torch

from qevict_diag.blocks import LayerBlock, block_queries
from qevict_diag.errors import InputError
from qevict_diag.layer_trace import Recorded, TraceShape
from qevict_diag.plan import Plan, Settings


def layer_blocks(
    trace: Recorded, layers: Sequence[int], plans: Sequence[Plan], settings: Settings
) -> Iterator[LayerBlock]:
    """Load layers of one shape in blocks whose attention masses stay below ``settings.block_bytes``."""
    device = working_device(settings.device)
    size = layers_per_block(trace.layer_shape(layers[0]), plans, settings)
    for start in range(0, len(layers), size):
        traces = tuple(trace.layer(layer) for layer in layers[start : start + size])
        yield LayerBlock(traces, device, settings.dtype)


def layers_per_block(shape: TraceShape, plans: Sequence[Plan], settings: Settings) -> int:
    """How many layers fit into a block: the attention of its queries and the keys, for each kind of keys."""
    queries = block_queries([plan.grid.window for plan in plans], shape.decode)
    kinds = 1 + len({plan.key for plan in plans})
    per_layer = kinds * shape.length * (2 * shape.heads * queries + shape.kv_heads * shape.head_dim)
    return max(1, settings.block_bytes // (per_layer * torch.finfo(settings.dtype).bits // 8))


def working_device(name: str) -> torch.device:
    """The torch device called ``name``; InputError when this machine does not have it."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {name!r}: not available here; use cpu, or cuda where torch sees a GPU") from error
    return device
