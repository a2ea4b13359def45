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
class Runs:
    """Every inactive episode, one entry each, whatever its length."""

    lane: Tensor  # int64 [run] index over the flattened leading axes
    length: Tensor  # int64 [run] events
    rescued: Tensor  # bool [run] the window was selected right after it
    exited: Tensor  # bool [run] the window was selected right before it

    def eligible(self, min_inactive: int, *, after_exit: bool = False) -> "Runs":
        """Runs of at least ``min_inactive`` events; ``after_exit`` (reading F) drops those that follow no selection."""
        keep = self.length >= min_inactive
        if after_exit:
            keep = keep & self.exited
        return Runs(self.lane[keep], self.length[keep], self.rescued[keep], self.exited[keep])

    def counts(self, lanes: int) -> tuple[Tensor, Tensor]:
        """Rescued and all runs of each lane, int64 [lane]."""
        return torch.bincount(self.lane[self.rescued], minlength=lanes), torch.bincount(self.lane, minlength=lanes)

    def waited(self, min_inactive: int) -> Tensor:
        """Events from eligibility to the return, at least 1, or to the last event of a run still open; int64 [run]."""
        return self.length - min_inactive + self.rescued.long()


def inactive_runs(selected: Tensor, exists: Tensor) -> Runs:
    """Find the inactive episodes of ``selected`` [.., event, window]."""
    events, windows = selected.shape[-2:]
    chosen = selected.reshape(-1, events, windows).transpose(-1, -2)
    idle = exists.expand_as(selected).reshape(-1, events, windows).transpose(-1, -2) & ~chosen
    edges = pad(idle, (1, 1))
    lane, window, start = (edges[..., 1:] & ~edges[..., :-1]).nonzero(as_tuple=True)
    end = (edges[..., :-1] & ~edges[..., 1:]).nonzero(as_tuple=True)[2]  # exclusive; in the order of the starts
    active = pad(chosen, (1, 1))  # shifted by one: never selected before the first event or after the last
    return Runs(lane, end - start, active[lane, window, end + 1], active[lane, window, start])
