"""The replay: one loop for all policies, over blocks of layers and of decode queries (definitions.md, sections 3-7).

Policies run side by side on one stream of attention masses, so logits are computed once for all of them. At event r a
policy routes its windows; the queries that follow are then seen through its cache (teacher forcing: the FullKV query,
the accessible positions, restored keys wherever the ledger has an entry) and feed its estimator. What is kept of a run
is an argument, the folds, so memory is the caller's decision.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch

from qevict_diag.errors import InputError
from qevict_diag.policies.policy import Policy
from qevict_diag.policies.step import begin, decide, learn
from qevict_diag.progress import Progress, Steps, silent
from qevict_diag.replay.blocks import LayerBlock, layer_blocks
from qevict_diag.replay.fold import Fold
from qevict_diag.replay.plan import Plan, make_plan
from qevict_diag.replay.result import Replay, join
from qevict_diag.replay.settings import Settings
from qevict_diag.replay.stream import QueryBlock, stream
from qevict_diag.replay.view import first_view, interval_view
from qevict_diag.trace.layer import Recorded


@dataclass(frozen=True)
class Asked:
    """A policy to replay, the settings it runs under, and what to keep of its run besides its decisions."""

    policy: Policy
    folds: tuple[Fold, ...]
    settings: Settings


def replay(
    trace: Recorded,
    policies: Sequence[Policy],
    settings: Settings | None = None,
    *,
    folds: Iterable[Fold] = (),
    layers: Iterable[int] | None = None,
    progress: Progress = silent,
) -> list[Replay]:
    """Replay policies against a trace, all recorded ``layers`` unless told otherwise; one `Replay` per policy.

    ``folds`` are kept for metrics (`qevict_diag.metrics`); decisions always are. A step of ``progress`` is a layer.
    Raises BudgetError, MetricError, TraceError; MetricError too for layers of different
    shapes, which cannot be one `Replay`: see `replay_blocks`.
    """
    kept, settings = tuple(folds), settings or Settings()
    chosen = tuple(trace.layers if layers is None else layers)
    finished, parts = Steps(progress, "replaying", len(chosen)), []
    for part in replay_blocks(trace, [Asked(policy, kept, settings) for policy in policies], chosen):
        parts.append(part)
        finished(len(part[0].layers))
    return [join(list(runs)) for runs in zip(*parts, strict=True)]


def replay_blocks(
    trace: Recorded, asked: Sequence[Asked], layers: Iterable[int] | None = None
) -> Iterator[list[Replay]]:
    """Yield the replays of one block of layers after another, so that no more than a block is ever in memory.

    Layers of a block have one shape: a model whose layers differ (Gemma 4) has a block, and capacities, for each. All
    that is asked shares one stream of masses, whatever its settings; device, dtype and block size are the first one's.
    """
    chosen = tuple(trace.layers if layers is None else layers)
    if not chosen or not asked:
        raise InputError("nothing to replay; give at least one policy and one layer")
    alike = [(shape, tuple(numbers)) for shape, numbers in groupby(chosen, trace.layer_shape)]
    plans = {shape: [make_plan(one.policy, shape, one.settings) for one in asked] for shape, _ in alike}
    folds = [one.folds for one in asked]
    for shape, numbers in alike:
        for block in layer_blocks(trace, numbers, plans[shape], asked[0].settings):
            yield replay_block(block, plans[shape], folds)


def replay_block(block: LayerBlock, plans: Sequence[Plan], folds: Sequence[Sequence[Fold]]) -> list[Replay]:
    """Replay all plans over one block of layers, side by side on one stream; those that decide alike decide once."""
    runs = {key: Run(plan, block) for key, plan in {plan.decisive: plan for plan in plans}.items()}
    sums = {
        fold.shared(plan): Sums(fold, plan, runs[plan.decisive])
        for plan, some in zip(plans, folds, strict=True)
        for fold in some
    }
    for masses in stream(block, plans):
        for run in runs.values():
            run.advance(masses)
        for one in sums.values():
            one.add(masses)
    kept = {key: one.finish() for key, one in sums.items()}
    numbers = (block.layers, block.head_numbers, block.kv_head_numbers)
    return [
        Replay(plan, *numbers, runs[plan.decisive].tier, {fold: kept[fold.shared(plan)] for fold in some})
        for plan, some in zip(plans, folds, strict=True)
    ]


class Run:
    """One policy passing along the stream: the cache state, and what has been decided so far."""

    def __init__(self, plan: Plan, block: LayerBlock) -> None:
        self.plan, self.block = plan, block
        self.state = begin(plan.rules, first_view(plan, block))
        shape = (len(block.layers), plan.units, plan.grid.events, plan.grid.count)
        self.tier = torch.zeros(shape, dtype=torch.uint8, device=block.device)
        self.ledger = torch.zeros(shape, dtype=torch.bool, device=block.device)

    def advance(self, masses: QueryBlock) -> None:
        """Route every event of this block of queries, and see its queries through the cache."""
        plan, every = self.plan, self.plan.grid.every
        for event in range(masses.queries.start // every, -(-masses.queries.stop // every)):
            self.state = decide(plan.rules, self.state, event)
            assignment = self.state.assignment
            self.tier[:, :, event], self.ledger[:, :, event] = assignment.tier, assignment.ledger
            self.state = learn(plan.rules, self.state, interval_view(plan, assignment, masses, event))


class Sums:
    """One fold of one run as a plan measures it, block by block."""

    def __init__(self, fold: Fold, plan: Plan, run: Run) -> None:
        self.fold, self.plan, self.run = fold, plan, run
        self.state = fold.start(plan, run.block)

    def add(self, masses: QueryBlock) -> None:
        """Fold a block of queries, after the run has routed its events."""
        so_far = (slice(None), slice(None), slice(-(-masses.queries.stop // self.plan.grid.every)))
        tier = self.plan.measured(self.run.tier[so_far])
        self.state = self.fold.add(self.plan, self.state, masses, tier, self.run.ledger[so_far])

    def finish(self) -> Any:
        """What the fold keeps."""
        return self.fold.finish(self.plan, self.state)
