"""The replay: one loop for all policies, over blocks of layers and of decode queries (definitions.md, sections 3-7).

Policies run side by side on one stream of attention masses, so logits are computed once for all of them. At event r a
policy routes its windows; the Ω queries that follow are then seen through its cache (teacher forcing: the FullKV
query, the accessible positions, dequantized keys wherever the ledger has an entry) and feed its estimator. What is
kept of a run is an argument (`Save`), so memory is the caller's decision.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from qevict_diag.blocks import LayerBlock, QueryBlock, block_queries, stream
from qevict_diag.budget import Capacity
from qevict_diag.errors import InputError
from qevict_diag.estimators import Foresight, State
from qevict_diag.layer_trace import Recorded
from qevict_diag.metrics.fmm import band, events_seeing, in_horizon
from qevict_diag.observe import LAYER_AXIS, Observations, Observer, Save, attended, concatenate
from qevict_diag.plan import Plan, Settings, make_plan
from qevict_diag.policies import Policy
from qevict_diag.seen import Future, Prompt, Seen
from qevict_diag.tiers import Assignment, Tier, route
from qevict_diag.windows import Grid


@dataclass(frozen=True, eq=False)
class Replay:
    """One policy's run over some layers: its decisions, and the observations that metrics are computed from.

    ``tier`` uint8 [layer, unit, event, window] holds `Tier` values; windows that are not historical yet are LOCAL.
    """

    plan: Plan
    layers: tuple[int, ...]
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
    importance: State  # the estimator's own
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

    ``progress`` is called with the number of layers each block finished. Raises BudgetError, MetricError, TraceError.
    """
    blocks = replay_blocks(trace, policies, settings or Settings(), save or Save(), layers)
    parts = []
    for part in blocks:
        parts.append(part)
        if progress is not None:
            progress(len(part[0].layers))
    return [join(list(runs)) for runs in zip(*parts, strict=True)]


def replay_blocks(
    trace: Recorded, policies: Sequence[Policy], settings: Settings, save: Save, layers: Iterable[int] | None = None
) -> Iterator[list[Replay]]:
    """Yield the replays of one block of layers after another, so that no more than a block is ever in memory."""
    plans = [make_plan(policy, trace.shape, settings) for policy in policies]
    for block in layer_blocks(trace, plans, settings, layers):
        yield replay_block(block, plans, save)


def replay_block(block: LayerBlock, plans: Sequence[Plan], save: Save) -> list[Replay]:
    """Replay all plans over one block of layers."""
    grids = {plan.grid.window: plan.grid for plan in plans}
    keys = list(dict.fromkeys(plan.key for plan in plans))
    runs = [Run(plan, block, save) for plan in plans]
    for masses in stream(block, keys, grids, block_queries(list(grids), block.decode)):
        for run in runs:
            run.advance(masses)
    return [run.finish() for run in runs]


