"""The paper's conditions R0-R4 and its two ablations, as data (definitions.md, section 1).

A policy says which windows it would rather keep (its estimator ranks them) and which moves are allowed; budget,
regions, tiers, ledger and bytes are applied by the replay, once for all policies. The ablations differ from R3 in one
field.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from importlib.metadata import entry_points

from qevict_diag.errors import InputError, within
from qevict_diag.policies.ranking import ESTIMATORS, CumulativeAttention, Ranking

ENTRY_POINTS = "qevict_diag.estimators"
DEFINED_BY_WINDOW = ("R0", "R1", "R4")  # their window is what they are; a choice of windows leaves them alone
RANDOM, OPTIMUM = "random", "irreversible"  # the rankings that bound all others: chance, and O2


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


POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy("R0", 8, "FullKV reference: nothing is evicted", quantized=False, evicts=False),
        Policy("R1", 1, "token eviction, two tiers", quantized=False),
        Policy("R2", 8, "window eviction, two tiers", quantized=False),
        Policy("R3", 8, "three tiers: full precision, recoverable INT2, evicted"),
        Policy("R4", 32, "three tiers, coarse windows"),
        Policy("R3-full-only", 8, "R3's decisions, its quantized windows counted as inaccessible", readable=False),
        Policy("R3-one-way", 8, "R3 without promotion from the quantized tier", promotion=False),
    )
}


def policy(name: str, **changes: object) -> Policy:
    """The policy called ``name``, or ``NAME[estimator]`` for the same policy ranked by another estimator.

    ``NAME[estimator:value]`` sets the estimator's first parameter: ``R3[random:7]``, ``R3[decayed:32]``. ``changes``
    replace fields (a window size, say). InputError when there is no such policy or estimator.
    """
    base, bracket, rest = name.partition("[")
    if base not in POLICIES or (bracket and not rest.endswith("]")):
        raise InputError(f"policy {name!r}: there are {', '.join(POLICIES)}, each also as NAME[estimator]")
    chosen = replace(POLICIES[base], name=name, **changes)  # type: ignore[arg-type]
    return replace(chosen, estimator=estimator(rest[:-1])) if bracket else chosen


def estimator(name: str) -> Ranking:
    """The estimator called ``name``, its first parameter set by ``name:value``; InputError when there is none."""
    known = estimators()
    kind, colon, value = name.partition(":")
    if kind not in known:
        raise InputError(f"estimator {kind!r}: there are {', '.join(known)}")
    if not colon:
        return known[kind]()
    parameters = fields(known[kind])  # type: ignore[arg-type]
    if not parameters:
        raise InputError(f"estimator {name!r}: {kind} has no parameter; write {kind}")
    first = parameters[0].name
    number, kinds = type(getattr(known[kind](), first)), {int: "a whole number", float: "a number"}
    try:
        chosen = number(value)
    except ValueError:
        raise InputError(f"estimator {name!r}: {first} must be {kinds.get(number, number.__name__)}") from None
    return known[kind](**{first: chosen})


def estimators() -> dict[str, type[Ranking]]:
    """Every estimator by name: the built-in ones, and those other packages announce in `ENTRY_POINTS`."""
    return ESTIMATORS | {point.name: point.load() for point in entry_points(group=ENTRY_POINTS)}


def base_of(name: str) -> str:
    """The condition behind ``NAME[estimator]``."""
    return name.partition("[")[0]


def arm_of(name: str) -> str:
    """The condition whose random arm and optimum bound a policy: the first with its windows and tiers.

    The ablations of R3 have R3's budget, so R3's bounds are theirs.
    """
    one = POLICIES[base_of(name)]
    shape = (one.window, one.quantized, one.evicts)
    return next(p.name for p in POLICIES.values() if (p.window, p.quantized, p.evicts) == shape)


def arms_of(names: Iterable[str]) -> tuple[str, ...]:
    """The conditions whose random arms and optima bound some policies, each once; R0 evicts nothing and has none."""
    return tuple(dict.fromkeys(arm_of(name) for name in names if POLICIES[base_of(name)].evicts))


def policies(names: Iterable[str], *, window: int | None = None) -> tuple[Policy, ...]:
    """Several policies by name, each once, with windows of ``window`` tokens where that is given.

    Those of `DEFINED_BY_WINDOW` keep theirs: token eviction with windows of 8 tokens would be R2. InputError when none
    of the policies can take the window.
    """
    chosen = tuple(dict.fromkeys(names))
    if window is not None and all(base_of(name) in DEFINED_BY_WINDOW for name in chosen):
        raise InputError(f"window {window}: {', '.join(chosen)} are defined by their windows; R2 and R3 take any")
    return tuple(
        policy(name) if window is None or base_of(name) in DEFINED_BY_WINDOW else policy(name, window=window)
        for name in chosen
    )
