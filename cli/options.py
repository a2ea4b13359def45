"""Options that several commands share, and how they become settings."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qevict_diag.cli.show import say

if TYPE_CHECKING:
    from qevict_diag.policies.policy import Policy
    from qevict_diag.replay.settings import Settings
    from qevict_diag.trace.trace import Trace

Traces = Annotated[list[Path], typer.Argument(help="Trace folders, or folders of traces.")]
Policies = Annotated[
    list[str] | None, typer.Option("--policy", help="Repeat for several, NAME or NAME[estimator]; see `policies`.")
]
Ratio = Annotated[str, typer.Option("--budget", help="Share of the FullKV bytes, read exactly: 1/5, 0.2 or 20%.")]
Sinks = Annotated[int, typer.Option(help="Protected tokens at the start.")]
Recent = Annotated[int, typer.Option(help="Protected tokens at the end.")]
Window = Annotated[int | None, typer.Option(help="Window size; R1 and R4 keep theirs. Default: each policy's own.")]
Fraction = Annotated[str, typer.Option(help="Share of the historical bytes given to the quantized tier.")]
Bits = Annotated[int, typer.Option(help="Bits of the quantized tier: 2 or 4.")]
Horizon = Annotated[int, typer.Option(help="Horizon of Future Missed Mass in decode queries.")]
Inactive = Annotated[int, typer.Option(help="Events after which an inactive episode counts for Global LIR.")]
ReadingChoices = Annotated[list[str] | None, typer.Option("--reading", help="NAME=VALUE; see `readings`.")]
Device = Annotated[str, typer.Option(help="Torch device: cpu, cuda, cuda:1, ...")]
Precision = Annotated[str, typer.Option("--arithmetic", help="Compute in float32 or float64.")]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub id.")]
RemoteCode = Annotated[bool, typer.Option("--trust-remote-code", help="Run the code that comes with the model.")]
Terms = Annotated[bool, typer.Option("--accept-terms", help="Accept a built-in model's conditions of use.")]
OneModel = Annotated[str | None, typer.Option("--model", help="Which model, in a sweep of several.")]
Partial = Annotated[bool, typer.Option("--partial", help="Take what is there of an unfinished sweep.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bar.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

SHARED: dict[str, tuple[Any, Any]] = {  # what becomes `Settings`: how each option is asked for, and its default
    "budget": (Ratio, "1/5"),
    "sinks": (Sinks, 5),
    "recent": (Recent, 32),
    "quantized_fraction": (Fraction, "1/2"),
    "bits": (Bits, 2),
    "horizon": (Horizon, 32),
    "min_inactive": (Inactive, 3),
    "reading": (ReadingChoices, None),
    "device": (Device, "cpu"),
    "dtype": (Precision, "float32"),
}


def with_settings(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of `SHARED`, all or those named, as one argument ``settings``.

    They stand in the command's help where ``settings`` stands in its signature.
    """
    chosen = names or tuple(SHARED)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**given: Any) -> None:
            command(**{name: given[name] for name in own}, settings=settings({name: given[name] for name in chosen}))

        shared = [_parameter(name, *SHARED[name]) for name in chosen]
        parameters: list[inspect.Parameter] = []
        for name, parameter in inspect.signature(command).parameters.items():
            parameters += shared if name == "settings" else [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
        own = [parameter.name for parameter in parameters if parameter not in shared]
        shown: Any = run
        shown.__signature__ = inspect.Signature(parameters)
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def settings(given: Mapping[str, Any]) -> "Settings":
    """Settings from what the command line gave, else from the defaults of `SHARED`. InputError and its kinds."""
    import torch

    from qevict_diag.cache.budget import Budget, exact
    from qevict_diag.errors import InputError
    from qevict_diag.readings import Readings
    from qevict_diag.replay.settings import Settings

    chosen = {name: default for name, (_, default) in SHARED.items()} | dict(given)
    if chosen["dtype"] not in ("float32", "float64"):
        raise InputError(f"arithmetic {chosen['dtype']!r}: allowed are float32 and float64")
    ratio, fraction = exact(chosen["budget"]), exact(chosen["quantized_fraction"], "quantized fraction")
    return Settings(
        budget=Budget(ratio, fraction, chosen["bits"], chosen["sinks"], chosen["recent"]),
        readings=Readings.parse(chosen["reading"] or []),
        dtype=getattr(torch, chosen["dtype"]),
        **{name: chosen[name] for name in ("horizon", "min_inactive", "device")},
    )


def show_terms(accepted: bool) -> Callable[[str], bool]:
    """Print a model's conditions of use, and say whether they were ``accepted`` beforehand."""

    def show(terms: str) -> bool:
        for line in terms.splitlines():
            say(line)
        return accepted

    return show


def say_notes(traces: "Sequence[Trace]", policies: "Sequence[Policy]", settings: "Settings") -> None:
    """Say, beside the numbers, what to know of them: policies that keep nothing, layers where nothing has to go."""
    from qevict_diag.measure.notes import notes

    for told in notes(traces, policies, settings):
        say(f"note: {told}", err=True)


def open_traces(paths: list[Path], *, one_length: bool = True) -> "list[Trace]":
    """Open trace folders, or the traces in folders, as articles to be measured: copies are left out, and said to be.

    TraceError when there is none or one is damaged, InputError for two traces of one name; see `trace.find`.
    """
    from qevict_diag.trace.find import check_names, copies, find_traces, left_out

    found = find_traces(paths)
    check_names(found, one_length=one_length)
    same = copies(found)
    for told in left_out(same):
        say(told, err=True)
    return [trace for trace in found if trace.path not in same]
