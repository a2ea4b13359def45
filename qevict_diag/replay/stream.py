"""Blocks of layers and of decode queries: the memory-bounded stream that every replay reads.

A `LayerBlock` stacks the recorded tensors of some layers. `stream` yields, block of queries by block of queries, the
FullKV mass of the windows of every requested grid, and the mass they have with dequantized keys. Logits of a block are
one matrix product; a coarse grid is summed from a finer one where their windows nest.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from qevict_diag.cache.windows import Grid, sum_groups
from qevict_diag.errors import MetricError
from qevict_diag.replay.blocks import LayerBlock
from qevict_diag.replay.plan import GridKey


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
            "logits of the dequantized keys exceed the recorded normalizer beyond this precision; "
            "use --arithmetic float64"
        )
    return mass


def born_before(born: Tensor) -> Tensor:
    """Mass on the first j positions born while decoding, Σ_{i < j} A[t, P+i]: [.., decode] -> [.., decode + 1]."""
    return pad(born, (1, 0)).cumsum_(-1)
