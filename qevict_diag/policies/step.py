"""One step of a policy's cache: begin after the prompt, decide at an event, learn from an interval."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from qevict_diag.cache.routing import Assignment, route
from qevict_diag.policies.ranking import Estimator, Foresight, Split, State
from qevict_diag.policies.view import Seen
from qevict_diag.replay.blocks import LayerBlock
from qevict_diag.replay.plan import Plan
from qevict_diag.replay.view import future_view, prompt_view


@dataclass(frozen=True, eq=False)
class CacheState:
    """A policy's cache between two events."""

    assignment: Assignment
    importance: State  # the ranking's own
    offset: Tensor | None  # [layer, unit, window] scores not counted (reading K: local_exit)


def initial_state(plan: Plan, block: LayerBlock) -> CacheState:
    """The cache right after the prefill, before event 0; an oracle's scores of all events are its state."""
    shape = (len(block.layers), plan.units, plan.grid.count)
    ranking = plan.policy.estimator
    if isinstance(ranking, Foresight):
        importance = ranking.scores(future_view(plan, block))
    elif isinstance(ranking, Split):
        importance = ranking.tiers(future_view(plan, block), plan.capacity)
    else:
        importance = ranking.init(prompt_view(plan, block))
    sums = isinstance(ranking, Estimator) and ranking.sums
    counted_late = plan.settings.readings.newcomer_history == "local_exit" and sums
    offset = torch.zeros(shape, dtype=torch.float64, device=block.device) if counted_late else None
    return CacheState(Assignment.initial(shape, block.device), importance, offset)


def scores(plan: Plan, state: CacheState, event: int) -> Tensor:
    """What the policy ranks by at an event, [layer, unit, window]."""
    ranking = plan.policy.estimator
    return ranking.score(state.importance) if isinstance(ranking, Estimator) else state.importance[:, :, event]


def routed(plan: Plan, state: CacheState, event: int) -> CacheState:
    """The cache after routing event ``event``."""
    if isinstance(plan.policy.estimator, Split):
        return replace(state, assignment=state.assignment.moved(state.importance[:, :, event]))
    score, offset = scores(plan, state, event), state.offset
    if offset is not None:
        if event > 0:
            new = slice(plan.grid.historical(event - 1), plan.grid.historical(event))
            offset = offset.clone()
            offset[..., new] = score[..., new]
        score = score - offset
    compels = plan.settings.readings.admission == "forced" and not isinstance(plan.policy.estimator, Foresight)
    forced = compels and event > 0
    after = route(score, state.assignment, plan.grid.historical(event), plan.capacity, plan.policy.moves, forced=forced)
    return replace(state, assignment=after, offset=offset)


def updated(plan: Plan, state: CacheState, seen: Seen) -> CacheState:
    """The cache after the queries of an interval fed its estimator."""
    estimator = plan.policy.estimator
    if not isinstance(estimator, Estimator):
        return state
    fed = seen.last() if plan.settings.readings.score_queries == "event" else seen
    return replace(state, importance=estimator.update(state.importance, fed))
