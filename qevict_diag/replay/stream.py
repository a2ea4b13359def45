"""The memory-bounded stream that every replay reads: attention masses, block of decode queries by block.

`stream` yields the FullKV mass of the windows of every requested cut, and the mass that they have with the keys that a
quantized tier gives back. Logits of a block are one matrix product; a coarse grid is summed from a finer one where
their windows nest.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from qevict_diag.cache.windows import Grid, sum_groups
from qevict_diag.errors import MetricError
from qevict_diag.replay.blocks import LayerBlock, block_queries
from qevict_diag.replay.plan import Cut, MassKey, Plan


@dataclass(frozen=True, eq=False)
class QueryBlock:
    """What one block of decode queries gave to the sequence, for all layers of a `LayerBlock`."""

    queries: range  # decode query numbers
    full: dict[Cut, Tensor]  # FullKV mass [layer, head, query, window]
    quantized: dict[MassKey, Tensor]  # the same with restored keys, on the same normalizer
    reach: Tensor  # [layer] see `LayerBlock.reach`
    sinks: dict[int, Tensor]  # S -> [layer, head, query] mass of the S sink positions
    sink_share: Tensor  # [layer, head, query] mass of a learned sink logit
    prompt: dict[int, Tensor]  # S -> [layer, head, query] mass of the prompt without its sinks
    born_before: Tensor  # [layer, head, query, decode + 1] mass of the first j positions born while decoding


def stream(block: LayerBlock, plans: Sequence[Plan], *, quantized: bool = True) -> Iterator[QueryBlock]:
    """Yield the decode queries in blocks that hold whole intervals of every plan."""
    grids = {plan.cut: plan.grid for plan in plans}
    keys = dict.fromkeys(plan.key for plan in plans if quantized and plan.key is not None)
    sources = _Sources.of(block, grids, keys)
    step = block_queries([plan.grid.every for plan in plans], block.decode)
    for start in range(0, block.decode, step):
        yield sources.masses(slice(start, min(start + step, block.decode)))


@dataclass(frozen=True, eq=False)
class _Sources:
    """The keys that the masses of all blocks are computed from; those behind the fewest sinks of any cut."""

    block: LayerBlock
    grids: dict[Cut, Grid]
    sinks: int
    original: Tensor
    restored: dict[MassKey, Tensor]

    @classmethod
    def of(cls, block: LayerBlock, grids: dict[Cut, Grid], keys: Iterable[MassKey]) -> "_Sources":
        sinks, widest = min(cut.sinks for cut in grids), max(cut.window for cut in grids)
        restored = {
            key: _history(block.restored_key(grids[key.cut], key.quantizer), key.cut.sinks, widest) for key in keys
        }
        return cls(block, grids, sinks, _history(block.key, sinks, widest), restored)

    def masses(self, queries: slice) -> QueryBlock:
        block, first = self.block, self.sinks
        history = block.attention(self.original, queries, first)
        sinks = block.attention(block.key[:, :, :first], queries).sum(-1)
        prompt, some = block.prefill - first, sorted({cut.sinks for cut in self.grids})
        return QueryBlock(
            queries=range(queries.start, queries.stop),
            full=_nested_masses(history, first, self.grids),
            quantized={
                key: self.grids[key.cut].sum_windows(_finite(block.attention(keys, queries, key.cut.sinks)))
                for key, keys in self.restored.items()
            },
            reach=block.reach,
            sinks={n: sinks + history[..., : n - first].sum(-1) if n > first else sinks for n in some},
            sink_share=block.sink_share(queries),
            prompt={n: history[..., n - first : prompt].sum(-1) for n in some},
            born_before=_born_before(history[..., prompt : prompt + block.decode]),
        )


def _history(key: Tensor, sinks: int, widest: int) -> Tensor:
    """Keys behind the sinks, padded to whole windows of the widest grid so that sums need no copy."""
    history = key[:, :, sinks:]
    return pad(history, (0, 0, 0, -history.shape[2] % widest)).contiguous()


def _nested_masses(history: Tensor, first: int, grids: dict[Cut, Grid]) -> dict[Cut, Tensor]:
    """Masses by window of every cut, from positions ``first`` on; coarse windows from the finest that divide them."""
    masses: dict[Cut, Tensor] = {}
    for cut in sorted(grids, key=lambda cut: (cut.sinks, cut.window)):
        nested = [done.window for done in masses if done.sinks == cut.sinks and cut.window % done.window == 0]
        if nested:
            masses[cut] = sum_groups(masses[Cut(max(nested), cut.sinks)], cut.window // max(nested))
        else:
            masses[cut] = grids[cut].sum_windows(history[..., cut.sinks - first :])
    return masses


def _born_before(born: Tensor) -> Tensor:
    """Mass on the first j positions born while decoding, Σ_{i < j} A[t, P+i]: [.., decode] -> [.., decode + 1]."""
    return pad(born, (1, 0)).cumsum_(-1)


def _finite(mass: Tensor) -> Tensor:
    if not bool(torch.isfinite(mass.sum())):
        raise MetricError(
            "logits of the dequantized keys exceed the recorded normalizer beyond this precision; "
            "use --arithmetic float64"
        )
    return mass
