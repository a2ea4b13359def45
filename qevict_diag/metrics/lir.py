"""Global LIR (definitions.md, section 7; paper I.4): how often a window returns after sustained inactivity.

``selected`` and ``exists`` are bool [.., event, window]. An inactive episode is a maximal run of events at which a
window exists and is not selected. It is eligible once it has lasted ``m`` events; it is rescued if the window is
selected at any later event. Runs still open at the end stay in the denominator, runs that end before ``m`` are in
neither count.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad


@dataclass(frozen=True, eq=False)
class Episodes:
    """Eligible episodes, one row each: which lane they belong to, how long they waited, whether they returned."""

    lane: Tensor  # int64 [episode] index over the flattened leading axes
    waited: Tensor  # int64 [episode] events from eligibility to the return, or to the end of observation
    rescued: Tensor  # bool [episode]


def episodes(selected: Tensor, exists: Tensor, min_inactive: int, *, after_exit: bool = False) -> Episodes:
    """All eligible episodes of `selected` [.., event, window]; ``after_exit`` (reading F) drops never-active runs.

    The time to return counts from the event at which the episode became eligible and is at least 1.
    """
    lanes = selected.shape[:-2].numel()
    chosen = selected.reshape(lanes, *selected.shape[-2:]).transpose(-1, -2)
    present = exists.expand_as(selected).reshape(lanes, *selected.shape[-2:]).transpose(-1, -2)
    idle = present & ~chosen
    padded = pad(idle, (1, 1))
    lane, window, start = (padded[..., 1:] & ~padded[..., :-1]).nonzero(as_tuple=True)
    _, _, end = (padded[..., :-1] & ~padded[..., 1:]).nonzero(as_tuple=True)  # exclusive; pairs with start, row by row
    events = selected.shape[-2]
    length = end - start
    rescued = (end < events) & chosen[lane, window, end.clamp(max=events - 1)]
    keep = length >= min_inactive
    if after_exit:
        keep &= (start > 0) & chosen[lane, window, (start - 1).clamp(min=0)]
    return Episodes(lane[keep], (length - min_inactive + 1)[keep], rescued[keep])


def lir_counts(found: Episodes, lanes: int) -> tuple[Tensor, Tensor]:
    """Rescued and eligible episodes of each lane, int64 [lane]."""
    eligible = torch.bincount(found.lane, minlength=lanes)
    rescued = torch.bincount(found.lane[found.rescued], minlength=lanes)
    return rescued, eligible
