"""One policy's run over some layers: its decisions, and what metrics are computed from."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from qevict_diag.cache.budget import Capacity
from qevict_diag.cache.tier import Tier
from qevict_diag.cache.windows import Grid
from qevict_diag.errors import MetricError
from qevict_diag.policies.policy import Policy
from qevict_diag.replay.fold import LAYER_AXIS, Fold, concatenate
from qevict_diag.replay.plan import Plan


@dataclass(frozen=True, eq=False)
class Replay:
    """One policy's run over some layers: its decisions, and the folds that metrics are computed from.

    ``layers``, ``heads`` and ``kv_heads`` are numbers, as in the model. ``tier`` uint8 [layer, unit, event, window]
    holds `Tier` values; windows that are not historical yet are LOCAL.
    """

    plan: Plan
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    tier: Tensor
    folded: Mapping[Fold, Any]

    @property
    def policy(self) -> Policy:
        """The policy that was replayed."""
        return self.plan.policy

    @property
    def grid(self) -> Grid:
        """Its windows and events."""
        return self.plan.grid

    @property
    def capacity(self) -> Capacity:
        """Its capacities and byte counts."""
        return self.plan.capacity

    @property
    def unit_numbers(self) -> tuple[int | None, ...]:
        """Numbers of the heads that have a set of windows each; None alone when the layer has one set."""
        return {"layer": (None,), "kv_head": self.kv_heads, "head": self.heads}[self.plan.scope]

    @property
    def historical(self) -> Tensor:
        """Which windows are historical at which event, bool [event, window]."""
        return self.grid.historical_mask().to(self.tier.device)

    @property
    def measured(self) -> Tensor:
        """Tiers as the metrics see them, [layer, unit, event, window]: see `Plan.measured`."""
        return self.plan.measured(self.tier)

    @property
    def retained(self) -> Tensor:
        """F ∪ Q as the metrics see them, bool [layer, unit, event, window]."""
        tier = self.measured
        return (tier == Tier.FULL) | (tier == Tier.QUANTIZED)

    @property
    def ledger(self) -> Tensor:
        """Windows with an entry in the quantized ledger at each event, bool [layer, unit, event, window]."""
        quantized = self.tier == Tier.QUANTIZED
        return quantized.to(torch.uint8).cummax(dim=2).values.bool() if self.capacity.quantized else quantized

    def kept(self, fold: Fold) -> Any:
        """What ``fold`` kept; MetricError when the replay was not asked for it."""
        if fold not in self.folded:
            raise MetricError(f"this replay did not keep {fold}; replay with folds=[{fold}]")
        return self.folded[fold]


def join(parts: list[Replay]) -> Replay:
    """Concatenate the layers of several replays of one policy; MetricError when their shapes differ."""
    if any(part.plan != parts[0].plan for part in parts):
        raise MetricError("the layers differ in heads or widths; replay those of one shape, or use replay_blocks")
    return replace(
        parts[0],
        layers=tuple(layer for part in parts for layer in part.layers),
        tier=torch.cat([part.tier for part in parts], LAYER_AXIS),
        folded={fold: concatenate([part.folded[fold] for part in parts], LAYER_AXIS) for fold in parts[0].folded},
    )
