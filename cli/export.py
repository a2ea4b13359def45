"""`qevict-diag export` and `qevict-diag import`: traces to and from elsewhere."""

from pathlib import Path
from typing import Annotated

import typer


def export(
    trace: Annotated[Path, typer.Argument(help="A trace folder.")],
    parquet: Annotated[Path, typer.Option(help="New folder for the parquet files.")],
    layers: Annotated[str | None, typer.Option(help="Layers to export, like 0,4,8-11. Default: all.")] = None,
) -> None:
    """Write the attention rows and prompt masses of a trace as parquet files, one per layer."""
    from qevict_diag.cli.show import say
    from qevict_diag.record.options import parse_numbers
    from qevict_diag.trace.export import export_parquet
    from qevict_diag.trace.trace import Trace

    for path in export_parquet(Trace.open(trace), parquet, None if layers is None else parse_numbers(layers, "layers")):
        say(f"{path}  {path.stat().st_size / 1e6:.1f} MB")


def import_rows(
    rows: Annotated[Path, typer.Argument(help="Safetensors with attention.L [H, G, T] and prompt_mass.L [H, P].")],
    out: Annotated[Path, typer.Option(help="The trace folder to write.")],
    model: Annotated[str, typer.Option(help="What to call the model.")] = "unknown",
) -> None:
    """Make a trace of attention rows that another engine has written; policies without a quantized tier can use it."""
    from qevict_diag.cli.show import say
    from qevict_diag.trace.rows import import_rows as write_trace

    say(f"{write_trace(rows, out, model=model)}")
