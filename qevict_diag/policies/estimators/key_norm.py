"""Low key norms mark important tokens."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from qevict_diag.policies.ranking import Estimator, State
from qevict_diag.policies.view import Interval, Prompt


@final
@dataclass(frozen=True)
class KeyNorm(Estimator):
    """-mean ||k||₂ over the window: low key norms mark important tokens (Devoto et al. 2024). Static."""

    def init(self, prompt: Prompt) -> State:
        """The norms of all recorded keys; rotation does not change them."""
        return -prompt.key_norm().double()

    def update(self, state: State, seen: Interval) -> State:
        """Norms don't change."""
        return state

    def score(self, state: Tensor) -> Tensor:
        """Minus the mean norm."""
        return state
