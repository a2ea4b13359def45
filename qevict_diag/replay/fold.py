"""What is kept of a replay: the sums that metrics need, folded block by block in bounded memory."""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from qevict_diag.cache.tier import Tier
from qevict_diag.metrics.agreement import Agreement, agreement, replaced_normalizer
from qevict_diag.metrics.fmm import at_events, band, by_event, events_seeing, in_horizon, missed
from qevict_diag.policies.view import reciprocal
from qevict_diag.replay.plan import Plan
from qevict_diag.replay.stream import QueryBlock

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
    agreement: Agreement | None = None  # [layer, head, event] over full intervals


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
            compared = compare(self.plan, masses, tier[:, :, first:], ledger[:, :, first:])
        self.parts.append(Observations(agreement=compared, **reference))

    def finish(self) -> Observations:
        """Everything that was asked for, over all events."""
        joined = concatenate(self.parts, EVENT_AXIS)
        if not self.save.missed:
            return joined
        return Observations(**{**vars(joined), "missed": self.missed, "attended": self.attended})

    def _add_missed(self, masses: QueryBlock, tier: Tensor) -> None:
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


def attended(plan: Plan, masses: QueryBlock, events: range) -> Tensor:
    """FMM's denominator for each query and event [layer, head, query, event], by reading H."""
    window = plan.grid.window
    reading = plan.settings.readings.fmm_denominator
    if reading == "historical":
        mask = plan.grid.historical_mask()[events.start : events.stop].to(masses.prompt.device)
        return by_event(masses.full[window], mask.expand(masses.prompt.shape[0], 1, *mask.shape))
    if reading == "all":
        total = masses.sinks + masses.prompt + masses.born_before[..., -1]
        return total[..., None].expand(*total.shape, len(events))
    existing = masses.prompt[..., None] + at_events(masses.born_before, events, window)
    return existing + masses.sinks[..., None] if reading == "sinks" else existing


def by_interval(per_query: Tensor, window: int) -> Tensor:
    """Split the query axis into events, [.., query, x] -> [.., event, Ω, x]; a short last interval is padded with 0."""
    short = -per_query.shape[-2] % window
    padded = torch.nn.functional.pad(per_query, (0, 0, 0, short)) if short else per_query
    return padded.unflatten(-2, (-1, window))


def compare(plan: Plan, masses: QueryBlock, tier: Tensor, ledger: Tensor) -> Agreement:
    """QSA's sums of the full intervals of a block, [layer, head, event]; ``tier`` and ``ledger`` of its events."""
    window = plan.grid.window
    events = len(masses.queries) // window
    full, quantized = (
        plan.per_unit(mass[:, :, : events * window]).unflatten(-2, (events, window))
        for mass in (masses.full[window], masses.quantized[plan.key])
    )
    member, tier, ledger = (
        mask[:, :, None, :events, None] for mask in (tier == Tier.QUANTIZED, tier, ledger)
    )  # [layer, unit, head, event, query, window]
    if plan.settings.readings.qsa_support == "accessible":
        always = plan.per_unit((masses.sinks + masses.sink_share)[..., : events * window])
        seen = torch.where(tier == Tier.EVICTED, 0, torch.where(ledger, quantized, full)).sum(-1)
        normalizer = seen + always.unflatten(-1, (events, window))
    else:
        normalizer = replaced_normalizer(full, quantized, member)
    scores = (quantized * reciprocal(normalizer)[..., None]).sum(-2)
    found = agreement(scores, full.sum(-2), member.squeeze(-2))
    return Agreement(**{f.name: getattr(found, f.name).flatten(1, 2) for f in fields(found)})


def concatenate(parts: list, axis: int) -> Any:
    """Concatenate the tensors of equal (nested) frozen dataclasses along ``axis``, field by field; None stays None."""
    first = parts[0]
    if first is None:
        return None
    if isinstance(first, Tensor):
        return torch.cat(parts, axis)
    return type(first)(**{f.name: concatenate([getattr(p, f.name) for p in parts], axis) for f in fields(first)})
