"""Importance estimators: how a policy ranks its windows. Each is one small class with its equation.

An `Estimator` is causal: it holds parameters only, its state is explicit (``init -> state``, ``update(state, seen) ->
state``), and it sees what the policy's own cache shows (`Prompt`, then one `Seen` per interval). A `Foresight` ranks
with the recorded future and is a bound, not a policy one could deploy; the replay hands the future to nothing else.

A third party adds one by subclassing `Estimator` and announcing it in the entry-point group ``qevict_diag.estimators``.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
import torch.nn.functional as F
from torch import Tensor

from qevict_diag.cache.windows import Grid
from qevict_diag.errors import within
from qevict_diag.policies.oracles.foresight import (
    DistortionAware,
    Foresight,
    FreeRecall,
    HorizonOracle,
    Irreversible,
    Split,
)
from qevict_diag.policies.view import Prompt, Seen

State = Any  # whatever an estimator needs between events


class Estimator(ABC):
    """A causal ranking: the higher the score, the rather the window is kept."""

    sums: ClassVar[bool] = False  # whether a score is attention summed since birth, which reading K starts later

    @abstractmethod
    def init(self, prompt: Prompt) -> State:
        """State after the prefill."""

    @abstractmethod
    def update(self, state: State, seen: Seen) -> State:
        """State after one more interval of decode queries."""

    @abstractmethod
    def score(self, state: State) -> Tensor:
        """Scores [layer, unit, window] in float64."""


Ranking = Estimator | Foresight | Split


@final
@dataclass(frozen=True)
class CumulativeAttention(Estimator):
    """C(w) = Σ_prompt A + Σ_decode P: the paper's default (section 4.2), never decayed nor normalized by age."""

    sums: ClassVar[bool] = True

    def init(self, prompt: Prompt) -> State:
        """The prompt's column sums."""
        return prompt.mass

    def update(self, state: State, seen: Seen) -> State:
        """Add the interval's probabilities."""
        return state + seen.total()

    def score(self, state: State) -> Tensor:
        """The sum itself."""
        return state


@final
@dataclass(frozen=True)
class DecayedAttention(Estimator):
    """C_t(w) = 2^(-1/h)·C_{t-1}(w) + P_t(w) with a half-life of h decode queries; the prompt's sum is the start."""

    half_life: float = 64.0

    def __post_init__(self) -> None:
        within("half-life", self.half_life, 1e-3, 1e9)

    def init(self, prompt: Prompt) -> State:
        """The prompt's column sums."""
        return prompt.mass

    def update(self, state: State, seen: Seen) -> State:
        """Decay by the queries since the last event, then add the probabilities, each by its age."""
        age = torch.arange(len(seen.positions) - 1, -1, -1, device=seen.positions.device)
        weight = torch.exp2(-age / self.half_life).to(seen.full.dtype)
        return state * 2 ** (-seen.elapsed / self.half_life) + seen.total(weight)

    def score(self, state: State) -> Tensor:
        """The decayed sum."""
        return state


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
        return ((len(positions), self._below(rows, positions, prompt.sight, prompt.grid)),)

    def update(self, state: State, seen: Seen) -> State:
        """Append the interval, drop what is older than the history."""
        low = self._below(seen.rows(), seen.positions, seen.sight, seen.grid)
        return _recent(state, (seen.elapsed, low), self.history)

    def score(self, state: State) -> Tensor:
        """Minus the number of low rows."""
        return -sum(count for _, count in state)

    @staticmethod
    def _below(rows: Tensor, positions: Tensor, sight: Tensor, grid: Grid) -> Tensor:
        """How often a window lies below uniform, [layer, unit, window]; only queries that see all of it count."""
        starts = grid.sinks + grid.window * torch.arange(grid.count, device=rows.device)
        stop = positions[:, None] + 1  # [query, 1]
        count = torch.minimum(stop, sight[:, None, None])  # [layer, query, 1] positions that a query sees
        seen = (starts + grid.window <= stop) & (starts >= stop - count)
        low = rows < (grid.window / count.to(rows.dtype))[:, None, None]
        return (low & seen[:, None, None]).sum((2, 3)).double()


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

    def update(self, state: State, seen: Seen) -> State:
        """Append the interval, drop what is older."""
        grid, recent = state
        return grid, _recent(recent, (seen.elapsed, seen.total().double()), self.queries)

    def score(self, state: State) -> Tensor:
        """The pooled sum; the edges are divided by the whole kernel, as in the original."""
        grid, recent = state
        total = sum(mass for _, mass in recent)
        kernel = max(1, self.kernel // grid.window)
        return F.avg_pool1d(total, kernel, stride=1, padding=kernel // 2)[..., : grid.count]


@final
@dataclass(frozen=True)
class KeyNorm(Estimator):
    """-mean ||k||₂ over the window: low key norms mark important tokens (Devoto et al. 2024). Static."""

    def init(self, prompt: Prompt) -> State:
        """The norms of all recorded keys; rotation does not change them."""
        return -prompt.key_norm().double()

    def update(self, state: State, seen: Seen) -> State:
        """Norms don't change."""
        return state

    def score(self, state: State) -> Tensor:
        """Minus the mean norm."""
        return state


@final
@dataclass(frozen=True)
class ValueWeighted(Estimator):
    """C(w) · mean ||v||₂ over the window: attention weighed by what it carries (as in VATP, Guo et al. 2024)."""

    sums: ClassVar[bool] = True

    def init(self, prompt: Prompt) -> State:
        """Column sums and value norms."""
        return prompt.mass, prompt.value_norm().double()

    def update(self, state: State, seen: Seen) -> State:
        """Add the interval's probabilities."""
        return state[0] + seen.total(), state[1]

    def score(self, state: State) -> Tensor:
        """Their product."""
        return state[0] * state[1]


@final
@dataclass(frozen=True)
class RandomRanking(Estimator):
    """One uniform draw per layer, unit and window: the kept windows are a uniform sample of all historical ones."""

    seed: int = 0

    def __post_init__(self) -> None:
        within("seed", self.seed, 0, 2**31 - 1)

    def init(self, prompt: Prompt) -> State:
        """A fixed priority for every window, the same however the layers are blocked."""
        _, units, windows = prompt.mass.shape
        draws = [
            torch.rand(units, windows, generator=torch.Generator().manual_seed(self.seed * 100_003 + layer)).double()
            for layer in prompt.layers
        ]
        return torch.stack(draws).to(prompt.mass.device)

    def update(self, state: State, seen: Seen) -> State:
        """Priorities are fixed."""
        return state

    def score(self, state: State) -> Tensor:
        """The draw."""
        return state


ESTIMATORS: dict[str, type[Ranking]] = {
    "cumulative": CumulativeAttention,
    "decayed": DecayedAttention,
    "persistence": Persistence,
    "observation": ObservationWindow,
    "key_norm": KeyNorm,
    "value_weighted": ValueWeighted,
    "random": RandomRanking,
    "oracle": HorizonOracle,
    "free_recall": FreeRecall,
    "irreversible": Irreversible,
    "split": DistortionAware,
}


def _recent(history: tuple, interval: tuple[int, Tensor], queries: int) -> tuple:
    """Append an interval and drop leading ones as long as the rest still covers ``queries`` queries."""
    kept = (*history, interval)
    while sum(length for length, _ in kept[1:]) >= queries:
        kept = kept[1:]
    return kept
