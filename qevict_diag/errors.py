"""Everything that qevict-diag raises on purpose.

QEvictError                 one line: what was given, what is allowed, what to do
├── InputError              a prompt, a text file, an option, a device
│   ├── BudgetError         a byte budget or window that leaves no history
│   ├── ShortTextError      a text with fewer tokens than a recording needs
│   └── ReadingError        a reading that does not exist
├── ModelError              a model that cannot be had, loaded or recorded
├── RecordError             a recording whose self-check failed
├── TraceError              a trace that is damaged, unknown or incomplete
├── MetricError             a metric that needs what the trace or replay lacks
└── SweepError              a sweep that is unfinished, of another grid, or lost a worker or its disk
"""

import math
import reprlib
from collections.abc import Iterable


class QEvictError(Exception):
    """Base of all errors a user can meet; the command line prints it in one line and exits with 1."""


class InputError(QEvictError, ValueError):
    """An argument, a text or a device that cannot be used."""


class BudgetError(InputError):
    """A byte budget, a window size or protected regions that do not fit together."""


class ShortTextError(InputError):
    """A text that has fewer tokens than a recording needs."""


class ReadingError(InputError):
    """A name or value that is not in the table of readings."""


class ModelError(QEvictError):
    """A model that cannot be fetched, loaded or recorded."""


class RecordError(QEvictError):
    """A recording that disagrees with the model's own attention or is incomplete."""


class TraceError(QEvictError):
    """A trace that is missing, damaged, of an unknown version or inconsistent."""


class MetricError(QEvictError):
    """A metric that needs what the trace or the replay does not have."""


class SweepError(QEvictError):
    """A sweep that cannot go on, is unfinished, or whose folder belongs to another one."""


LARGEST = 2**31 - 1  # whole numbers beyond it fit no column of a frame


def one_of(what: str, value: str, allowed: Iterable[str]) -> None:
    """InputError unless ``value`` is one of the ``allowed`` words."""
    known = tuple(allowed)
    if value not in known:
        raise InputError(f"{what} {reprlib.repr(value)}: there are {', '.join(known)}")


def within(what: str, value: float, least: float, most: float | None = None) -> None:
    """InputError unless ``least <= value <= most``; without ``most`` whole numbers go up to `LARGEST`."""
    top = (LARGEST if isinstance(value, int) else math.inf) if most is None else most
    if not least <= value <= top:
        enough = most is None and not value > top
        allowed = f"at least {_short(least)}" if enough else f"between {_short(least)} and {_short(top)}"
        raise InputError(f"{what} {reprlib.repr(value)}: must be {allowed}")


def _short(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"
