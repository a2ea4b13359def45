"""Sweeps: the full grid of settings over many traces as one job that can be killed, continued and spread out.

`run` computes a `Sweep` into a folder on an `Engine`; `read` gives its measurements and byte use as polars LazyFrames.
"""

from qevict_diag.sweep.engine import Engine
from qevict_diag.sweep.estimate import SweepPlan, plan
from qevict_diag.sweep.folder import SweepFolder
from qevict_diag.sweep.grid import Setting, Sweep
from qevict_diag.sweep.read import SweepFrames, read
from qevict_diag.sweep.run import Finished, run
from qevict_diag.sweep.tasks import Misfit, Task, misfits, tasks

__all__ = [
    "Engine",
    "Finished",
    "Misfit",
    "Setting",
    "Sweep",
    "SweepFolder",
    "SweepFrames",
    "SweepPlan",
    "Task",
    "misfits",
    "plan",
    "read",
    "run",
    "tasks",
]
