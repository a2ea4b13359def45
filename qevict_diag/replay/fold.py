"""What is kept of a replay: the sums that metrics need, folded block by block in bounded memory."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from qevict_diag.cache.tier import Tier
from qevict_diag.replay.horizon import attended, band, by_interval, events_seeing, in_horizon
from qevict_diag.replay.plan import Plan
from qevict_diag.replay.stream import QueryBlock

if TYPE_CHECKING:
    from qevict_diag.metrics.agreement import Agreement

LAYER_AXIS, EVENT_AXIS = 0, 2  # of every observation


@dataclass(frozen=True)
class Save:
    """Which observations a replay keeps besides its decisions."""

    missed: bool = True  # for Future Missed Mass
    reference: bool = True  # for mass shares and the oracle of Global LIR
    agreement: bool = True  # for QSA and R_Q


@dataclass(frozen=True, eq=False)
class Observations:
    """Observed sums; None where `Save` did not ask for them or the policy has no quantized tier."""

    missed: Tensor | None = None  # [layer, head, event] Σ_horizon mass on inaccessible positions
    attended: Tensor | None = None  # [layer, head, event] Σ_horizon of FMM's denominator (reading H)
    reference: Tensor | None = None  # [layer, unit, event, window] C_r, cumulative up to the event
    interval: Tensor | None = None  # [layer, unit, event, window] FullKV mass of the queries after the event
    sinks: Tensor | None = None  # [layer, unit, event] cumulative FullKV mass of the sinks
    agreement: "Agreement | None" = None  # [layer, head, event] over full intervals


class Observer:
    """Folds the blocks of one run; `add` once per block of queries, then `finish`."""

    def __init__(self, plan: Plan, save: Save, prompt_mass: Tensor) -> None:
        self.plan, self.save = plan, save
        layers, heads, prefill = prompt_mass.shape
        self.missed = prompt_mass.new_zeros(layers, heads, plan.grid.events)
        self.attended = torch.zeros_like(self.missed)
        everywhere = torch.nn.functional.pad(prompt_mass, (0, plan.grid.length - prefill))
        self.cumulative = plan.per_unit(plan.grid.by_window(everywhere)).sum(2)
        self.cumulative_sinks = plan.per_unit(prompt_mass[..., : plan.grid.sinks].sum(-1)).sum(2)
        self.parts: list[Observations] = []

    def add(self, masses: QueryBlock, tier: Tensor, ledger: Tensor) -> None:
        """Fold one block; ``tier`` and ``ledger`` [layer, unit, event, window] hold all events so far."""
        first = masses.queries.start // self.plan.grid.window
        tier = self.plan.measured(tier)
        if self.save.missed:
            self._add_missed(masses, tier)
        reference = self._reference(masses) if self.save.reference else {}
        compared = None
        if self.save.agreement and self.plan.key in masses.quantized:
            from qevict_diag.metrics.agreement import compare

            compared = compare(self.plan, masses, tier[:, :, first:], ledger[:, :, first:])
        self.parts.append(Observations(agreement=compared, **reference))

    def finish(self) -> Observations:
        """Everything that was asked for, over all events."""
        joined = concatenate(self.parts, EVENT_AXIS)
        if not self.save.missed:
            return joined
        return Observations(**{**vars(joined), "missed": self.missed, "attended": self.attended})

    def _add_missed(self, masses: QueryBlock, tier: Tensor) -> None:
        from qevict_diag.metrics.fmm import missed

        grid, horizon = self.plan.grid, self.plan.settings.horizon
        events = events_seeing(masses.queries, grid.window, horizon)
        within = band(masses.queries, events, grid.window, horizon, tier.device)
        lost = missed(masses.full[grid.window], tier[:, :, events.start :] == Tier.EVICTED, within)
        self.missed[..., events.start : events.stop] += lost
        self.attended[..., events.start : events.stop] += in_horizon(attended(self.plan, masses, events), within)

    def _reference(self, masses: QueryBlock) -> dict[str, Tensor]:
        window = self.plan.grid.window
        interval = by_interval(self.plan.per_unit(masses.full[window]).sum(2), window).sum(-2)
        sinks = by_interval(self.plan.per_unit(masses.sinks).sum(2)[..., None], window).sum((-2, -1))
        before = torch.cat((self.cumulative[:, :, None], interval.double()), dim=2).cumsum(2)
        sinks_before = torch.cat((self.cumulative_sinks[:, :, None], sinks.double()), dim=2).cumsum(2)
        self.cumulative, self.cumulative_sinks = before[:, :, -1], sinks_before[:, :, -1]
        dtype = interval.dtype
        return {
            "reference": before[:, :, :-1].to(dtype),
            "interval": interval,
            "sinks": sinks_before[:, :, :-1].to(dtype),
        }


def concatenate(parts: list, axis: int) -> Any:
    """Concatenate the tensors of equal (nested) frozen dataclasses along ``axis``, field by field; None stays None."""
    first = parts[0]
    if first is None:
        return None
    if isinstance(first, Tensor):
        return torch.cat(parts, axis)
    return type(first)(**{f.name: concatenate([getattr(p, f.name) for p in parts], axis) for f in fields(first)})
