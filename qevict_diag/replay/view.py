"""What a ranking is shown: the prompt, each interval through the policy's cache, or, for an oracle, the future.

The views are built from the stream of attention masses; `qevict_diag.policies.view` says what they hold.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from qevict_diag.cache.routing import Assignment
from qevict_diag.errors import MetricError
from qevict_diag.policies.allotment import Layers
from qevict_diag.policies.ranking import Estimator
from qevict_diag.policies.view import Future, Interval, Prompt
from qevict_diag.replay.blocks import LayerBlock
from qevict_diag.replay.horizon import attended, band, events_seeing, in_horizon
from qevict_diag.replay.plan import Plan
from qevict_diag.replay.stream import QueryBlock, stream

LAST_PROMPT_QUERIES = 32  # those that initialise the score under reading L = last


def first_view(plan: Plan, block: LayerBlock) -> Prompt | Future:
    """What the policy's ranking begins with: the prompt, and for an oracle the future."""
    causal = isinstance(plan.policy.ranking, Estimator)
    return prompt_view(plan, block) if causal else future_view(plan, block)


def prompt_view(plan: Plan, block: LayerBlock) -> Prompt:
    """The prefill as a policy's estimator sees it."""
    grid, scored = plan.grid, scored_queries(plan, block)

    def to_windows(per_position: Tensor) -> Tensor:
        missing = grid.length - per_position.shape[-1]
        return grid.by_window(torch.nn.functional.pad(per_position, (0, missing)))

    def rows() -> tuple[Tensor, Tensor]:
        attention = block.stack([trace.prompt_attention() for trace in block.traces])
        positions = torch.tensor(block.traces[0].prompt_query_positions, device=block.device)
        return plan.per_unit(to_windows(attention)), positions

    def mass() -> Tensor:
        if len(scored) == block.prefill:
            return plan.per_unit(to_windows(block.prompt_mass)).sum(2)
        return rows()[0][..., -len(scored) :, :].sum((2, 3)).double()

    def mean_norm(name: str) -> Tensor:
        norms = to_windows(block.norm(name)) / grid.window
        heads = norms.repeat_interleave(block.heads // norms.shape[1], dim=1)
        return plan.per_unit(heads).mean(2)

    return Prompt(
        grid=grid,
        layers=layers_of(block),
        mass=mass(),
        scored=scored,
        reach=block.reach,
        rows=rows,
        key_norm=lambda: mean_norm("key"),
        value_norm=lambda: mean_norm("value"),
    )


def scored_queries(plan: Plan, block: LayerBlock) -> range:
    """Positions of the prompt queries that initialise a score (reading L): all, the last stored ones, or one."""
    reading = plan.settings.readings.score_start
    if reading == "all":
        return range(block.prefill)
    stored = len(block.traces[0].prompt_query_positions)
    wanted = 1 if reading == "one" else min(LAST_PROMPT_QUERIES, block.prefill)
    if stored < wanted:
        raise MetricError(
            f"reading score_start={reading} needs the last {wanted} prompt queries, the trace stores {stored}; record "
            f"again with --prompt-queries {wanted}"
        )
    return range(block.prefill - wanted, block.prefill)


def interval_view(plan: Plan, assignment: Assignment, masses: QueryBlock, event: int) -> Interval:
    """The queries after an event, as the policy's cache sees them."""
    grid, start = plan.grid, masses.queries.start
    stop = min((event + 1) * grid.every, masses.queries.stop)
    queries = slice(event * grid.every - start, stop - start)
    quantized = None if plan.key is None else masses.quantized[plan.key]
    return Interval(
        grid=grid,
        positions=torch.arange(grid.length_at(event), grid.prefill + stop, device=masses.sink_share.device),
        full=plan.per_unit(masses.full[plan.cut][:, :, queries]),
        quantized=None if quantized is None else plan.per_unit(quantized[:, :, queries]),
        always=plan.per_unit((masses.sinks[grid.sinks] + masses.sink_share)[:, :, queries]),
        accessible=assignment.accessible,
        ledger=assignment.ledger,
        reach=masses.reach,
        elapsed=queries.stop - queries.start,
        restricted=plan.settings.readings.policy_score == "restricted",
    )


def future_view(plan: Plan, block: LayerBlock) -> Future:
    """The recorded future of every event, for an oracle."""
    eligible = plan.grid.eligible(plan.settings.horizon)
    return Future(plan.grid, layers_of(block), horizon_gain(plan, block), plan.capacity.kept, eligible)


def horizon_gain(plan: Plan, block: LayerBlock) -> Tensor:
    """m_r(w) of every event, [layer, unit, event, window] float64: see `qevict_diag.policies.view.Future`.

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
        mass = plan.per_unit(masses.full[plan.cut]).flatten(2, 3).double()
        gain[:, :, events.start : events.stop] += share.transpose(-1, -2) @ mass
    return gain


def horizons(plan: Plan, block: LayerBlock) -> Iterator[tuple[QueryBlock, range, Tensor]]:
    """Stream the FullKV masses with the events whose horizons each block of queries belongs to, and the band mask."""
    every, horizon = plan.grid.every, plan.settings.horizon
    for masses in stream(block, [plan], quantized=False):
        events = events_seeing(masses.queries, every, horizon)
        yield masses, events, band(masses.queries, events, every, horizon, block.device)


def layers_of(block: LayerBlock) -> Layers:
    """The layers of a block, and how many the model has."""
    return Layers(block.layers, block.total)
