"""Which policies a question is asked of, and by which metrics they are measured."""

from collections.abc import Sequence
from dataclasses import dataclass

from qevict_diag.analyses import importance, observation1, promotion
from qevict_diag.measure.match import matched
from qevict_diag.measure.traces import Measurements, Wanted, measure, measure_wanted
from qevict_diag.policies.arms import BOUNDED, bounds
from qevict_diag.policies.catalogue import policies
from qevict_diag.policies.policy import Policy
from qevict_diag.progress import Progress, silent
from qevict_diag.replay.settings import Settings
from qevict_diag.trace.layer import Recorded

CONDITIONS = observation1.POLICIES[:4]
THREE_TIERS = ("R3", "R4")


@dataclass(frozen=True)
class Need:
    """What has to be measured: policies, and metrics of them.

    ``bounded``: the Future Missed Mass of the policies is held against the optima, which have to be replayed too.
    ``matched``: each policy is measured under the budget at which its cache holds as many bytes, in the mean over
    queries, as the first one's does under the budget asked for. ``apart``: what is measured belongs to no other table.
    """

    policies: tuple[str, ...]
    metrics: tuple[str, ...]
    bounded: bool = False
    matched: bool = False
    apart: bool = False

    @property
    def bounds(self) -> tuple[str, ...]:
        """Optima that its policies are held against, beyond the policies."""
        return tuple(one.name for one in self.bounding(self.chosen()))

    def bounding(self, chosen: Sequence[Policy]) -> tuple[Policy, ...]:
        """The same for policies ``chosen`` with windows of their own."""
        return bounds(chosen) if self.bounded else ()

    def chosen(self, window: int | None = None) -> tuple[Policy, ...]:
        """Its policies, with windows of ``window`` tokens where they take them (`catalogue.policies`)."""
        return policies(self.policies, window=window)

    def measured(
        self,
        traces: Sequence[Recorded],
        settings: Settings | None = None,
        *,
        window: int | None = None,
        progress: Progress = silent,
    ) -> Measurements:
        """Replay and measure all of it on some traces."""
        chosen = self.chosen(window)
        if self.matched:
            found = matched(chosen, traces[0].shape, settings or Settings())
            return measure_wanted(traces, [Wanted(one, self.metrics, own) for one, own in found], progress=progress)
        also = [(self.bounding(chosen), BOUNDED)]
        return measure(*(traces, chosen, self.metrics, settings), also=also, progress=progress)


MISSED = Need(observation1.POLICIES, ("fmm", "chance", "churn"), bounded=True)
HEADS = Need(CONDITIONS, ("fmm",))
LAYERS = Need(CONDITIONS, ("fmm", "mass_ratio", "logit_bias", "logit_variance"))
MAPPED = Need(("R3",), ("fmm",))
SPREAD = Need(CONDITIONS, ("fmm",))
SHARES = Need(observation1.POLICIES, ("fmm", "churn", "mass_share"))
AGREEMENT = Need(THREE_TIERS, ("qsa", "mass_ratio", "logit_bias", "logit_variance"))
AGES = Need(CONDITIONS, ("missed_age",))
SAME_BYTES = Need(CONDITIONS, ("fmm",), matched=True, apart=True)
SETS = Need(tuple(name for base in CONDITIONS for name in (base, f"{base}(scope=kv_head)")), ("fmm",), apart=True)
RETURNS = Need(THREE_TIERS, ("lir",))
TRANSITIONS = Need(("R3",), ("transitions",))
RANKINGS = Need(importance.POLICIES, ("fmm", "chance", "churn", "qsa", "mass_ratio", "lir"), bounded=True)
PROMOTION = Need(
    (promotion.WITHOUT, promotion.WITH), ("fmm", "chance", "qsa", "mass_ratio", "lir", "promotions"), bounded=True
)
