"""`qevict-diag verify`: check traces."""

from pathlib import Path
from typing import Annotated

import typer


def verify(
    traces: Annotated[list[Path], typer.Argument(help="Trace folders.")],
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing about traces that are whole.")] = False,
) -> None:
    """Check traces: checksums, shapes and conservation laws; exit 1 on the first that fails."""
    from qevict_diag.trace import Trace

    for path in traces:
        trace = Trace.open(path)
        trace.verify()
        if not quiet:
            typer.echo(f"{path}: whole ({len(trace.layers)} layers, {trace.shape.prefill}+{trace.shape.decode} tokens)")
