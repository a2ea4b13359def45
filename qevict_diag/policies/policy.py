"""A policy is a frozen point in ten small choices; the replay and the live cache do the rest, once for all policies.

What it ranks by, how coarse its windows are, when it decides, which heads share a set, how the budget divides over the
sets, what is protected, which moves are allowed, how the quantized tier is stored, whether it can be read, and where
the policy comes from. Budget, regions, tiers, ledger and bytes follow from these.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from qevict_diag.cache.routing import Moves
from qevict_diag.errors import InputError, within
from qevict_diag.policies.allotment import Allotment, Equal, Everything
from qevict_diag.policies.estimators.cumulative import CumulativeAttention
from qevict_diag.policies.names import parse
from qevict_diag.policies.ranking import Ranking
from qevict_diag.policies.schedule import EVERY_WINDOW, Schedule
from qevict_diag.quantizers.quantizer import Quantizer

Scope = Literal["layer", "kv_head", "head"]
SCOPES: tuple[Scope, ...] = ("layer", "kv_head", "head")


@dataclass(frozen=True)
class Protected:
    """Tokens that are never evicted: the first, the latest, and the last of the prompt.

    None: as many as the budget sets aside. ``recent_share`` of the budget's tokens are recent instead of a number.
    ``prompt_tail`` tokens are kept inside the budget, for ever.
    """

    sinks: int | None = None
    recent: int | None = None
    prompt_tail: int = 0
    recent_share: Fraction | None = None

    def __post_init__(self) -> None:
        for name in ("sinks", "recent", "prompt_tail"):
            within(f"protected {name.replace('_', ' ')}", getattr(self, name) or 0, 0)
        within("protected recent share", float(self.recent_share or 0), 0, 1)


@dataclass(frozen=True)
class Policy:
    """Everything that a cache needs to know about a policy."""

    name: str
    grain: int  # Ω, tokens of a window
    summary: str = ""
    ranking: Ranking = field(default_factory=CumulativeAttention)
    schedule: Schedule = EVERY_WINDOW
    scope: Scope | None = None  # which heads share a set of windows; None: as reading A says
    allotment: Allotment = field(default_factory=Equal)
    protected: Protected = field(default_factory=Protected)
    moves: Moves = field(default_factory=Moves)
    quantizer: Quantizer | None = None  # of the quantized tier; None: two tiers
    readable: bool = True  # whether quantized windows count as accessible in the metrics
    source: str = "QEvict"

    def __post_init__(self) -> None:
        within(f"policy {self.name}: window", self.grain, 1)
        if self.scope not in (None, *SCOPES):
            raise InputError(f"policy {self.name}: scope {self.scope!r}: allowed are {', '.join(SCOPES)}")

    @property
    def evicts(self) -> bool:
        """Whether it ever lets anything go."""
        return not isinstance(self.allotment, Everything)

    @property
    def base(self) -> str:
        """The name without its estimator."""
        return str(parse(self.name).policy)

    @property
    def estimator(self) -> str | None:
        """The name of its estimator, without parameters; None when it is the policy's own."""
        ranked = parse(self.name).estimator
        return None if ranked is None else ranked.name

    @property
    def seed(self) -> int | None:
        """The seed of a ranking that has one."""
        return getattr(self.ranking, "seed", None)
