"""Which traces are of one model: their weights tell, not the path it was loaded by."""

from collections.abc import Mapping, Sequence
from itertools import chain, count
from typing import Any

from qevict_diag.errors import InputError
from qevict_diag.models.identity import difference
from qevict_diag.trace.layer import Recorded
from qevict_diag.trace.trace import Trace


def model_names(traces: Sequence[Recorded]) -> list[str]:
    """A name for the model of each trace, one for each model.

    It is the id that the model was first recorded by, or ``id (2)`` where another model has that id already.
    """
    known: dict[str, Mapping[str, Any]] = {}
    for entry in map(_entry, traces):
        if not _name_of(entry, known):
            known[_free(str(entry["id"]), known)] = entry
    return [str(_name_of(_entry(trace), known)) for trace in traces]


def one_model(traces: Sequence[Recorded], unless: str = "") -> None:
    """Refuse traces of different models: their numbers are not samples of one thing (InputError).

    ``unless`` names the option that allows it, where a command has one.
    """
    names = model_names(traces)
    models = dict(zip(names, map(_entry, traces), strict=True))
    if len(models) > 1:
        first, second, *_ = models.values()
        told = f"{', '.join(models)}; the first two differ in {difference(first, second)}"
        raise InputError(
            f"traces of {len(models)} models ({told}); take one at a time" + (f", or give {unless}" if unless else "")
        )


def _entry(trace: Recorded) -> Mapping[str, Any]:
    """What is known of a trace's model; of one in memory, its id."""
    return (trace.entry("model") if isinstance(trace, Trace) else {}) | {"id": trace.model_id}


def _name_of(entry: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]]) -> str | None:
    return next((name for name, other in known.items() if not difference(entry, other)), None)


def _free(name: str, taken: Mapping[str, Any]) -> str:
    numbered = (f"{name} ({number})" for number in count(2))
    return next(tried for tried in chain([name], numbered) if tried not in taken)
