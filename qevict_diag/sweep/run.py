"""Run a sweep: what is missing of it, on whatever engine, into its folder."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from qevict_diag.devices import torch_device
from qevict_diag.errors import InputError, QEvictError, SweepError
from qevict_diag.progress import Progress, Steps, silent
from qevict_diag.sweep.compute import work
from qevict_diag.sweep.engine import Engine
from qevict_diag.sweep.folder import SweepFolder
from qevict_diag.sweep.grid import Sweep
from qevict_diag.sweep.tasks import Task, identity, program, tasks
from qevict_diag.trace.trace import Trace


@dataclass(frozen=True)
class Finished:
    """How many parts the sweep has, and how many of them this run computed."""

    parts: int
    computed: int


def run(sweep: Sweep, folder: str | Path, engine: Engine | None = None, progress: Progress = silent) -> Finished:
    """Compute every part that is missing or damaged; a killed sweep continues where it stopped. A step is a part.

    SweepError when the folder holds another sweep, another process sweeps into it, the disk is full, or a worker, the
    scheduler or a trace is lost: finished parts are kept whatever happens.
    """
    target = SweepFolder(Path(folder).absolute())
    traces = [Trace.open(path) for path in sweep.traces]
    todo = tasks(sweep, traces)
    if not todo:
        raise InputError("no setting of the sweep fits any trace; give larger budgets or smaller windows")
    if (engine or Engine()).kind == "loky":
        torch_device(sweep.options.device)  # refused before the folder is claimed
    with target.locked():
        target.claim(describe(sweep, traces, todo))
        target.remove_leftovers()
        missing = [task for task in todo if not target.has(task.name)]
        try:
            _compute(missing, target, engine or Engine(), len(todo), progress)
        finally:
            target.remove_leftovers()
    return Finished(len(todo), len(missing))


def describe(sweep: Sweep, traces: Sequence[Trace], todo: Sequence[Task]) -> dict[str, Any]:
    """The manifest's content: the grid, the traces, and the name of every part in order."""
    return {
        "program": program(),
        "grid": {name: value for name, value in asdict(sweep).items() if name != "traces"},
        "traces": [{"name": trace.name, "identity": identity(trace), "path": str(trace.path)} for trace in traces],
        "parts": [task.name for task in todo],
    }


def _compute(missing: Sequence[Task], target: SweepFolder, engine: Engine, total: int, progress: Progress) -> None:
    finished = Steps(progress, "sweeping", total)
    finished(total - len(missing))
    if not missing:
        return
    try:
        with closing(engine.map(work, [(task, target.path) for task in missing])) as results:
            for _ in results:
                finished()
    except QEvictError as error:
        raise SweepError(
            f"{error}. {finished.done} of {total} parts are finished and kept; give the same sweep again to continue"
        ) from error
