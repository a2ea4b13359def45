"""A random ranking: chance."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from qevict_diag.errors import within
from qevict_diag.policies.ranking import Estimator, State
from qevict_diag.policies.view import Interval, Prompt


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
            for layer in prompt.layers.numbers
        ]
        return torch.stack(draws).to(prompt.mass.device)

    def update(self, state: State, seen: Interval) -> State:
        """Priorities are fixed."""
        return state

    def score(self, state: Tensor) -> Tensor:
        """The draw."""
        return state
