"""The combinations of readings that a search tries, and which of them a number needs."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from qevict_diag.analyses.claims.checks import Quantity
from qevict_diag.errors import ReadingError
from qevict_diag.metrics import METRICS
from qevict_diag.policies.catalogue import policy
from qevict_diag.readings import READINGS, Readings

SLOW = ("scope",)  # varied only where it is named: sets per head take many times as long


@dataclass(frozen=True)
class Grid:
    """The readings that stay as they are, and those that are varied, with their values."""

    fixed: Readings
    varied: Mapping[str, tuple[str, ...]]

    def combinations(self) -> list[Readings]:
        """Every combination; the first is the one where nothing is varied."""
        choices = (dict(zip(self.varied, values, strict=True)) for values in product(*self.varied.values()))
        return [self.fixed.with_(**chosen) for chosen in choices]


def grid_of(words: Sequence[str], known: Collection[str]) -> Grid:
    """The grid that words ask for: ``NAME`` varies a reading, ``NAME=VALUE`` fixes it.

    Without a NAME all of the ``known`` ones are varied that are not fixed, but `SLOW`. ReadingError for a name that is
    not known, or is both varied and fixed, and for a value that does not exist.
    """
    fixed = Readings.parse([word for word in words if "=" in word])
    held = {word.partition("=")[0] for word in words if "=" in word}
    named = [word for word in words if "=" not in word]
    for name in named:
        if name in held or name not in known:
            why = "is both varied and fixed" if name in held else "changes no published number"
            raise ReadingError(f"reading {name!r} {why}; to vary there are {', '.join(sorted(known))}")
    chosen = named or [name for name in known if name not in (*held, *SLOW)]
    return Grid(fixed, {one.name: one.values for one in READINGS if one.name in chosen})


def touching(quantities: Sequence[Quantity]) -> set[str]:
    """The readings that some quantity depends on: those that change decisions, and those of its metric."""
    deciding = {reading.name for reading in READINGS if reading.stage == "replay"}
    return deciding.union(*(METRICS[one.metric].readings for one in quantities))


def needed(combination: Readings, quantity: Quantity) -> Readings:
    """A combination without what a quantity does not depend on: combinations that need the same measure the same."""
    quantizes = policy(quantity.policy).quantizer is not None
    own = {name: getattr(combination, name) for name in METRICS[quantity.metric].readings}
    return combination.deciding(quantizes=quantizes).with_(**own)
