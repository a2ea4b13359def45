"""Every policy and estimator by name: the built-in ones, and those other packages announce."""

from collections.abc import Iterable
from dataclasses import fields, replace
from importlib.metadata import entry_points

from qevict_diag.errors import InputError
from qevict_diag.policies.conditions import DEFINED_BY_WINDOW, POLICIES
from qevict_diag.policies.estimators.cumulative import CumulativeAttention
from qevict_diag.policies.estimators.decayed import DecayedAttention
from qevict_diag.policies.estimators.key_norm import KeyNorm
from qevict_diag.policies.estimators.observation import ObservationWindow
from qevict_diag.policies.estimators.persistence import Persistence
from qevict_diag.policies.estimators.random import RandomRanking
from qevict_diag.policies.estimators.value_weighted import ValueWeighted
from qevict_diag.policies.names import base_of
from qevict_diag.policies.oracles.foresight import DistortionAware, FreeRecall, HorizonOracle, Irreversible
from qevict_diag.policies.policy import Policy
from qevict_diag.policies.ranking import Ranking

ESTIMATORS: dict[str, type[Ranking]] = {
    "cumulative": CumulativeAttention,
    "decayed": DecayedAttention,
    "persistence": Persistence,
    "observation": ObservationWindow,
    "key_norm": KeyNorm,
    "value_weighted": ValueWeighted,
    "random": RandomRanking,
    "oracle": HorizonOracle,
    "free_recall": FreeRecall,
    "irreversible": Irreversible,
    "split": DistortionAware,
}


ENTRY_POINTS = "qevict_diag.estimators"


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
