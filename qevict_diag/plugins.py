"""What other packages announce in an entry-point group, beside the literal table of what is built in.

Nothing is loaded before it is asked for, so that a broken package stops no command that does not need it.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from inspect import isabstract
from typing import Any, TypeVar

from qevict_diag.errors import InputError

T = TypeVar("T")


@cache
def announced(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group by name, looked up once: reading what is installed takes milliseconds."""
    return {point.name: point for point in entry_points(group=group)}


@cache
def contested(group: str) -> frozenset[str]:
    """Names of a group that several packages announce, each for something else."""
    claims = {(point.name, point.value) for point in entry_points(group=group)}
    count = Counter(name for name, _ in claims)
    return frozenset(name for name, times in count.items() if times > 1)


def names(built_in: Mapping[str, Any], group: str) -> tuple[str, ...]:
    """Every name there is: the built-in ones, then the announced ones."""
    return tuple(dict.fromkeys((*built_in, *announced(group))))


def find(kind: str, name: str, built_in: Mapping[str, T], group: str, fits: Callable[[Any], bool]) -> T | Any:
    """What ``name`` stands for; ``fits`` tells whether what was loaded is of that ``kind``.

    InputError when there is no such name, when another package announces a built-in name or two announce one, and when
    what is announced cannot be loaded or does not fit.
    """
    point = announced(group).get(name)
    if point is None:
        if name not in built_in:
            raise InputError(f"{kind} {name!r}: there are {', '.join(names(built_in, group))}")
        return built_in[name]
    if name in built_in:
        raise InputError(
            f"{kind} {name!r} is built in, and {point.value} claims its name; uninstall or rename that one"
        )
    if name in contested(group):
        raise InputError(f"{kind} {name!r} is announced by several packages; uninstall or rename all but one")
    found = _loaded(kind, name, point)
    if not fits(found):
        raise InputError(f"{kind} {name!r}: {point.value} is no {kind} (docs/extending.md); repair or uninstall it")
    return found


def is_kind(found: Any, *kinds: type) -> bool:
    """Whether this is a class of one of the ``kinds`` that is made without arguments, as its name alone does."""
    if not (isinstance(found, type) and issubclass(found, kinds) and is_dataclass(found)):
        return False
    given = all(one.default is not MISSING or one.default_factory is not MISSING for one in fields(found))
    return given and not isabstract(found)


def _loaded(kind: str, name: str, point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:  # whatever another package raises when it is imported
        told = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InputError(f"{kind} {name!r}: cannot load {point.value} ({told}); repair or uninstall it") from error
