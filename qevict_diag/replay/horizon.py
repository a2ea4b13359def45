"""Sums over the horizon of each event: which queries lie in it, and what they give."""

import torch
from torch import Tensor

from qevict_diag.replay.plan import Plan
from qevict_diag.replay.stream import QueryBlock


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


def band(queries: range, events: range, window: int, horizon: int, device: torch.device) -> Tensor:
    """Which queries lie in the horizon of which events, rΩ <= t < rΩ + H: bool [query, event]."""
    start = window * torch.arange(events.start, events.stop, device=device)
    query = torch.arange(queries.start, queries.stop, device=device)[:, None]
    return (query >= start) & (query < start + horizon)


def events_seeing(queries: range, window: int, horizon: int) -> range:
    """Events with a query of ``queries`` in their horizon, rΩ <= t < rΩ + H for some t."""
    return range(max(0, (queries.start - horizon) // window + 1), -(-queries.stop // window))


def by_event(mass: Tensor, member: Tensor) -> Tensor:
    """Σ_{w member at r} mass of every query: [layer, head, query, event]; heads of a unit share its sets."""
    units = member.shape[1]
    grouped = mass.unflatten(1, (units, -1)).flatten(2, 3)
    sums = grouped @ member.to(mass.dtype).transpose(-1, -2)
    return sums.unflatten(2, (-1, mass.shape[2])).flatten(1, 2)


def in_horizon(per_query: Tensor, within: Tensor) -> Tensor:
    """Add up the queries of each event's horizon: [.., query, event] -> [.., event]."""
    return (per_query * within.to(per_query.dtype)).sum(-2)


def at_events(before: Tensor, events: range, window: int) -> Tensor:
    """`born_before` at each event, Σ_{i < rΩ} A[t, P+i]: [.., query, decode + 1] -> [.., query, event]."""
    return before[..., window * events.start : window * (events.stop - 1) + 1 : window]
