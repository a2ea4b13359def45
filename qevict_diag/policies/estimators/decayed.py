"""Cumulative attention with a half-life."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from qevict_diag.errors import within
from qevict_diag.policies.ranking import Estimator, State
from qevict_diag.policies.view import Interval, Prompt


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

    def update(self, state: State, seen: Interval) -> State:
        """Decay by the queries since the last event, then add the probabilities, each by its age."""
        age = torch.arange(len(seen.positions) - 1, -1, -1, device=seen.positions.device)
        weight = torch.exp2(-age / self.half_life).to(seen.full.dtype)
        return state * 2 ** (-seen.elapsed / self.half_life) + seen.total(weight)

    def score(self, state: Tensor) -> Tensor:
        """The decayed sum."""
        return state
