"""Reference scores C_r (definitions.md, section 3): the FullKV attention that each window has collected."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from qevict_diag.replay.blocks import LayerBlock
from qevict_diag.replay.fold import EVENT_AXIS, Fold, concatenate
from qevict_diag.replay.horizon import by_interval
from qevict_diag.replay.plan import Plan
from qevict_diag.replay.stream import QueryBlock


@dataclass(frozen=True, eq=False)
class Reference:
    """FullKV mass of each window, added up over the heads of its unit."""

    cumulative: Tensor  # [layer, unit, event, window] C_r, up to the event
    interval: Tensor  # [layer, unit, event, window] of the queries after the event
    sinks: Tensor  # [layer, unit, event] of the sinks, up to the event


@dataclass(frozen=True, eq=False)
class _Sums:
    cumulative: Tensor  # float64 [layer, unit, window]
    sinks: Tensor  # float64 [layer, unit]
    parts: tuple[Reference, ...] = ()


@final
@dataclass(frozen=True)
class ReferenceScores(Fold):
    """Adds up what the prompt and each interval give to every window, whoever keeps it."""

    def shared(self, plan: Plan) -> Hashable:
        """All policies with the same windows, events and sets."""
        return self, plan.grid, plan.units

    def start(self, plan: Plan, block: LayerBlock) -> _Sums:
        """The prompt's column sums."""
        mass = block.prompt_mass
        everywhere = torch.nn.functional.pad(mass, (0, plan.grid.length - mass.shape[-1]))
        windows = plan.per_unit(plan.grid.by_window(everywhere)).sum(2)
        return _Sums(windows, plan.per_unit(mass[..., : plan.grid.sinks].sum(-1)).sum(2))

    def add(self, plan: Plan, state: _Sums, masses: QueryBlock, tier: Tensor, ledger: Tensor) -> _Sums:
        """Add the block's intervals."""
        every = plan.grid.every
        interval = by_interval(plan.per_unit(masses.full[plan.cut]).sum(2), every).sum(-2)
        sinks = by_interval(plan.per_unit(masses.sinks[plan.grid.sinks]).sum(2)[..., None], every).sum((-2, -1))
        before = torch.cat((state.cumulative[:, :, None], interval.double()), dim=2).cumsum(2)
        sinks_before = torch.cat((state.sinks[:, :, None], sinks.double()), dim=2).cumsum(2)
        part = Reference(before[:, :, :-1].to(interval.dtype), interval, sinks_before[:, :, :-1].to(interval.dtype))
        return _Sums(before[:, :, -1], sinks_before[:, :, -1], (*state.parts, part))

    def finish(self, plan: Plan, state: _Sums) -> Reference:
        """All events."""
        whole: Reference = concatenate(list(state.parts), EVENT_AXIS)
        return whole


REFERENCE = ReferenceScores()
