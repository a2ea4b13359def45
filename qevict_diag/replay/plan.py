"""A policy made concrete on a trace: its grid, its capacities, its units, and the settings it runs under."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from qevict_diag.cache.budget import Capacity, Geometry, capacity
from qevict_diag.cache.tier import Tier
from qevict_diag.cache.windows import Grid
from qevict_diag.policies.policy import Policy
from qevict_diag.replay.settings import Settings
from qevict_diag.trace.layer import TraceShape


@dataclass(frozen=True)
class GridKey:
    """Which masses a policy needs: the window size, and the bits of its quantized tier (None: two tiers)."""

    window: int
    bits: int | None = None


@dataclass(frozen=True)
class Plan:
    """A policy on a grid, with its capacities; ``units`` sets of windows per layer (reading A)."""

    policy: Policy
    grid: Grid
    capacity: Capacity
    units: int
    settings: Settings

    @property
    def key(self) -> GridKey:
        """The masses this plan reads: quantized ones only when its quantized tier has room."""
        return GridKey(self.grid.window, self.settings.budget.bits if self.capacity.quantized else None)

    def measured(self, tier: Tensor) -> Tensor:
        """Tiers as the metrics see them: a policy that cannot read its quantized windows has lost them."""
        if self.policy.readable:
            return tier
        return torch.where(tier == Tier.QUANTIZED, Tier.EVICTED, tier)

    def per_unit(self, per_head: Tensor) -> Tensor:
        """Split the head axis, [layer, head, ..] -> [layer, unit, head, ..]."""
        return per_head.unflatten(1, (self.units, -1))


def make_plan(policy: Policy, shape: TraceShape, settings: Settings) -> Plan:
    """Grid and capacities of a policy on a trace's shape; BudgetError when they don't fit together."""
    budget = settings.budget
    grid = Grid(shape.prefill, shape.decode, policy.window, budget.sinks, budget.recent)
    geometry = Geometry(shape.prefill, shape.decode, shape.head_dim, shape.value_dim, settings.element_size)
    room = capacity(budget, geometry, policy.window, quantized=policy.quantized)
    if not policy.evicts:
        room = replace(room, full=grid.count, quantized=0)
    units = {"layer": 1, "kv_head": shape.kv_heads, "head": shape.heads}[settings.readings.scope]
    return Plan(policy, grid, room, units, settings)
