"""The names of policies, parsed and printed in this place alone.

NAME                                     R3
NAME(parameter=value, ...)               snapkv(window=32,pool=max), R3(scope=head)
NAME[estimator]                          R3[decayed]
NAME[estimator:value]                    R3[random:7], the estimator's first parameter
NAME[estimator(parameter=value, ...)]    R3[observation(queries=16,kernel=7)]
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from qevict_diag.errors import InputError

WORD = r"[A-Za-z_][\w.-]*"
CALL = re.compile(rf"(?P<name>{WORD})(?:\((?P<arguments>[^()\[\]]*)\)|:(?P<first>[^()\[\]:]+))?")
FULL = re.compile(rf"(?P<policy>{WORD}(?:\([^()\[\]]*\))?)(?:\[(?P<estimator>[^\[\]]+)\])?")
KINDS = {int: "a whole number", float: "a number", bool: "yes or no", Fraction: "a fraction like 1/5"}
YES_NO = {"yes": True, "true": True, "no": False, "false": False}


@dataclass(frozen=True)
class Call:
    """A name and what is set of its parameters, as text; the name None stands for the first parameter."""

    name: str
    arguments: tuple[tuple[str | None, str], ...] = ()

    def __str__(self) -> str:
        if not self.arguments:
            return self.name
        if self.arguments[0][0] is None:
            return f"{self.name}:{self.arguments[0][1]}"
        return f"{self.name}({','.join(f'{key}={value}' for key, value in self.arguments)})"


@dataclass(frozen=True)
class PolicyName:
    """A policy, and the estimator that ranks for it; None: its own."""

    policy: Call
    estimator: Call | None = None

    def __str__(self) -> str:
        return str(self.policy) if self.estimator is None else f"{self.policy}[{self.estimator}]"


def parse(text: str) -> PolicyName:
    """Read a policy's name; InputError when it is none."""
    found = FULL.fullmatch(text.replace(" ", ""))
    if not found:
        raise InputError(
            f"policy {text!r}: write NAME, NAME(parameter=value), NAME[estimator], NAME[estimator:value] or "
            "NAME[estimator(parameter=value)]"
        )
    ranked = found["estimator"]
    return PolicyName(call(found["policy"]), None if ranked is None else call(ranked))


def base_of(name: str) -> str:
    """The policy behind a name, without parameters and estimator."""
    return parse(name).policy.name


def call(text: str) -> Call:
    """Read a name with its parameters; InputError when it is none."""
    found = CALL.fullmatch(text)
    if not found:
        raise InputError(f"{text!r}: write NAME, NAME:value or NAME(parameter=value, ...)")
    if found["first"] is not None:
        return Call(found["name"], ((None, found["first"]),))
    pairs = [pair.partition("=") for pair in (found["arguments"] or "").split(",") if pair]
    for key, equals, value in pairs:
        if not (key and equals and value):
            raise InputError(f"{text!r}: write parameters as name=value, separated by commas")
    return Call(found["name"], tuple((key, value) for key, _, value in pairs))


def bind(called: Call, defaults: Mapping[str, Any]) -> tuple[Call, dict[str, Any]]:
    """The call with every parameter named, and its arguments as values of the types that the defaults have.

    InputError for a parameter that does not exist, is set twice or is of another type.
    """
    first = next(iter(defaults), None)
    if called.arguments and first is None:
        raise InputError(f"{called}: {called.name} has no parameter; write {called.name}")
    named = [(first if key is None else key, value) for key, value in called.arguments]
    unknown = [key for key, _ in named if key not in defaults]
    if unknown or len(dict(named)) < len(named):
        raise InputError(f"{called}: {called.name} takes {', '.join(defaults)}, each once")
    values = {key: _value(called, key, text, defaults[key]) for key, text in named if key is not None}
    return Call(called.name, tuple(named)), values


def shortened(called: Call, first: str | None) -> Call:
    """``NAME:value`` where only the ``first`` parameter is set; how estimators are printed, and policies are not."""
    lone = len(called.arguments) == 1 and called.arguments[0][0] == first
    return replace(called, arguments=((None, called.arguments[0][1]),)) if lone else called


def _value(called: Call, key: str, text: str, default: Any) -> Any:
    """``text`` as a value of the default's type; None stands for a text or, in digits, a whole number."""
    kind = type(default)
    try:
        if kind is bool:
            return YES_NO[text.lower()]
        if default is None:
            return int(text) if text.isdecimal() else text
        return kind(text)
    except (ValueError, KeyError, ZeroDivisionError):
        raise InputError(f"{called}: {key} must be {KINDS.get(kind, kind.__name__)}") from None
