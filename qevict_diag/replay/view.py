"""What a ranking is shown: the prompt, each interval through the policy's cache, or, for an oracle, the future.

The views are built from the stream of attention masses; `qevict_diag.seen` says what they hold.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from qevict_diag.cache.routing import Assignment
from qevict_diag.policies.view import Future, Prompt, Seen
from qevict_diag.replay.blocks import LayerBlock, block_queries
from qevict_diag.replay.horizon import attended, band, events_seeing, in_horizon
from qevict_diag.replay.plan import Plan
from qevict_diag.replay.stream import QueryBlock, stream


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
        sight=block.sight,
        rows=rows,
        key_norm=lambda: mean_norm("key"),
        value_norm=lambda: mean_norm("value"),
    )


def interval_view(plan: Plan, assignment: Assignment, masses: QueryBlock, event: int) -> Seen:
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
        accessible=assignment.accessible,
        ledger=assignment.ledger,
        sight=masses.sight,
        elapsed=queries.stop - queries.start,
        restricted=plan.settings.readings.policy_score == "restricted",
    )


def future_view(plan: Plan, block: LayerBlock) -> Future:
    """The recorded future of every event, for an oracle."""
    keep = plan.capacity.full + plan.capacity.quantized
    return Future(plan.grid, horizon_gain(plan, block), keep, plan.grid.eligible(plan.settings.horizon))


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
