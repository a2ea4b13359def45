"""The replay: one loop for all policies, over blocks of layers and of decode queries (definitions.md, sections 3-7).

Policies run side by side on one stream of attention masses, so logits are computed once for all of them. At event r a
policy routes its windows; the Ω queries that follow are then seen through its cache (teacher forcing: the FullKV
query, the accessible positions, dequantized keys wherever the ledger has an entry) and feed its estimator. What is
kept of a run is an argument (`Save`), so memory is the caller's decision.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch
from torch import Tensor

from qevict_diag.cache.budget import Capacity
from qevict_diag.cache.routing import Assignment, route
from qevict_diag.cache.tier import Tier
from qevict_diag.cache.windows import Grid
from qevict_diag.errors import InputError, MetricError
from qevict_diag.policies.oracles.foresight import Foresight, Split
from qevict_diag.policies.policy import Policy
from qevict_diag.policies.ranking import Estimator, State
from qevict_diag.policies.view import Seen
from qevict_diag.replay.blocks import layer_blocks
from qevict_diag.replay.fold import LAYER_AXIS, Observations, Observer, Save, concatenate
from qevict_diag.replay.plan import Plan, Settings, make_plan
from qevict_diag.replay.stream import LayerBlock, QueryBlock, block_queries, stream
from qevict_diag.replay.view import future_view, interval_view, prompt_view
from qevict_diag.trace.layer import Recorded


@dataclass(frozen=True, eq=False)
class Replay:
    """One policy's run over some layers: its decisions, and the observations that metrics are computed from.

    ``layers``, ``heads`` and ``kv_heads`` are numbers, as in the model. ``tier`` uint8 [layer, unit, event, window]
    holds `Tier` values; windows that are not historical yet are LOCAL.
    """

    plan: Plan
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    tier: Tensor
    seen: Observations

    @property
    def policy(self) -> Policy:
        """The policy that was replayed."""
        return self.plan.policy

    @property
    def grid(self) -> Grid:
        """Its windows."""
        return self.plan.grid

    @property
    def capacity(self) -> Capacity:
        """Its capacities and byte counts."""
        return self.plan.capacity

    @property
    def unit_numbers(self) -> tuple[int | None, ...]:
        """Numbers of the heads that have a set of windows each (reading A); None alone when the layer has one set."""
        return {"layer": (None,), "kv_head": self.kv_heads, "head": self.heads}[self.plan.settings.readings.scope]

    @property
    def historical(self) -> Tensor:
        """Which windows are historical at which event, bool [event, window]."""
        return self.grid.historical_mask().to(self.tier.device)

    @property
    def measured(self) -> Tensor:
        """Tiers as the metrics see them, [layer, unit, event, window]: see `Plan.measured`."""
        return self.plan.measured(self.tier)

    @property
    def retained(self) -> Tensor:
        """F ∪ Q as the metrics see them, bool [layer, unit, event, window]."""
        tier = self.measured
        return (tier == Tier.FULL) | (tier == Tier.QUANTIZED)

    @property
    def ledger(self) -> Tensor:
        """Windows with an entry in the quantized ledger at each event, bool [layer, unit, event, window]."""
        return (self.tier == Tier.QUANTIZED).to(torch.uint8).cummax(dim=2).values.bool()


@dataclass(frozen=True, eq=False)
class CacheState:
    """A policy's cache between two events."""

    assignment: Assignment
    importance: State  # the ranking's own
    offset: Tensor | None  # [layer, unit, window] scores not counted (reading K: local_exit)


def replay(
    trace: Recorded,
    policies: Sequence[Policy],
    settings: Settings | None = None,
    *,
    save: Save | None = None,
    layers: Iterable[int] | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Replay]:
    """Replay policies against a trace, all recorded ``layers`` unless told otherwise; one `Replay` per policy.

    ``progress`` is called with the number of layers each block finished. Raises BudgetError, MetricError, TraceError;
    MetricError too for layers of different shapes, which cannot be one `Replay`: see `replay_blocks`.
    """
    asked = [(policy, save or Save()) for policy in policies]
    blocks = replay_blocks(trace, asked, settings or Settings(), layers)
    parts = []
    for part in blocks:
        parts.append(part)
        if progress is not None:
            progress(len(part[0].layers))
    return [join(list(runs)) for runs in zip(*parts, strict=True)]


