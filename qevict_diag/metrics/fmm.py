"""Future Missed Mass (definitions.md, section 7; paper I.2).

    FMM_r = Σ_{t=rΩ}^{rΩ+H-1} Σ_{i in E_r} A[t,i]  /  Σ_{t=rΩ}^{rΩ+H-1} Σ_{S <= i < n_r} A[t,i]

Both sums run over the horizon of event r; they are folded block by block, so these functions give partial sums.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad


def band(queries: range, events: range, window: int, horizon: int, device: torch.device) -> Tensor:
    """Which queries lie in the horizon of which events, rΩ <= t < rΩ + H: bool [query, event]."""
    start = window * torch.arange(events.start, events.stop, device=device)
    query = torch.arange(queries.start, queries.stop, device=device)[:, None]
    return (query >= start) & (query < start + horizon)


def events_seeing(queries: range, window: int, horizon: int) -> range:
    """Events with a query of ``queries`` in their horizon, rΩ <= t < rΩ + H for some t."""
    return range(max(0, (queries.start - horizon) // window + 1), -(-queries.stop // window))


def missed(mass: Tensor, inaccessible: Tensor, within: Tensor) -> Tensor:
    """Σ_{t in the horizon} Σ_{w inaccessible after r} mass: [layer, head, event].

    ``mass`` [layer, head, query, window], ``inaccessible`` [layer, unit, event, window], ``within`` [query, event].
    """
    return in_horizon(by_event(mass, inaccessible), within)


def by_event(mass: Tensor, member: Tensor) -> Tensor:
    """Σ_{w member at r} mass of every query: [layer, head, query, event]; heads of a unit share its sets."""
    units = member.shape[1]
    grouped = mass.unflatten(1, (units, -1)).flatten(2, 3)
    sums = grouped @ member.to(mass.dtype).transpose(-1, -2)
    return sums.unflatten(2, (-1, mass.shape[2])).flatten(1, 2)


def in_horizon(per_query: Tensor, within: Tensor) -> Tensor:
    """Add up the queries of each event's horizon: [.., query, event] -> [.., event]."""
    return (per_query * within.to(per_query.dtype)).sum(-2)


def born_before(born: Tensor) -> Tensor:
    """Mass on the first j positions born while decoding, Σ_{i < j} A[t, P+i]: [.., decode] -> [.., decode + 1]."""
    return pad(born, (1, 0)).cumsum_(-1)


def at_events(before: Tensor, events: range, window: int) -> Tensor:
    """`born_before` at each event, Σ_{i < rΩ} A[t, P+i]: [.., query, decode + 1] -> [.., query, event]."""
    return before[..., window * events.start : window * (events.stop - 1) + 1 : window]


def ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Numerator / denominator, NaN where the denominator is 0 (undefined, and not counted)."""
    return torch.where(denominator == 0, torch.nan, numerator / torch.where(denominator == 0, 1, denominator))
