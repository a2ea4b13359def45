"""Record the attention of a decoder model, replay KV-cache policies against it, and measure what they discard.

    import qevict_diag as qd

    trace = qd.load("traces/lighthouse")
    qd.measure([trace], ["R1", "R3"], ["fmm"]).frame

Nothing is imported before it is used.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qevict_diag.cache.budget import Budget
    from qevict_diag.measure.traces import measure
    from qevict_diag.metrics import METRICS
    from qevict_diag.policies.catalogue import POLICIES, policy
    from qevict_diag.quantizers import QUANTIZERS
    from qevict_diag.readings import READINGS
    from qevict_diag.record.recorder import record
    from qevict_diag.replay.loop import replay
    from qevict_diag.replay.settings import Settings
    from qevict_diag.trace.trace import Trace

__all__ = [
    "METRICS",
    "POLICIES",
    "QUANTIZERS",
    "READINGS",
    "Budget",
    "Settings",
    "Trace",
    "load",
    "measure",
    "policy",
    "record",
    "replay",
]
_FOLDERS = ("measure", "record", "replay")  # called as the functions of their names, see `qevict_diag.called`
_HOMES = {
    "METRICS": "metrics",
    "POLICIES": "policies.catalogue",
    "QUANTIZERS": "quantizers",
    "READINGS": "readings",
    "Budget": "cache.budget",
    "Settings": "replay.settings",
    "Trace": "trace.trace",
    "policy": "policies.catalogue",
}


def load(path: str | os.PathLike[str]) -> "Trace":
    """Open the trace folder ``path``, see `Trace.open`."""
    from qevict_diag.trace.trace import Trace

    return Trace.open(path)


def __getattr__(name: str) -> Any:
    if name in _FOLDERS:
        return import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
