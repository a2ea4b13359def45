"""Every policy and estimator by name: the built-in ones, and those that other packages announce.

A third party announces an estimator class in the entry-point group ``qevict_diag.estimators`` and a policy, or a
function that makes one from keyword parameters with defaults, in ``qevict_diag.policies``.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from functools import partial
from typing import Any

from qevict_diag import plugins
from qevict_diag.errors import InputError, one_of
from qevict_diag.policies.allotment import Allotment, Equal, Pooled
from qevict_diag.policies.conditions import CONDITIONS, DEFINED_BY_WINDOW
from qevict_diag.policies.estimators.cumulative import CumulativeAttention
from qevict_diag.policies.estimators.decayed import DecayedAttention
from qevict_diag.policies.estimators.key_norm import KeyNorm
from qevict_diag.policies.estimators.observation import ObservationWindow
from qevict_diag.policies.estimators.persistence import Persistence
from qevict_diag.policies.estimators.random import RandomRanking
from qevict_diag.policies.estimators.value_weighted import ValueWeighted
from qevict_diag.policies.methods.adakv import adakv
from qevict_diag.policies.methods.h2o import h2o
from qevict_diag.policies.methods.l2norm import l2norm
from qevict_diag.policies.methods.pyramidkv import pyramidkv
from qevict_diag.policies.methods.scissorhands import scissorhands
from qevict_diag.policies.methods.snapkv import snapkv
from qevict_diag.policies.methods.streaming_llm import streaming_llm
from qevict_diag.policies.methods.tova import tova
from qevict_diag.policies.names import Call, PolicyName, base_of, bind, call, parse, shortened
from qevict_diag.policies.oracles.foresight import DistortionAware, FreeRecall, HorizonOracle, Irreversible
from qevict_diag.policies.policy import Policy, Protected, Scope
from qevict_diag.policies.ranking import Ranking, is_ranking
from qevict_diag.policies.schedule import AFTER_PROMPT, EVERY_WINDOW, Schedule
from qevict_diag.quantizers import quantizer as find_quantizer

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
ALLOTMENTS: dict[str, type[Allotment]] = {"equal": Equal, "pooled": Pooled}
SCHEDULES: dict[str, Schedule] = {"window": EVERY_WINDOW, "prompt": AFTER_PROMPT}
ESTIMATOR_POINTS, POLICY_POINTS = "qevict_diag.estimators", "qevict_diag.policies"

Maker = Callable[..., Policy]  # keyword parameters with defaults


def chosen(
    base: Policy,
    *,
    window: int = 0,
    scope: Scope | None = None,
    allotment: str = "",
    floor: float = 0.0,
    schedule: str = "",
    prompt_tail: int = 0,
    quantizer: str = "",
) -> Policy:
    """A condition with some of its choices made otherwise; InputError for a choice that there is not.

    ``window`` tokens, ``scope`` layer, kv_head or head, ``allotment`` equal or pooled with a ``floor``, ``schedule``
    window or prompt, ``prompt_tail`` tokens of the prompt's end protected, ``quantizer`` by name.
    """
    for name, value, known in (("allotment", allotment, ALLOTMENTS), ("schedule", schedule, SCHEDULES)):
        if value:
            one_of(name, value, known)
    changes: dict[str, Any] = {
        "grain": window or base.grain,
        "scope": scope or base.scope,
        "allotment": (Pooled(floor) if allotment == "pooled" else Equal()) if allotment else base.allotment,
        "schedule": SCHEDULES[schedule] if schedule else base.schedule,
        "protected": Protected(prompt_tail=prompt_tail) if prompt_tail else base.protected,
        "quantizer": find_quantizer(quantizer)() if quantizer else base.quantizer,
    }
    return replace(base, **changes)


METHODS: dict[str, Maker] = {  # published ones, with parameters of their own
    maker.__name__: maker for maker in (streaming_llm, h2o, tova, scissorhands, snapkv, pyramidkv, adakv, l2norm)
}
# every built-in policy, with its parameters at their defaults
POLICIES: dict[str, Policy] = {**CONDITIONS, **{name: make() for name, make in METHODS.items()}}


def policy(name: str, **changes: Any) -> Policy:
    """The policy called ``name`` (see `qevict_diag.policies.names`); ``changes`` replace fields.

    InputError when there is no such policy, estimator or parameter.
    """
    asked = parse(name)
    make = _maker(asked.policy.name)
    base, values = bind(asked.policy, _parameters(make))
    made = replace(make(**values), **changes)
    ranked, ranking = (None, made.ranking) if asked.estimator is None else _estimator(asked.estimator)
    return replace(made, name=str(PolicyName(base, ranked)), ranking=ranking)


def policies(names: Iterable[str], *, window: int | None = None) -> tuple[Policy, ...]:
    """Several policies by name, each once, with windows of ``window`` tokens where that is given.

    Those of `DEFINED_BY_WINDOW` and `METHODS` keep theirs: token eviction with windows of 8 tokens would be R2.
    InputError when none of the policies can take the window.
    """
    found = {one.name: one for one in map(policy, names)}
    fixed = [name for name in found if base_of(name) in (*DEFINED_BY_WINDOW, *METHODS)]
    if window is not None and len(fixed) == len(found):
        raise InputError(f"window {window}: {', '.join(found)} are defined by their windows; R2 and R3 take any")
    return tuple(one if window is None or name in fixed else replace(one, grain=window) for name, one in found.items())


def policy_names() -> tuple[str, ...]:
    """Every policy there is, by name alone."""
    return plugins.names(POLICIES, POLICY_POINTS)


def estimator(name: str) -> Ranking:
    """The estimator called ``name``, ``name:value`` or ``name(parameter=value)``; InputError when there is none."""
    return _estimator(call(name))[1]


def estimator_names() -> tuple[str, ...]:
    """Every estimator there is, by name."""
    return plugins.names(ESTIMATORS, ESTIMATOR_POINTS)


def estimator_class(name: str) -> type[Ranking]:
    """The class of an estimator; InputError when there is none."""
    return plugins.find("estimator", name, ESTIMATORS, ESTIMATOR_POINTS, is_ranking)


def _estimator(called: Call) -> tuple[Call, Ranking]:
    kind = estimator_class(called.name)
    usual: Any = kind()
    defaults = {field.name: getattr(usual, field.name) for field in fields(usual)}
    named, values = bind(called, defaults)
    return shortened(named, next(iter(defaults), None)), kind(**values)


def _makes_policies(found: Any) -> bool:
    """Whether this is a policy, or a function whose parameters all have defaults and whose result is one."""
    if isinstance(found, Policy) or not inspect.isfunction(found):
        return isinstance(found, Policy)
    return len(_parameters(found)) == len(inspect.signature(found).parameters) and isinstance(found(), Policy)


def _maker(name: str) -> Maker:
    """What makes a policy from its parameters; one that is announced as it is takes those of a condition."""
    if name in METHODS:
        return METHODS[name]
    found: Policy | Maker = plugins.find("policy", name, POLICIES, POLICY_POINTS, _makes_policies)
    return partial(chosen, found) if isinstance(found, Policy) else found


def _parameters(make: Maker) -> Mapping[str, Any]:
    """Parameters that a policy's name may set, with their defaults."""
    return {
        name: parameter.default
        for name, parameter in inspect.signature(make).parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }
