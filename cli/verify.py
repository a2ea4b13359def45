"""`qevict-diag verify`: check traces."""

from typing import Annotated

import typer

from qevict_diag.cli import options


def verify(
    traces: options.Traces,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing about traces that are whole.")] = False,
) -> None:
    """Check traces: checksums, shapes and conservation laws; exit 1 on the first that fails."""
    from qevict_diag.cli.show import say
    from qevict_diag.trace.find import find_traces

    for trace in find_traces(traces):
        trace.verify()
        if not quiet:
            say(f"{trace.path}: whole ({len(trace.layers)} layers, {trace.shape.prefill}+{trace.shape.decode} tokens)")
