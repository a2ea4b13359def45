"""What a sweep will cost, measured on one layer of each kind of task, before anything is written.

A kind is a shape of trace, a window size and a number of tiers: those decide the cost of a layer. The estimate is the
sum over the missing tasks of layers x seconds of a layer of their kind, divided by the workers.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qevict_diag.sweep.compute import compute
from qevict_diag.sweep.folder import SweepFolder, encoded
from qevict_diag.sweep.grid import Sweep
from qevict_diag.sweep.tasks import Misfit, Task, misfits, tasks
from qevict_diag.trace.layer import TraceShape
from qevict_diag.trace.trace import Trace

Kind = tuple[TraceShape, int, bool]


@dataclass(frozen=True)
class SweepPlan:
    """Tasks in all and still to do, bytes that their parts will take, seconds they will take."""

    tasks: int
    missing: int
    settings: int
    traces: int
    bytes: int
    seconds: float
    workers: int
    misfits: tuple[Misfit, ...]


def plan(sweep: Sweep, folder: str | Path, workers: int = 1) -> SweepPlan:
    """Estimate a sweep from timed probes; writes nothing. Settings that don't fit are left out, and listed."""
    traces = {path: Trace.open(path) for path in sweep.traces}
    opened, target = list(traces.values()), SweepFolder(Path(folder))
    todo = tasks(replace(sweep, skip_impossible=True), opened)
    missing = [task for task in todo if not target.has(task.name)]
    costs = {kind: _probe(task) for kind, task in _one_of_each(todo, traces).items()}
    weights = [(len(task.layers), *costs[_kind(task, traces)]) for task in todo]
    undone = {task.name for task in missing}
    seconds = sum(n * cost for task, (n, cost, _) in zip(todo, weights, strict=True) if task.name in undone)
    return SweepPlan(
        tasks=len(todo),
        missing=len(missing),
        settings=len(sweep.settings()),
        traces=len(opened),
        bytes=round(sum(n * size for n, _, size in weights)),
        seconds=seconds / workers,
        workers=workers,
        misfits=misfits(sweep, opened),
    )


def _one_of_each(todo: Sequence[Task], traces: dict[str, Trace]) -> dict[Kind, Task]:
    return {_kind(task, traces): task for task in reversed(todo)}


def _kind(task: Task, traces: dict[str, Trace]) -> Kind:
    return (traces[task.trace].shape, task.setting.window, task.setting.bits is not None)


def _probe(task: Task) -> tuple[float, float]:
    """Seconds and bytes of one layer: a task of one layer, computed twice, the first time to warm up."""
    one = replace(task, layers=task.layers[:1])
    compute(one)
    start = time.perf_counter()
    result = compute(one)
    return time.perf_counter() - start, len(encoded(result.measurements))
