"""Persistence counts, as in Scissorhands."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from qevict_diag.cache.windows import Grid
from qevict_diag.errors import within
from qevict_diag.policies.latest import History, latest
from qevict_diag.policies.ranking import Estimator, State
from qevict_diag.policies.view import Interval, Prompt


@final
@dataclass(frozen=True)
class Persistence(Estimator):
    """-#{(head, query) among the last ``history`` queries: p(w) < Ω / t}: how seldom a window fell below uniform.

    Scissorhands (Liu et al. 2023) for windows, from the paper's text (no official code): at a query that sees t
    positions a window's uniform share is Ω/t; queries that could not see the whole window don't count. Deviations:
    counts are summed over the unit's heads; the ``history`` is rounded up to whole intervals; of the prompt only the
    stored queries count.
    """

    history: int = 400

    def __post_init__(self) -> None:
        within("history", self.history, 1)

    def init(self, prompt: Prompt) -> State:
        """Counts of the stored prompt queries."""
        rows, positions = prompt.rows()
        return ((len(positions), self._below(rows, positions, prompt.reach, prompt.grid)),)

    def update(self, state: State, seen: Interval) -> State:
        """Append the interval, drop what is older than the history."""
        low = self._below(seen.rows(), seen.positions, seen.reach, seen.grid)
        return latest(state, (seen.elapsed, low), self.history)

    def score(self, state: History) -> Tensor:
        """Minus the number of low rows."""
        return -torch.stack([count for _, count in state]).sum(0)

    @staticmethod
    def _below(rows: Tensor, positions: Tensor, reach: Tensor, grid: Grid) -> Tensor:
        """How often a window lies below uniform, [layer, unit, window]; only queries that see all of it count."""
        starts = grid.sinks + grid.window * torch.arange(grid.count, device=rows.device)
        stop = positions[:, None] + 1  # [query, 1]
        count = torch.minimum(stop, reach[:, None, None])  # [layer, query, 1] positions that a query sees
        seen = (starts + grid.window <= stop) & (starts >= stop - count)
        low = rows < (grid.window / count.to(rows.dtype))[:, None, None]
        return (low & seen[:, None, None]).sum((2, 3)).double()
