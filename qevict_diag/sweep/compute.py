"""One task, from the trace to the part on disk: what runs on a worker, wherever that is.

A result must not depend on how many workers there are. A task therefore computes on one thread, over the same blocks
of layers and queries everywhere, and reads nothing but its trace.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import torch

from qevict_diag.errors import SweepError
from qevict_diag.measure.bytes import byte_use
from qevict_diag.measure.traces import folds, measure_replay
from qevict_diag.replay.loop import Asked, replay_blocks
from qevict_diag.sweep.folder import SWEPT_BYTES, SWEPT_ROWS, SweepFolder
from qevict_diag.sweep.tasks import Task, identity
from qevict_diag.trace.trace import Trace


@dataclass(frozen=True)
class Result:
    """Rows of one task: measurements and byte use, both with the columns of `SWEPT`."""

    measurements: pl.DataFrame
    bytes: pl.DataFrame


def work(task: Task, folder: Path) -> str:
    """Compute a task and write its part, unless it is there already; the name of the part."""
    target = SweepFolder(folder)
    if not target.has(task.name):
        result = compute(task)
        target.write(task, result.measurements, result.bytes)
    return task.name


def compute(task: Task) -> Result:
    """Replay and measure a task, on one thread. SweepError when the trace is no longer what it was."""
    trace = Trace.open(task.trace)
    if identity(trace) != task.identity:
        raise SweepError(f"{task.trace} has changed since the sweep began; put the old trace back or sweep anew")
    options, arms = task.options, task.setting.arms()
    settings, swept = task.setting.settings(options), {"swept_reading": pl.lit(task.setting.reading)}
    kept = folds(options.metrics)
    measured, used = [], []
    with one_thread():
        for block in replay_blocks(trace, [Asked(arm, kept, settings) for arm in arms], task.layers):
            for run in block:
                measured.append(measure_replay(run, options.metrics, trace.name, task.model))
                used.append(byte_use(run, trace.name).with_columns(model=pl.lit(task.model)))
    frames = (pl.concat(part).with_columns(**swept) for part in (measured, used))
    measurements, use = (
        frame.select(list(names)) for frame, names in zip(frames, (SWEPT_ROWS, SWEPT_BYTES), strict=True)
    )
    return Result(measurements, use)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute on one thread inside, as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
