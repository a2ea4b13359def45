"""The replay: one loop for all policies, over blocks of layers and of decode queries (definitions.md, sections 3-7).

Policies run side by side on one stream of attention masses, so logits are computed once for all of them. At event r a
policy routes its windows; the Ω queries that follow are then seen through its cache (teacher forcing: the FullKV
query, the accessible positions, dequantized keys wherever the ledger has an entry) and feed its estimator. What is
kept of a run is an argument (`Save`), so memory is the caller's decision.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

import torch

from qevict_diag.errors import InputError
from qevict_diag.policies.policy import Policy
from qevict_diag.policies.step import initial_state, routed, updated
from qevict_diag.replay.blocks import LayerBlock, block_queries, layer_blocks
from qevict_diag.replay.fold import Observer, Save
from qevict_diag.replay.plan import Plan, make_plan
from qevict_diag.replay.result import Replay, join
from qevict_diag.replay.settings import Settings
from qevict_diag.replay.stream import QueryBlock, stream
from qevict_diag.replay.view import interval_view
from qevict_diag.trace.layer import Recorded


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
