"""The grid of windows and the regions of a sequence (definitions.md, section 2). Integers only.

Window ``w`` holds positions [S + wΩ, S + (w+1)Ω). At length n it is *historical* once S + (w+1)Ω <= n - R; what is
neither sink nor historical is *local*. Windows become historical in order, so the historical ones are 0 .. count-1.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from qevict_diag.errors import BudgetError


@dataclass(frozen=True)
class Grid:
    """Windows of Ω = ``window`` tokens over a sequence of P + G tokens with S sinks and R recent tokens.

    Events come every ``interval`` decode queries (None: every Ω, as in the paper). With ``prompt_only`` nothing is
    routed after the prompt: windows that complete later stay local for ever.
    """

    prefill: int
    decode: int
    window: int
    sinks: int = 5
    recent: int = 32
    interval: int | None = None
    prompt_only: bool = False

    def __post_init__(self) -> None:
        if self.window < 1 or self.sinks < 0 or self.recent < 0:
            raise BudgetError(f"window {self.window}, sinks {self.sinks}, recent {self.recent}: need >= 1, >= 0, >= 0")
        if self.sinks + self.recent > self.prefill:
            raise BudgetError(
                f"a prompt of {self.prefill} tokens cannot hold {self.sinks} sinks and {self.recent} recent tokens; "
                "lower --sinks or --recent, or record with a longer --prefill"
            )

    @property
    def every(self) -> int:
        """Decode queries from one event to the next."""
        return self.window if self.interval is None else self.interval

    @property
    def length(self) -> int:
        """Final length T."""
        return self.prefill + self.decode

    @property
    def count(self) -> int:
        """Windows that cover positions S .. T-1; the last one may be incomplete."""
        return -(-(self.length - self.sinks) // self.window)

    @property
    def events(self) -> int:
        """Routing events: r = 0, 1, .. while r·interval < G."""
        return -(-self.decode // self.every)

    def length_at(self, event: int) -> int:
        """n_r = P + r·interval."""
        return self.prefill + event * self.every

    def complete(self, event: int) -> int:
        """Number of windows that hold Ω tokens at event ``event``."""
        return (self.length_at(event) - self.sinks) // self.window

    def historical(self, event: int) -> int:
        """Number of windows that have left the recent region at event ``event``; none before event 0."""
        if event < 0:
            return 0
        return max(0, (self.length_at(0 if self.prompt_only else event) - self.recent - self.sinks) // self.window)

    def local(self, event: int) -> int:
        """Local tokens right after an event: n_r less the sinks and the historical windows."""
        return self.length_at(event) - self.sinks - self.historical(event) * self.window

    def historical_mask(self) -> Tensor:
        """Which windows are historical at which event: bool [event, window]."""
        counts = torch.tensor([self.historical(event) for event in range(self.events)])
        return torch.arange(self.count) < counts[:, None]

    def complete_mask(self) -> Tensor:
        """Which windows are complete at which event: bool [event, window]."""
        counts = torch.tensor([self.complete(event) for event in range(self.events)])
        return torch.arange(self.count) < counts[:, None]

    def eligible(self, horizon: int) -> int:
        """Number of events whose whole horizon lies inside the trace, r·interval + H <= G."""
        return max(0, min(self.events, (self.decode - horizon) // self.every + 1))

    def full_intervals(self) -> int:
        """Number of events followed by a whole interval of decode queries."""
        return self.decode // self.every

    def by_window(self, per_position: Tensor) -> Tensor:
        """Sum [..., position] over the positions of each window: [..., window]. Sinks fall away."""
        return self.sum_windows(per_position[..., self.sinks :])

    def sum_windows(self, history: Tensor) -> Tensor:
        """Sum the positions behind the sinks, possibly padded with zeros, by window: [..., window]."""
        return sum_groups(history, self.window)[..., : self.count]

    def positions(self, windows: Tensor) -> Tensor:
        """Positions of the given complete windows, [..., window] -> [..., window, Ω]."""
        return self.sinks + windows[..., None] * self.window + torch.arange(self.window, device=windows.device)


def sum_groups(x: Tensor, size: int) -> Tensor:
    """Sum runs of ``size`` entries of the last axis, the last run possibly shorter: [..., n] -> [..., ceil(n/size)]."""
    if size == 1:
        return x
    short = -x.shape[-1] % size
    groups = torch.unflatten(F.pad(x, (0, short)) if short else x, -1, (-1, size))
    return groups @ groups.new_ones(size)  # a product with ones is the fastest sum of short rows
