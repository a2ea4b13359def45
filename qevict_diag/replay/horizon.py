"""Sums over the horizon of each event: which queries lie in it, and what they give.

An event comes every ``every`` decode queries; the horizon of event r is queries r·every .. r·every + H - 1.
"""

import torch
from torch import Tensor

from qevict_diag.replay.plan import Plan
from qevict_diag.replay.stream import QueryBlock


def attended(plan: Plan, masses: QueryBlock, events: range) -> Tensor:
    """FMM's denominator for each query and event [layer, head, query, event], by reading H."""
    reading, sinks = plan.settings.readings.fmm_denominator, plan.grid.sinks
    if reading == "historical":
        return historical_mass(plan, masses, events)
    if reading == "all":
        total = masses.sinks[sinks] + masses.prompt[sinks] + masses.born_before[..., -1]
        return total[..., None].expand(*total.shape, len(events))
    existing = masses.prompt[sinks][..., None] + at_events(masses.born_before, events, plan.grid.every)
    return existing + masses.sinks[sinks][..., None] if reading == "sinks" else existing


def historical_mass(plan: Plan, masses: QueryBlock, events: range) -> Tensor:
    """Mass on the windows that are historical at each event, [layer, head, query, event].

    Windows become historical in order: what is historical at the first event is added up once, the rest cumulated.
    """
    mass, counts = masses.full[plan.cut], [plan.grid.historical(event) for event in events]
    first, last = counts[0], counts[-1]
    later = torch.nn.functional.pad(mass[..., first:last].cumsum(-1), (1, 0))
    index = torch.tensor(counts, device=mass.device) - first
    return mass[..., :first].sum(-1, keepdim=True) + later[..., index]


def by_interval(per_query: Tensor, every: int) -> Tensor:
    """Split the query axis into events, [.., query, x] -> [.., event, every, x]; a short last one is padded with 0."""
    short = -per_query.shape[-2] % every
    padded = torch.nn.functional.pad(per_query, (0, 0, 0, short)) if short else per_query
    return torch.unflatten(padded, -2, (-1, every))


def band(queries: range, events: range, every: int, horizon: int, device: torch.device) -> Tensor:
    """Which queries lie in the horizon of which events: bool [query, event]."""
    start = every * torch.arange(events.start, events.stop, device=device)
    query = torch.arange(queries.start, queries.stop, device=device)[:, None]
    return (query >= start) & (query < start + horizon)


def events_seeing(queries: range, every: int, horizon: int) -> range:
    """Events with a query of ``queries`` in their horizon."""
    return range(max(0, (queries.start - horizon) // every + 1), -(-queries.stop // every))


def by_event(mass: Tensor, member: Tensor) -> Tensor:
    """Σ_{w member at r} mass of every query: [layer, head, query, event]; heads of a unit share its sets."""
    units = member.shape[1]
    grouped = torch.unflatten(mass, 1, (units, -1)).flatten(2, 3)
    sums = grouped @ member.to(mass.dtype).transpose(-1, -2)
    return torch.unflatten(sums, 2, (-1, mass.shape[2])).flatten(1, 2)


def in_horizon(per_query: Tensor, within: Tensor) -> Tensor:
    """Add up the queries of each event's horizon: [.., query, event] -> [.., event]."""
    return (per_query * within.to(per_query.dtype)).sum(-2)


def at_events(before: Tensor, events: range, every: int) -> Tensor:
    """`QueryBlock.born_before` at each event, Σ_{i < r·every} A[t, P+i]: [.., query, G + 1] -> [.., query, event]."""
    return before[..., every * events.start : every * (events.stop - 1) + 1 : every]
