"""The paper's conditions R0-R4 and its two ablations, as data (definitions.md, section 1).

A policy says which windows it would rather keep (its estimator ranks them) and which moves are allowed; budget,
regions, tiers, ledger and bytes are applied by the replay, once for all policies. The ablations differ from R3 in one
field.
"""

from dataclasses import dataclass, field

from qevict_diag.cache.routing import Moves
from qevict_diag.errors import within
from qevict_diag.policies.estimators.cumulative import CumulativeAttention
from qevict_diag.policies.ranking import Foresight, Ranking


@dataclass(frozen=True)
class Policy:
    """Parameters of a cache policy; everything the replay needs to know about it."""

    name: str
    window: int  # Ω = routing interval, in tokens
    summary: str = ""
    quantized: bool = True  # three tiers, or two
    promotion: bool = True  # Q -> F allowed
    readable: bool = True  # whether quantized windows count as accessible in the metrics
    evicts: bool = True  # R0 keeps everything
    estimator: Ranking = field(default_factory=CumulativeAttention)

    def __post_init__(self) -> None:
        within(f"policy {self.name}: window", self.window, 1)

    @property
    def moves(self) -> Moves:
        """Which moves its routing may make."""
        recalls = isinstance(self.estimator, Foresight) and self.estimator.recalls
        return Moves(promotion=self.promotion, recall=recalls)