class Run:
    """One policy passing along the stream: the cache state, and what has been decided and observed so far."""

    def __init__(self, plan: Plan, block: LayerBlock, save: Save) -> None:
        self.plan, self.layers, self.device = plan, block.layers, block.device
        self.scores = foreseen(plan, block)
        self.state = initial_state(plan, block)
        self.observer = Observer(plan, save, block.prompt_mass)
        self.assignments: list[Assignment] = []

    def advance(self, masses: QueryBlock) -> None:
        """Route every event of this block of queries, see its queries through the cache, observe."""
        window = self.plan.grid.window
        for event in range(masses.queries.start // window, -(-masses.queries.stop // window)):
            scores = None if self.scores is None else self.scores[:, :, event]
            self.state = routed(self.plan, self.state, event, scores)
            self.assignments.append(self.state.assignment)
            self.state = updated(self.plan, self.state, interval(self.plan, self.state, masses, event))
        self.observer.add(masses, self._stacked("tier"), self._stacked("ledger"))

    def finish(self) -> Replay:
        """The frozen record of the run."""
        return Replay(self.plan, self.layers, self._stacked("tier"), self.observer.finish())

    def _stacked(self, name: str) -> Tensor:
        return torch.stack([getattr(assignment, name) for assignment in self.assignments], dim=2)


def initial_state(plan: Plan, block: LayerBlock) -> CacheState:
    """The cache right after the prefill, before event 0."""
    shape = (len(block.layers), plan.units, plan.grid.count)
    estimator = plan.policy.estimator
    importance = None if isinstance(estimator, Foresight) else estimator.init(prompt_view(plan, block))
    counted_late = plan.settings.readings.newcomer_history == "local_exit"
    offset = torch.zeros(shape, dtype=torch.float64, device=block.device) if counted_late else None
    return CacheState(Assignment.initial(shape, block.device), importance, offset)


def routed(plan: Plan, state: CacheState, event: int, scores: Tensor | None) -> CacheState:
    """The cache after routing event ``event``; ``scores`` replace the estimator's when they were foreseen."""
    score = plan.policy.estimator.score(state.importance) if scores is None else scores
    offset = state.offset
    if offset is not None:
        if event > 0:
            new = slice(plan.grid.historical(event - 1), plan.grid.historical(event))
            offset = offset.clone()
            offset[..., new] = score[..., new]
        score = score - offset
    forced = plan.settings.readings.admission == "forced" and event > 0
    after = route(score, state.assignment, plan.grid.historical(event), plan.policy, plan.capacity, forced=forced)
    return replace(state, assignment=after, offset=offset)


def updated(plan: Plan, state: CacheState, seen: Seen) -> CacheState:
    """The cache after the queries of an interval fed its estimator."""
    estimator = plan.policy.estimator
    if isinstance(estimator, Foresight):
        return state
    fed = seen.last() if plan.settings.readings.score_queries == "event" else seen
    return replace(state, importance=estimator.update(state.importance, fed))


def interval(plan: Plan, state: CacheState, masses: QueryBlock, event: int) -> Seen:
    """The Ω queries after an event, as the policy's cache sees them."""
    grid, start = plan.grid, masses.queries.start
    stop = min((event + 1) * grid.window, masses.queries.stop)
    queries = slice(event * grid.window - start, stop - start)
    quantized = masses.quantized.get(plan.key)
    return Seen(
        grid=grid,
        positions=torch.arange(grid.length_at(event), grid.prefill + stop, device=masses.sinks.device),
        full=plan.per_unit(masses.full[grid.window][:, :, queries]),
        quantized=None if quantized is None else plan.per_unit(quantized[:, :, queries]),
        always=plan.per_unit((masses.sinks + masses.sink_share)[:, :, queries]),
        accessible=state.assignment.accessible,
        ledger=state.assignment.ledger,
        restricted=plan.settings.readings.policy_score == "restricted",
    )


def prompt_view(plan: Plan, block: LayerBlock) -> Prompt:
    """The prefill as a policy's estimator sees it."""
    grid = plan.grid

    def to_windows(per_position: Tensor) -> Tensor:
        missing = grid.length - per_position.shape[-1]
        return grid.by_window(torch.nn.functional.pad(per_position, (0, missing)))

    def rows() -> tuple[Tensor, Tensor]:
        attention = block.stack([trace.prompt_attention() for trace in block.traces])
        positions = torch.tensor(block.traces[0].prompt_query_positions, device=block.device)
        return plan.per_unit(to_windows(attention)), positions

    def mean_norm(name: str) -> Tensor:
        norms = to_windows(block.norm(name)) / grid.window
        heads = norms.repeat_interleave(block.heads // norms.shape[1], dim=1)
        return plan.per_unit(heads).mean(2)

    return Prompt(
        grid=grid,
        layers=block.layers,
        mass=plan.per_unit(to_windows(block.prompt_mass)).sum(2),
        rows=rows,
        key_norm=lambda: mean_norm("key"),
        value_norm=lambda: mean_norm("value"),
    )


def foreseen(plan: Plan, block: LayerBlock) -> Tensor | None:
    """Scores of a clairvoyant policy, [layer, unit, event, window]; None for a causal one."""
    estimator = plan.policy.estimator
    if not isinstance(estimator, Foresight):
        return None
    keep = plan.capacity.full + plan.capacity.quantized
    return estimator.scores(
        Future(plan.grid, horizon_gain(plan, block), keep, plan.grid.eligible(plan.settings.horizon))
    )


def horizon_gain(plan: Plan, block: LayerBlock) -> Tensor:
    """m_r(w) of every event, [layer, unit, event, window] float64: see `qevict_diag.seen.Future`.

    Two passes over the stream: FMM's denominators first, then the masses divided by them.
    """
    grid = plan.grid
    shape = (len(block.layers), block.heads, grid.events)
    total = torch.zeros(shape, dtype=torch.float64, device=block.device)
    for masses, events, within in horizons(plan, block):
        total[..., events.start : events.stop] += in_horizon(attended(plan, masses, events), within)
    weight = torch.where(total > 0, 1 / total, 0) / (block.heads // plan.units)
    gain = torch.zeros(shape[0], plan.units, grid.events, grid.count, dtype=torch.float64, device=block.device)
    for masses, events, within in horizons(plan, block):
        share = plan.per_unit(weight[:, :, None, events.start : events.stop] * within).flatten(2, 3)
        mass = plan.per_unit(masses.full[grid.window]).flatten(2, 3).double()
        gain[:, :, events.start : events.stop] += share.transpose(-1, -2) @ mass
    return gain


def horizons(plan: Plan, block: LayerBlock) -> Iterator[tuple[QueryBlock, range, Tensor]]:
    """Stream the FullKV masses with the events whose horizons each block of queries belongs to, and the band mask."""
    grid, horizon = plan.grid, plan.settings.horizon
    for masses in stream(block, [], {grid.window: grid}, block_queries([grid.window], block.decode)):
        events = events_seeing(masses.queries, grid.window, horizon)
        yield masses, events, band(masses.queries, events, grid.window, horizon, block.device)


def layer_blocks(
    trace: Recorded, plans: Sequence[Plan], settings: Settings, layers: Iterable[int] | None = None
) -> Iterator[LayerBlock]:
    """Load the layers in blocks whose attention masses stay below ``settings.block_bytes``."""
    chosen = tuple(trace.layers if layers is None else layers)
    device = working_device(settings.device)
    size = layers_per_block(trace, plans, settings)
    for start in range(0, len(chosen), size):
        traces = tuple(trace.layer(layer) for layer in chosen[start : start + size])
        yield LayerBlock(traces, device, settings.dtype)


def layers_per_block(trace: Recorded, plans: Sequence[Plan], settings: Settings) -> int:
    """How many layers fit into a block: the attention of its queries and the keys, for each kind of keys."""
    shape = trace.shape
    queries = block_queries([plan.grid.window for plan in plans], shape.decode)
    kinds = 1 + len({plan.key for plan in plans})
    per_layer = kinds * shape.length * (2 * shape.heads * queries + shape.kv_heads * shape.head_dim)
    return max(1, settings.block_bytes // (per_layer * torch.finfo(settings.dtype).bits // 8))


def working_device(name: str) -> torch.device:
    """The torch device called ``name``; InputError when this machine does not have it."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device {name!r}: not available here; use cpu, or cuda where torch sees a GPU") from error
    return device


def join(parts: list[Replay]) -> Replay:
    """Concatenate the layers of several replays of one policy."""
    return replace(
        parts[0],
        layers=tuple(layer for part in parts for layer in part.layers),
        tier=torch.cat([part.tier for part in parts], LAYER_AXIS),
        seen=concatenate([part.seen for part in parts], LAYER_AXIS),
    )
