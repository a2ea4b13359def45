"""Which policies a question is asked of, and by which metrics they are measured."""

from collections.abc import Sequence
from dataclasses import dataclass

from qevict_diag.analyses import importance, observation1, promotion
from qevict_diag.policies.arms import bounds
from qevict_diag.policies.catalogue import policies
from qevict_diag.policies.policy import Policy

CONDITIONS = observation1.POLICIES[:4]
THREE_TIERS = ("R3", "R4")


@dataclass(frozen=True)
class Need:
    """What has to be measured: policies, and metrics of them."""

    policies: tuple[str, ...]
    metrics: tuple[str, ...]

    @property
    def bounds(self) -> tuple[str, ...]:
        """Optima that its policies' Future Missed Mass is held against, beyond the policies."""
        return tuple(one.name for one in self.bounding(policies(self.policies)))

    def bounding(self, chosen: Sequence[Policy]) -> tuple[Policy, ...]:
        """The same for policies ``chosen`` with windows of their own."""
        return bounds(chosen) if "fmm" in self.metrics else ()


NEEDS: dict[str, Need] = {  # of the tables, by name
    "14": Need(observation1.POLICIES, ("fmm", "chance", "churn")),
    "15": Need(THREE_TIERS, ("qsa", "mass_ratio")),
    "16": Need(THREE_TIERS, ("lir",)),
    "17a": Need(("R3",), ("transitions",)),
    "17b": Need(importance.POLICIES, ("fmm", "chance", "churn", "qsa", "mass_ratio", "lir")),
    "18": Need((promotion.WITHOUT, promotion.WITH), ("fmm", "chance", "qsa", "mass_ratio", "lir", "promotions")),
    "heads": Need(CONDITIONS, ("fmm", "chance")),
}
