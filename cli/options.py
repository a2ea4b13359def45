"""Options that several commands share, and how they become settings."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
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
Precision = Annotated[str, typer.Option("--dtype", help="Arithmetic: float32 or float64.")]
OneModel = Annotated[str | None, typer.Option("--model", help="Which model, in a sweep of several.")]
Partial = Annotated[bool, typer.Option("--partial", help="Take what is there of an unfinished sweep.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bar.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def settings(
    budget: str = "1/5",
    sinks: int = 5,
    recent: int = 32,
    quantized_fraction: str = "1/2",
    bits: int = 2,
    horizon: int = 32,
    reading: list[str] | None = None,
    device: str = "cpu",
    dtype: str = "float32",
) -> "Settings":
    """Settings from what the command line gave."""
    import torch

    from qevict_diag.cache.budget import Budget, exact
    from qevict_diag.errors import InputError
    from qevict_diag.readings import Readings
    from qevict_diag.replay.settings import Settings

    if dtype not in ("float32", "float64"):
        raise InputError(f"dtype {dtype!r}: allowed are float32 and float64")
    room = Budget(exact(budget), exact(quantized_fraction, "quantized fraction"), bits, sinks, recent)
    return Settings(room, Readings.parse(reading or []), horizon, device=device, dtype=getattr(torch, dtype))


def open_traces(paths: list[Path], *, one_length: bool = True) -> "list[Trace]":
    """Open trace folders; a folder that is no trace itself stands for the traces in it.

    InputError for two traces of one name: rows are told apart by it, so they would be counted as one article. Unless
    they are of ``one_length``, traces of different lengths may have one name: they are never measured together.
    """
    from qevict_diag.errors import InputError, TraceError
    from qevict_diag.trace.trace import Trace

    found: list[Path] = []
    for path in paths:
        inside = sorted(manifest.parent for manifest in path.glob("*/manifest.json")) if path.is_dir() else []
        found += [path] if (path / "manifest.json").exists() or not inside else inside
    if not found:
        raise TraceError("no trace given; name trace folders, or a folder of traces as written by `record --out`")
    opened = [Trace.open(path) for path in found]
    names = [(trace.name, None if one_length else trace.shape) for trace in opened]
    for trace, name in zip(opened, names, strict=True):
        if names.count(name) > 1:
            raise InputError(
                f"trace name {trace.name} stands twice, once at {trace.path}; give each trace its own name"
            )
    return opened
