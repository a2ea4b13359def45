"""A policy made concrete on a trace: its rules, and the settings it runs under."""

from collections.abc import Hashable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from qevict_diag.cache.budget import Budget, Capacity, Geometry, capacity
from qevict_diag.cache.tier import Tier
from qevict_diag.cache.windows import Grid
from qevict_diag.policies.policy import Policy
from qevict_diag.policies.ranking import Estimator
from qevict_diag.policies.step import Rules
from qevict_diag.quantizers.quantizer import Quantizer
from qevict_diag.replay.settings import Settings
from qevict_diag.trace.layer import TraceShape


@dataclass(frozen=True)
class Cut:
    """How a policy cuts the sequence: windows of ``window`` tokens behind ``sinks`` sinks."""

    window: int
    sinks: int


@dataclass(frozen=True)
class MassKey:
    """Which quantized masses a policy reads."""

    cut: Cut
    quantizer: Quantizer


@dataclass(frozen=True)
class Plan:
    """A policy on a grid, with its capacities; ``units`` sets of windows per layer (reading A, or the policy's own)."""

    rules: Rules
    quantizer: Quantizer | None  # of its quantized tier, when that has room
    scope: str
    settings: Settings
    sharing: int = 1  # sets that divide the bytes of a key-value head

    @property
    def policy(self) -> Policy:
        """The policy."""
        return self.rules.policy

    @property
    def grid(self) -> Grid:
        """Its windows and events."""
        return self.rules.grid

    @property
    def capacity(self) -> Capacity:
        """Its capacities and byte counts."""
        return self.rules.capacity

    @property
    def units(self) -> int:
        """Sets of windows per layer."""
        return self.rules.units

    @property
    def cut(self) -> Cut:
        """The masses this plan reads."""
        return Cut(self.grid.window, self.grid.sinks)

    @property
    def key(self) -> MassKey | None:
        """The quantized masses this plan reads; None when its quantized tier has no room."""
        return None if self.quantizer is None else MassKey(self.cut, self.quantizer)

    @property
    def decisive(self) -> Hashable:
        """What a policy's decisions follow from; plans for which it is equal decide alike.

        For a causal policy its rules: its choices (but for its name, and whether metrics count its quantized windows as
        readable), its capacities, and the readings that change decisions. An oracle ranks by the measurement itself, so
        all of its settings are decisive.
        """
        if not isinstance(self.policy.ranking, Estimator):
            return self
        policy = replace(self.policy, name="any", summary="", source="", readable=True)
        readings = self.rules.readings.deciding(quantizes=self.quantizer is not None)
        return replace(self.rules, policy=policy, readings=readings), self.quantizer, self.scope

    def measured(self, tier: Tensor) -> Tensor:
        """Tiers as the metrics see them: a policy that cannot read its quantized windows has lost them."""
        if self.policy.readable:
            return tier
        return torch.where(tier == Tier.QUANTIZED, Tier.EVICTED, tier)

    def per_unit(self, per_head: Tensor) -> Tensor:
        """Split the head axis, [layer, head, ..] -> [layer, unit, head, ..]."""
        return torch.unflatten(per_head, 1, (self.units, -1))


def make_plan(policy: Policy, shape: TraceShape, settings: Settings) -> Plan:
    """Grid and capacities of a policy on a trace's shape; BudgetError when they don't fit together.

    A policy that keeps a set for each query head by its own choice divides the bytes of a key-value head among the
    heads that read it, so that what stays resident is within the budget; reading A gives each set the whole of them.
    """
    budget, schedule = protecting(settings.budget, policy, shape.length), policy.schedule
    grid = Grid(
        *(shape.prefill, shape.decode, policy.grain, budget.sinks, budget.recent),
        *(schedule.interval, schedule.prompt_only),
    )
    geometry = Geometry(shape.prefill, shape.decode, shape.head_dim, shape.value_dim, settings.element_size)
    quantizer = quantizer_of(policy, settings)
    sharing = shape.heads // shape.kv_heads if policy.scope == "head" else 1
    room = capacity(budget, geometry, policy.grain, quantizer, sharing)
    if not policy.evicts:
        room = replace(room, full=grid.count, quantized=0)
    scope = policy.scope or settings.readings.scope
    units = {"layer": 1, "kv_head": shape.kv_heads, "head": shape.heads}[scope]
    rules = Rules(policy, grid, room, units, settings.readings)
    return Plan(rules, quantizer if room.quantized else None, scope, settings, sharing)


def protecting(budget: Budget, policy: Policy, length: int) -> Budget:
    """The budget with the sinks and recent tokens that the policy protects, of a sequence of ``length`` tokens."""
    own = policy.protected
    recent = own.recent if own.recent_share is None else int(own.recent_share * int(budget.ratio * length))
    return replace(
        budget,
        sinks=budget.sinks if own.sinks is None else own.sinks,
        recent=budget.recent if recent is None else recent,
    )


def quantizer_of(policy: Policy, settings: Settings) -> Quantizer | None:
    """The policy's quantizer with the bits and the levels of the settings; None with two tiers."""
    return policy.quantizer and policy.quantizer.under(settings.budget.bits, settings.readings)
