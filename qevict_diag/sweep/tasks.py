"""From a grid and opened traces to tasks, each with a name that says what it computes.

The name is a hash of everything the result depends on: the trace's contents, the layers, the setting, the options and
the version of this program. Where the trace lies does not matter, so a sweep survives the move of its traces.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import version
from itertools import product
from typing import Any

from qevict_diag.errors import BudgetError, InputError
from qevict_diag.measure.models import model_names
from qevict_diag.replay.plan import make_plan
from qevict_diag.sweep.grid import Options, Setting, Sweep
from qevict_diag.trace.find import copies
from qevict_diag.trace.trace import Trace

PROGRAM = "qevict-diag"
SHOWN = 3  # misfits named in an error


@dataclass(frozen=True)
class Task:
    """One setting on a block of layers of one trace.

    ``identity`` is that of the trace's contents, ``model`` the name of its model among the sweep's.
    """

    trace: str
    identity: str
    model: str
    layers: tuple[int, ...]
    setting: Setting
    options: Options

    @cached_property
    def name(self) -> str:
        """Name of its result, from its content."""
        return digest({"program": program(), **self.content()})

    def content(self) -> dict[str, Any]:
        """Everything that its result depends on, ready for JSON."""
        return {key: value for key, value in asdict(self).items() if key != "trace"}


@dataclass(frozen=True)
class Misfit:
    """A setting that does not fit a trace, and why."""

    trace: str
    setting: Setting
    reason: str


def tasks(sweep: Sweep, traces: Sequence[Trace]) -> tuple[Task, ...]:
    """All tasks in a fixed order: trace by trace, setting by setting, block by block.

    BudgetError when a setting does not fit a trace, unless the sweep skips those; InputError for traces that could not
    be told apart.
    """
    tell_apart(traces)
    found = misfits(sweep, traces)
    if found and not sweep.skip_impossible:
        raise BudgetError(_impossible(found, len(traces) * len(sweep.settings())))
    skipped = {(misfit.trace, misfit.setting) for misfit in found}
    return tuple(
        Task(str(trace.path), identity(trace), model, layers, setting, sweep.options)
        for trace, model in zip(traces, model_names(traces), strict=True)
        for setting in sweep.settings()
        if (str(trace.path), setting) not in skipped
        for layers in _blocks(trace.layers, sweep.layers_per_task)
    )


def misfits(sweep: Sweep, traces: Sequence[Trace]) -> tuple[Misfit, ...]:
    """Settings that leave no history, or whose windows are larger than it, on some trace."""
    found = []
    for trace in traces:
        for setting in sweep.settings():
            try:
                for arm, shape in product(setting.arms(), {trace.layer_shape(layer) for layer in trace.layers}):
                    make_plan(arm, shape, setting.settings(sweep.options))
            except BudgetError as error:
                found.append(Misfit(str(trace.path), setting, str(error)))
    return tuple(found)


def identity(trace: Trace) -> str:
    """Hash of what a trace is called and contains; its checksums stand for the tensors."""
    parts = {key: trace.manifest.get(key) for key in ("shape", "attention", "prompt_queries")}
    files = {name: entry.sha256 for name, entry in trace.files.items()}
    return digest({"name": trace.name, "model": trace.model_id, "files": files, **parts})


def digest(content: Any) -> str:
    """128 bits of the SHA-256 of a JSON value, in hexadecimal; rationals count as text."""
    text = json.dumps(content, sort_keys=True, default=str, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def program() -> str:
    """This program and its version: results of different versions are not mixed."""
    return f"{PROGRAM} {version(PROGRAM)}"


def tell_apart(traces: Sequence[Trace]) -> None:
    """Refuse two traces of one model under one name, whose rows could not be told apart, and copies (InputError)."""
    seen: dict[tuple[str, str], Trace] = {}
    for trace, model in zip(traces, model_names(traces), strict=True):
        other = seen.setdefault((model, trace.name), trace)
        if other is not trace:
            raise InputError(
                f"two traces are called {trace.name} ({other.path} and {trace.path}); rename one folder, or sweep them "
                "separately"
            )
    for path, other in copies(traces).items():
        raise InputError(f"{path} holds the same recording as {other.path}; leave one out, they are one article")


def _blocks(layers: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    for start in range(0, len(layers), size):
        yield tuple(layers[start : start + size])


def _impossible(found: Sequence[Misfit], total: int) -> str:
    told = "; ".join(f"{misfit.setting.words()}: {misfit.reason}" for misfit in found[:SHOWN])
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return f"{len(found)} of {total} settings do not fit ({told}{more}); leave them out or give --skip-impossible"