def replay_blocks(
    trace: Recorded, asked: Sequence[tuple[Policy, Save]], settings: Settings, layers: Iterable[int] | None = None
) -> Iterator[list[Replay]]:
    """Yield the replays of one block of layers after another, so that no more than a block is ever in memory.

    Layers of a block have one shape: a model whose layers differ (Gemma 4) has a block, and capacities, for each.
    ``asked`` names the policies and what to keep of each.
    """
    chosen = tuple(trace.layers if layers is None else layers)
    if not chosen or not asked:
        raise InputError("nothing to replay; give at least one policy and one layer")
    alike = [(shape, tuple(numbers)) for shape, numbers in groupby(chosen, trace.layer_shape)]
    plans = {shape: [make_plan(policy, shape, settings) for policy, _ in asked] for shape, _ in alike}
    saves = [save for _, save in asked]
    for shape, numbers in alike:
        for block in layer_blocks(trace, numbers, plans[shape], settings):
            yield replay_block(block, plans[shape], saves)


def replay_block(block: LayerBlock, plans: Sequence[Plan], saves: Sequence[Save]) -> list[Replay]:
    """Replay all plans over one block of layers, side by side on one stream."""
    grids = {plan.grid.window: plan.grid for plan in plans}
    keys = list(dict.fromkeys(plan.key for plan in plans))
    runs = [Run(plan, block, save) for plan, save in zip(plans, saves, strict=True)]
    for masses in stream(block, keys, grids, block_queries(list(grids), block.decode)):
        for run in runs:
            run.advance(masses)
    return [run.finish() for run in runs]


class Run:
    """One policy passing along the stream: the cache state, and what has been decided and observed so far."""

    def __init__(self, plan: Plan, block: LayerBlock, save: Save) -> None:
        self.plan, self.block = plan, block
        self.state = initial_state(plan, block)
        self.observer = Observer(plan, save, block.prompt_mass)
        shape = (len(block.layers), plan.units, plan.grid.events, plan.grid.count)
        self.tier = torch.zeros(shape, dtype=torch.uint8, device=block.device)
        self.ledger = torch.zeros(shape, dtype=torch.bool, device=block.device)

    def advance(self, masses: QueryBlock) -> None:
        """Route every event of this block of queries, see its queries through the cache, observe."""
        window = self.plan.grid.window
        stop = -(-masses.queries.stop // window)
        for event in range(masses.queries.start // window, stop):
            self.state = routed(self.plan, self.state, event)
            assignment = self.state.assignment
            self.tier[:, :, event], self.ledger[:, :, event] = assignment.tier, assignment.ledger
            self.state = updated(self.plan, self.state, interval_view(self.plan, assignment, masses, event))
        self.observer.add(masses, self.tier[:, :, :stop], self.ledger[:, :, :stop])

    def finish(self) -> Replay:
        """The frozen record of the run."""
        numbers = (self.block.layers, self.block.head_numbers, self.block.kv_head_numbers)
        return Replay(self.plan, *numbers, self.tier, self.observer.finish())


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
    after = route(score, state.assignment, plan.grid.historical(event), plan.policy, plan.capacity, forced=forced)
    return replace(state, assignment=after, offset=offset)


def updated(plan: Plan, state: CacheState, seen: Seen) -> CacheState:
    """The cache after the queries of an interval fed its estimator."""
    estimator = plan.policy.estimator
    if not isinstance(estimator, Estimator):
        return state
    fed = seen.last() if plan.settings.readings.score_queries == "event" else seen
    return replace(state, importance=estimator.update(state.importance, fed))


def join(parts: list[Replay]) -> Replay:
    """Concatenate the layers of several replays of one policy; MetricError when their shapes differ."""
    if any(part.plan != parts[0].plan for part in parts):
        raise MetricError("the layers differ in heads or widths; replay those of one shape, or use replay_blocks")
    return replace(
        parts[0],
        layers=tuple(layer for part in parts for layer in part.layers),
        tier=torch.cat([part.tier for part in parts], LAYER_AXIS),
        seen=concatenate([part.seen for part in parts], LAYER_AXIS),
    )
