"""TOVA: what the last query attends to (Oren et al. 2024)."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from qevict_diag.errors import one_of
from qevict_diag.policies.policy import Policy, Protected
from qevict_diag.policies.ranking import Estimator, State
from qevict_diag.policies.schedule import AFTER_PROMPT, EVERY_WINDOW
from qevict_diag.policies.view import Interval, Prompt


@final
@dataclass(frozen=True)
class LastQuery(Estimator):
    """The last query's probabilities, summed over the unit's heads."""

    def init(self, prompt: Prompt) -> State:
        """The prompt's last query."""
        rows, _ = prompt.rows()
        return rows[..., -1, :].sum(2).double()

    def update(self, state: State, seen: Interval) -> State:
        """The interval's last query; nothing of the earlier ones remains."""
        return seen.last().total().double()

    def score(self, state: Tensor) -> Tensor:
        """Its attention."""
        return state


def tova(variant: str = "original") -> Policy:
    """Keep the tokens that the last query attends to most, the same for all heads of a layer; decides at every token.

    The score is the mean over the layer's query heads. No sinks and no recent tokens are protected: the newest may be
    dropped at once. ``variant`` kvpress decides after the prompt only and always keeps the newest. InputError for
    another variant.
    """
    one_of("tova variant", variant, ("original", "kvpress"))
    original = variant == "original"
    return Policy(
        "tova",
        1,
        "TOVA: what the last query attends to",
        ranking=LastQuery(),
        schedule=EVERY_WINDOW if original else AFTER_PROMPT,
        scope="layer",
        protected=Protected(sinks=0, recent=0 if original else 1),
        source="Oren et al. 2024, Transformers are Multi-State RNNs",
    )
