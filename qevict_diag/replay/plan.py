"""A policy made concrete on a trace: its grid, its capacities, its units, and the settings it runs under."""

from dataclasses import dataclass, field, replace

import polars as pl
import torch
from torch import Tensor

from qevict_diag.cache.budget import Budget, Capacity, Geometry, capacity
from qevict_diag.cache.tier import Tier
from qevict_diag.cache.windows import Grid
from qevict_diag.errors import within
from qevict_diag.policies.policy import DEFINED_BY_WINDOW, POLICIES, Policy
from qevict_diag.readings import Readings
from qevict_diag.replay.stream import GridKey
from qevict_diag.trace.layer import TraceShape

MIB = 2**20


@dataclass(frozen=True)
class Settings:
    """Everything a replay depends on besides the trace and the policy."""

    budget: Budget = field(default_factory=Budget)
    readings: Readings = field(default_factory=Readings)
    horizon: int = 32  # H, decode queries
    element_size: int = 2  # bytes of a cache element at full precision: fp16 or bf16
    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    block_bytes: int = 512 * MIB

    def __post_init__(self) -> None:
        within("horizon", self.horizon, 1)


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


def budget_table(budget: Budget, geometry: Geometry, window: int | None = None) -> pl.DataFrame:
    """Capacities and bytes of every policy that evicts, per layer and key-value head."""
    rows = []
    for policy in POLICIES.values():
        if policy.evicts:
            size = policy.window if window is None or policy.name in DEFINED_BY_WINDOW else window
            room = capacity(budget, geometry, size, quantized=policy.quantized)
            rows.append(
                {
                    "policy": policy.name,
                    "window": room.window,
                    "full_windows": room.full,
                    "quantized_windows": room.quantized,
                    "history_bytes": room.history_bytes,
                    "used_bytes": room.used_bytes,
                    "used_share": room.used_bytes / room.history_bytes,
                    "bits_per_quantized_element": 8 * room.low_window_bytes / (room.window * geometry.widths)
                    if policy.quantized
                    else None,
                }
            )
    return pl.DataFrame(rows)


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
