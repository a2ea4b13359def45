"""Attention weighed by the values it carries."""

from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor

from qevict_diag.policies.ranking import Estimator, State
from qevict_diag.policies.view import Interval, Prompt


@final
@dataclass(frozen=True)
class ValueWeighted(Estimator):
    """C(w) · mean ||v||₂ over the window: attention weighed by what it carries (as in VATP, Guo et al. 2024)."""

    sums: ClassVar[bool] = True

    def init(self, prompt: Prompt) -> State:
        """Column sums and value norms."""
        return prompt.mass, prompt.value_norm().double()

    def update(self, state: State, seen: Interval) -> State:
        """Add the interval's probabilities."""
        return state[0] + seen.total(), state[1]

    def score(self, state: tuple[Tensor, Tensor]) -> Tensor:
        """Their product."""
        return state[0] * state[1]
