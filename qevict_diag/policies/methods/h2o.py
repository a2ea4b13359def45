"""H2O: heavy hitters and recent tokens (Zhang et al. 2023)."""

from dataclasses import dataclass
from fractions import Fraction
from typing import final

from torch import Tensor

from qevict_diag.errors import one_of, within
from qevict_diag.policies.estimators.cumulative import CumulativeAttention
from qevict_diag.policies.policy import Policy, Protected
from qevict_diag.policies.ranking import Estimator, State
from qevict_diag.policies.schedule import AFTER_PROMPT
from qevict_diag.policies.view import Interval, Prompt

SOURCE = "Zhang et al. 2023, H2O: Heavy-Hitter Oracle for Efficient Generative Inference"


@final
@dataclass(frozen=True)
class ObservedAttention(Estimator):
    """Σ_prompt A divided by how many of its queries could see the token: kvpress's ``ObservedAttentionPress``."""

    def init(self, prompt: Prompt) -> State:
        """Column sums over sightings."""
        return prompt.mass / prompt.sightings().clamp_min(1)

    def update(self, state: State, seen: Interval) -> State:
        """It looks at the prompt alone."""
        return state

    def score(self, state: Tensor) -> Tensor:
        """The mean."""
        return state


def h2o(recent: float = 0.5, variant: str = "original") -> Policy:
    """The largest sums of attention so far, and the latest tokens: ``recent`` of the budget, half by default.

        s_i = Σ over all queries so far of the probability on i, among the tokens alive;  evict the smallest

    ``variant`` original (the code that really drops: prompt sums, then every decode query, no normalization by age) or
    kvpress (after the prompt only: sums divided by the number of queries that could see the token, no recent tokens).
    Deviations: a key-value head has one set, by the sum over its query heads (the original knows no grouped heads); the
    share is of the whole budget, where the original takes 10% and 10% of the prompt. The simulation by masks in the
    original's repository, in which a dropped token may come back, is not replayed. InputError for another variant.
    """
    within("h2o recent", recent, 0, 1)
    one_of("h2o variant", variant, ("original", "kvpress"))
    if variant == "original":
        return Policy(
            "h2o",
            1,
            "H2O: heavy hitters and recent tokens",
            ranking=CumulativeAttention(),
            scope="kv_head",
            protected=Protected(sinks=0, recent_share=Fraction(recent).limit_denominator(1000)),
            source=SOURCE,
        )
    return Policy(
        "h2o",
        1,
        "H2O as in kvpress: mean attention, after the prompt",
        ranking=ObservedAttention(),
        schedule=AFTER_PROMPT,
        scope="kv_head",
        protected=Protected(sinks=0, recent=0),
        source=f"{SOURCE}; NVIDIA kvpress, ObservedAttentionPress",
    )
