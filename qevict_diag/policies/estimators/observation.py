"""An observation window of the latest queries, as in SnapKV."""

from dataclasses import dataclass
from typing import final

import torch.nn.functional as F
from torch import Tensor

from qevict_diag.errors import within
from qevict_diag.policies.latest import latest
from qevict_diag.policies.ranking import Estimator, State
from qevict_diag.policies.view import Interval, Prompt


@final
@dataclass(frozen=True)
class ObservationWindow(Estimator):
    """Σ of the last ``queries`` queries' probabilities, average-pooled over ``kernel`` tokens (SnapKV, Li et al. 2024).

    At event 0 these are the prompt's last queries, later the latest decode queries (rounded up to whole intervals).
    Deviation: pooling runs over windows, max(1, kernel // Ω) of them, so it has no effect once Ω exceeds the kernel.
    """

    queries: int = 32
    kernel: int = 5

    def __post_init__(self) -> None:
        within("observation queries", self.queries, 1)
        within("pooling kernel", self.kernel, 1)

    def init(self, prompt: Prompt) -> State:
        """The last stored prompt queries."""
        rows, positions = prompt.rows()
        last = rows[..., -self.queries :, :]
        return prompt.grid, ((min(self.queries, len(positions)), last.sum((2, 3)).double()),)

    def update(self, state: State, seen: Interval) -> State:
        """Append the interval, drop what is older."""
        grid, recent = state
        return grid, latest(recent, (seen.elapsed, seen.total().double()), self.queries)

    def score(self, state: State) -> Tensor:
        """The pooled sum; the edges are divided by the whole kernel, as in the original."""
        grid, recent = state
        total = sum(mass for _, mass in recent)
        kernel = max(1, self.kernel // grid.window)
        return F.avg_pool1d(total, kernel, stride=1, padding=kernel // 2)[..., : grid.count]
