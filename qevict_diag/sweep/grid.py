"""What a sweep is: a grid of settings, and which policies each setting replays.

A `Setting` is one point of the grid that a task can replay on its own: one window size, one budget, one reading, and
either two tiers or three with a quantized fraction and bits. What does not depend on an axis is not multiplied by it:
two-tier policies have no quantized fraction and no bits, and R1 and R4, which are *defined* by their window, keep it.

What eviction costs when nobody chooses is the metric `chance`, in closed form, measured wherever Future Missed Mass
is. A random policy that is asked for, `BASE[random]`, is replayed in several seeded draws. With ``regret`` a setting
replays the optima, `BASE[irreversible]`, as well.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import TypeVar

import torch

from qevict_diag.cache.budget import Budget, exact
from qevict_diag.errors import InputError, within
from qevict_diag.measure.traces import metric_names
from qevict_diag.policies.arms import CHANCE, RANDOM, optima
from qevict_diag.policies.catalogue import policy
from qevict_diag.policies.conditions import DEFINED_BY_WINDOW
from qevict_diag.policies.estimators.random import RandomRanking
from qevict_diag.policies.names import base_of
from qevict_diag.policies.policy import Policy
from qevict_diag.readings import Readings
from qevict_diag.replay.settings import Settings

T = TypeVar("T")
DRAWN = f"[{RANDOM}]"  # ends the name of a random policy without a seed of its own
MOST_DRAWS = 1000  # of a random policy; more take time and tell nothing
DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class Options:
    """What all tasks of a sweep have in common; ``metrics`` with Future Missed Mass get that of chance beside it."""

    metrics: tuple[str, ...] = ("all",)
    min_inactive: int = Settings.min_inactive
    horizon: int = Settings.horizon
    sinks: int = 5
    recent: int = 32
    dtype: str = "float32"
    device: str = "cpu"

    def __post_init__(self) -> None:
        chosen = metric_names(self.metrics)
        object.__setattr__(self, "metrics", metric_names([*chosen, CHANCE]) if "fmm" in chosen else chosen)
        if self.dtype not in DTYPES:
            raise InputError(f"dtype {self.dtype!r}: allowed are {', '.join(DTYPES)}")


@dataclass(frozen=True)
class Setting:
    """One point of the grid. ``quantized_fraction`` and ``bits`` are None with two tiers; ``reading`` is a label."""

    policies: tuple[str, ...]
    window: int
    budget: Fraction
    quantized_fraction: Fraction | None = None
    bits: int | None = None
    reading: str = ""
    draws: int = 3

    def arms(self) -> tuple[Policy, ...]:
        """The policies to replay, random ones once per draw, told apart by their seeds."""
        return tuple(arm for name in self.policies for arm in self._arms(name))

    def settings(self, options: Options) -> Settings:
        """What the replay needs to know."""
        budget = Budget(self.budget, sinks=options.sinks, recent=options.recent)
        if self.quantized_fraction is not None and self.bits is not None:
            budget = replace(budget, quantized_fraction=self.quantized_fraction, bits=self.bits)
        return Settings(
            budget,
            parse_reading(self.reading),
            options.horizon,
            options.min_inactive,
            device=options.device,
            dtype=DTYPES[options.dtype],
        )

    def words(self) -> str:
        """The setting in words, for messages."""
        tiers = "" if self.bits is None else f", quantized fraction {self.quantized_fraction}, {self.bits} bits"
        reading = f", reading {self.reading}" if self.reading else ""
        return f"{' '.join(self.policies)} at budget {self.budget}, window {self.window}{tiers}{reading}"

    def _arms(self, name: str) -> Iterator[Policy]:
        chosen = policy(name, grain=self.window)
        if not name.endswith(DRAWN):
            yield chosen
            return
        for seed in range(self.draws):
            yield replace(chosen, ranking=RandomRanking(seed))


@dataclass(frozen=True)
class Sweep:
    """The grid: every combination of its axes, on every trace, layer block by layer block.

    ``windows`` empty: each policy's own. ``readings`` are labels, ``""`` the defaults, choices joined by commas.
    ``draws`` seeds of every random policy among them; ``regret`` adds the optima (slow for R1). Raises InputError and
    its kinds for what does not exist.
    """

    traces: tuple[str, ...]
    policies: tuple[str, ...] = ("R1", "R2", "R3", "R4")
    budgets: tuple[Fraction | str, ...] = (Fraction(1, 5),)
    windows: tuple[int, ...] = ()
    quantized_fractions: tuple[Fraction | str, ...] = (Fraction(1, 2),)
    bits: tuple[int, ...] = (2,)
    readings: tuple[str, ...] = ("",)
    draws: int = 3
    regret: bool = False
    layers_per_task: int = 8
    skip_impossible: bool = False
    options: Options = Options()

    def __post_init__(self) -> None:
        normal = {
            "traces": _unique(os.path.abspath(path) for path in self.traces),
            "policies": _unique(policy(name).name for name in self.policies),
            "budgets": _unique(exact(ratio) for ratio in self.budgets),
            "windows": _unique(self.windows),
            "quantized_fractions": _unique(exact(part, "quantized fraction") for part in self.quantized_fractions),
            "bits": _unique(self.bits),
            "readings": _unique(parse_reading(label).label() for label in self.readings),
        }
        for name, values in normal.items():
            if not values and name != "windows":
                raise InputError(f"a sweep without {name.replace('_', ' ')}: give at least one")
            object.__setattr__(self, name, values)
        within("draws", self.draws, 1, MOST_DRAWS)
        within("layers per task", self.layers_per_task, 1)
        if self.regret and "fmm" not in self.options.metrics:
            raise InputError("regret is a difference of Future Missed Mass; sweep the metric fmm too")
        for setting in self.settings():
            setting.settings(self.options)  # refuses budgets, fractions and bits that no trace could have

    def settings(self) -> tuple[Setting, ...]:
        """All points of the grid, in a fixed order."""
        return tuple(
            Setting(names, window, exact(budget), fraction, bits, reading, self.draws)
            for reading, budget in product(self.readings, self.budgets)
            for (window, quantized), names in self._groups().items()
            for fraction, bits in (self._quantized_tiers() if quantized else [(None, None)])
        )

    def _quantized_tiers(self) -> list[tuple[Fraction | None, int | None]]:
        return [(exact(fraction), bits) for fraction, bits in product(self.quantized_fractions, self.bits)]

    def _groups(self) -> dict[tuple[int, bool], tuple[str, ...]]:
        """Policies by window size and number of tiers, each group with its optima where regret is asked for."""
        groups: dict[tuple[int, bool], list[str]] = {}
        for name in self.policies:
            for window in self._windows(name):
                groups.setdefault((window, policy(name).quantizer is not None), []).append(name)
        return {key: self._bounded(groups[key]) for key in sorted(groups)}

    def _bounded(self, names: list[str]) -> tuple[str, ...]:
        return _unique([*names, *(optima(map(policy, names)) if self.regret else ())])

    def _windows(self, name: str) -> tuple[int, ...]:
        fixed = not self.windows or base_of(name) in DEFINED_BY_WINDOW
        return (policy(name).grain,) if fixed else self.windows


def parse_reading(label: str) -> Readings:
    """Readings from a label, ``name=value`` joined by commas; the empty label is the defaults."""
    return Readings.parse(label.split(",") if label else [])


def _unique(values: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(values))
