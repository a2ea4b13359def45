"""One step of a policy's cache: begin after the prompt, decide at an event, learn from an interval.

The replay and the live cache both take these steps; they differ in where the views come from (a recorded trace, a
running model) and in what they do with the decisions.
"""

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from qevict_diag.cache.budget import Capacity
from qevict_diag.cache.routing import Assignment, Moves, route
from qevict_diag.cache.windows import Grid
from qevict_diag.errors import BudgetError, InputError
from qevict_diag.policies.allotment import Layers
from qevict_diag.policies.policy import Policy
from qevict_diag.policies.ranking import Estimator, Foresight, Split, State, checked
from qevict_diag.policies.view import Future, Interval, Prompt
from qevict_diag.readings import Readings


@dataclass(frozen=True)
class Rules:
    """A policy made concrete: its grid, its capacities, how many sets a layer has, and the readings it runs under."""

    policy: Policy
    grid: Grid
    capacity: Capacity
    units: int
    readings: Readings

    @property
    def moves(self) -> Moves:
        """The policy's moves; a ranking that recalls has one more."""
        ranking = self.policy.ranking
        return replace(self.policy.moves, recall=isinstance(ranking, Foresight) and ranking.recalls)

    @property
    def protected(self) -> Tensor:
        """Windows with a token of the prompt's protected tail, bool [window].

        BudgetError where they are more than the full tier holds.
        """
        tail, grid = self.policy.protected.prompt_tail, self.grid
        start = grid.sinks + grid.window * torch.arange(grid.count)
        inside = (start + grid.window > grid.prefill - tail) & (start < grid.prefill)
        if tail and int(inside.sum()) > self.capacity.full:
            raise BudgetError(
                f"policy {self.policy.name} protects the last {tail} prompt tokens ({int(inside.sum())} windows), its "
                f"budget holds {self.capacity.full} windows; raise --budget"
            )
        return inside & (tail > 0)


@dataclass(frozen=True, eq=False)
class CacheState:
    """A policy's cache between two events."""

    layers: Layers
    assignment: Assignment
    importance: State  # the ranking's own
    protected: Tensor  # bool [window]
    offset: Tensor | None = None  # [layer, unit, window] scores not counted (reading K: local_exit)
    age: Tensor | None = None  # [layer, 1, window] queries that could see a window (reading O: per_query)


def begin(rules: Rules, view: Prompt | Future) -> CacheState:
    """The cache right after the prefill, before event 0; an oracle's scores of all events are its state.

    InputError when a causal ranking is shown the future, or an oracle the prompt.
    """
    ranking, readings, device = rules.policy.ranking, rules.readings, view.device
    shape = (len(view.layers.numbers), rules.units, rules.grid.count)
    start = CacheState(view.layers, Assignment.initial(shape, device), None, rules.protected.to(device))
    if isinstance(view, Prompt) and isinstance(ranking, Estimator):
        late = readings.newcomer_history == "local_exit" and ranking.sums
        aged = readings.score_age == "per_query" and ranking.sums
        return replace(
            start,
            importance=ranking.init(view),
            offset=torch.zeros(shape, dtype=torch.float64, device=device) if late else None,
            age=view.sightings() if aged else None,
        )
    if isinstance(view, Future) and not isinstance(ranking, Estimator):
        all_events = ranking.tiers(view, rules.capacity) if isinstance(ranking, Split) else ranking.scores(view)
        whole = (*shape[:2], rules.grid.events, shape[2])
        return replace(start, importance=checked(all_events, whole, type(ranking).__name__))
    raise InputError(f"ranking {type(ranking).__name__} was shown a {type(view).__name__}, which it does not rank by")


def decide(rules: Rules, state: CacheState, event: int) -> CacheState:
    """The cache after routing event ``event``; a policy that only looks at the prompt leaves later events alone."""
    ranking, grid = rules.policy.ranking, rules.grid
    if event > 0 and grid.prompt_only:
        return state
    if isinstance(ranking, Split):
        return replace(state, assignment=state.assignment.moved(state.importance[:, :, event]))
    score, state = _counted(rules, state, event)
    score = torch.where(state.protected, float("inf"), score)
    forced = event > 0 and rules.readings.admission == "forced" and isinstance(ranking, Estimator)
    choose = partial(rules.policy.allotment.choose, layers=state.layers)
    historical = grid.historical(event)
    after = route(score, state.assignment, historical, rules.capacity, rules.moves, choose, forced=forced)
    return replace(state, assignment=after)


def learn(rules: Rules, state: CacheState, seen: Interval) -> CacheState:
    """The cache after the queries of an interval fed its estimator."""
    estimator = rules.policy.ranking
    if not isinstance(estimator, Estimator) or rules.grid.prompt_only:
        return state
    fed = seen.last() if rules.readings.score_queries == "event" else seen
    age = None if state.age is None else state.age + fed.sightings()
    return replace(state, importance=estimator.update(state.importance, fed), age=age)


def scores(rules: Rules, state: CacheState, event: int) -> Tensor:
    """What the policy ranks by at an event, [layer, unit, window], before readings K and O; see `checked`."""
    ranking = rules.policy.ranking
    raw = ranking.score(state.importance) if isinstance(ranking, Estimator) else state.importance[:, :, event]
    return checked(raw, tuple(state.assignment.tier.shape), type(ranking).__name__)


def _counted(rules: Rules, state: CacheState, event: int) -> tuple[Tensor, CacheState]:
    """Scores as they are compared: less what a newcomer collected while local (K), over its age (O)."""
    score = scores(rules, state, event)
    offset = state.offset
    if offset is not None:
        if event > 0:
            new = slice(rules.grid.historical(event - 1), rules.grid.historical(event))
            offset = offset.clone()
            offset[..., new] = score[..., new]
        score, state = score - offset, replace(state, offset=offset)
    return (score if state.age is None else score / state.age.clamp_min(1)), state
