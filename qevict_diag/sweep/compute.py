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
from qevict_diag.frames import MEASUREMENTS
from qevict_diag.measure.bytes import byte_use
from qevict_diag.measure.traces import measure_replay, needed
from qevict_diag.replay.loop import replay_blocks
from qevict_diag.replay.result import Replay
from qevict_diag.sweep.folder import SWEPT, SWEPT_BYTES, SweepFolder
from qevict_diag.sweep.grid import Arm
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
    settings = task.setting.settings(options)
    measured, used = [], []
    with one_thread():
        asked = [(arm.policy, needed(options.metrics)) for arm in arms]
        for block in replay_blocks(trace, asked, settings, task.layers):
            for arm, run in zip(arms, block, strict=True):
                swept = _swept(task, arm, run)
                frame = measure_replay(run, options.metrics, options.min_inactive, trace.name, task.model)
                measured.append(frame.with_columns(**swept))
                used.append(byte_use(run, trace.name).with_columns(model=pl.lit(task.model), **swept))
    return Result(pl.concat(measured).select([*MEASUREMENTS, *SWEPT]), pl.concat(used).select(list(SWEPT_BYTES)))


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute on one thread inside, as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _swept(task: Task, arm: Arm, run: Replay) -> dict[str, pl.Expr]:
    setting = task.setting
    fraction = None if setting.quantized_fraction is None else str(setting.quantized_fraction)
    values = (run.grid.window, fraction, setting.bits, setting.reading, arm.seed)
    return {name: pl.lit(value, dtype) for (name, dtype), value in zip(SWEPT.items(), values, strict=True)}
