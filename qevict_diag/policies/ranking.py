"""Importance estimators: how a policy ranks its windows. Each is one small class with its equation.

An `Estimator` is causal: it holds parameters only, its state is explicit (``init -> state``, ``update(state, seen) ->
state``), and it sees what the policy's own cache shows (a `Prompt`, then `Interval`s). A `Foresight` ranks
with the recorded future and is a bound, not a policy one could deploy; the replay hands the future to nothing else.

A third party adds one by subclassing `Estimator` and announcing it in the entry-point group ``qevict_diag.estimators``.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from torch import Tensor

from qevict_diag import plugins
from qevict_diag.cache.budget import Capacity
from qevict_diag.errors import InputError
from qevict_diag.policies.view import Future, Interval, Prompt

State = Any  # whatever an estimator needs between events


class Estimator(ABC):
    """A causal ranking: the higher the score, the rather the window is kept."""

    sums: ClassVar[bool] = False  # whether a score is attention summed since birth, which reading K starts later

    @abstractmethod
    def init(self, prompt: Prompt) -> State:
        """State after the prefill."""

    @abstractmethod
    def update(self, state: State, seen: Interval) -> State:
        """State after one more interval of decode queries."""

    @abstractmethod
    def score(self, state: State) -> Tensor:
        """Scores [layer, unit, window] in float64."""


class Foresight(ABC):
    """A ranking that knows the recorded future: a bound for estimators, never a deployable policy."""

    recalls: ClassVar[bool] = False  # whether evicted windows may come back

    @abstractmethod
    def scores(self, future: Future) -> Tensor:
        """Scores of every event, [layer, unit, event, window]."""


class Split(ABC):
    """An oracle that divides the bytes between the tiers itself, at every event anew, and recalls freely."""

    @abstractmethod
    def tiers(self, future: Future, capacity: Capacity) -> Tensor:
        """`Tier` values of every event, uint8 [layer, unit, event, window]; windows not historical are LOCAL."""


Ranking = Estimator | Foresight | Split


def is_ranking(found: Any) -> bool:
    """Whether this is a ranking's class whose parameters all have defaults, as names need it."""
    return plugins.is_kind(found, Estimator, Foresight, Split)


def checked(score: Tensor, shape: tuple[int, ...], name: str) -> Tensor:
    """A ranking's ``score`` if it is one number for each window; InputError otherwise, naming the ranking."""
    if not isinstance(score, Tensor) or tuple(score.shape) != shape:
        given = f"shape {list(score.shape)}" if isinstance(score, Tensor) else f"type {type(score).__name__}"
        raise InputError(f"ranking {name} gave scores of {given}; shape {list(shape)} is needed")
    if bool(score.isnan().any()):
        raise InputError(f"ranking {name} gave scores that are not numbers (NaN); nothing can be ranked by them")
    return score
