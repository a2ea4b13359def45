"""What other packages announce in an entry-point group, beside the literal table of what is built in.

Nothing is loaded before it is asked for, so that a broken package stops no command that does not need it.
"""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from qevict_diag.errors import InputError

T = TypeVar("T")


@cache
def announced(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group by name, looked up once: reading what is installed takes milliseconds."""
    return {point.name: point for point in entry_points(group=group)}


def names(built_in: Mapping[str, Any], group: str) -> tuple[str, ...]:
    """Every name there is: the built-in ones, then the announced ones."""
    return tuple(dict.fromkeys((*built_in, *announced(group))))


def find(kind: str, name: str, built_in: Mapping[str, T], group: str) -> T | Any:
    """What ``name`` stands for.

    InputError when there is no such name, when another package announces a built-in name, and when what it announces
    cannot be loaded.
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
    try:
        return point.load()
    except Exception as error:  # whatever another package raises when it is imported
        told = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InputError(f"{kind} {name!r}: cannot load {point.value} ({told}); repair or uninstall it") from error
