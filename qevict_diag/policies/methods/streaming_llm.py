"""StreamingLLM: the first tokens and the latest ones (Xiao et al. 2024)."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from qevict_diag.policies.policy import Policy, Protected
from qevict_diag.policies.ranking import Estimator, State
from qevict_diag.policies.view import Interval, Prompt


@final
@dataclass(frozen=True)
class Recency(Estimator):
    """The later a window, the higher its score; nothing is looked at."""

    def init(self, prompt: Prompt) -> State:
        """Their places."""
        places = torch.arange(prompt.grid.count, dtype=torch.float64, device=prompt.device)
        return places.expand(prompt.mass.shape).clone()

    def update(self, state: State, seen: Interval) -> State:
        """Places don't change."""
        return state

    def score(self, state: Tensor) -> Tensor:
        """The place."""
        return state


def streaming_llm(sinks: int = 4) -> Policy:
    """Keep the first ``sinks`` tokens and as many of the latest as the budget holds; decides at every token.

    Source: the original code (mit-han-lab/streaming-llm): 4 sinks, the same set for all heads and layers. Deviation:
    the original rotates keys by their place in the cache; a replay keeps the recorded distances. Only the sinks'
    logits differ by that. Where the original makes room once for a whole turn, this decides token by token.
    """
    return Policy(
        "streaming_llm",
        1,
        "StreamingLLM: the first tokens and the latest",
        ranking=Recency(),
        scope="layer",
        protected=Protected(sinks=sinks),
        source="Xiao et al. 2024, Efficient Streaming Language Models with Attention Sinks",
    )
