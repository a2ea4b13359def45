"""Cumulative attention, the paper's default."""

from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor

from qevict_diag.policies.ranking import Estimator, State
from qevict_diag.policies.view import Interval, Prompt


@final
@dataclass(frozen=True)
class CumulativeAttention(Estimator):
    """C(w) = Σ_prompt A + Σ_decode P: the paper's default (section 4.2), never decayed nor normalized by age."""

    sums: ClassVar[bool] = True

    def init(self, prompt: Prompt) -> State:
        """The prompt's column sums."""
        return prompt.mass

    def update(self, state: State, seen: Interval) -> State:
        """Add the interval's probabilities."""
        return state + seen.total()

    def score(self, state: Tensor) -> Tensor:
        """The sum itself."""
        return state
