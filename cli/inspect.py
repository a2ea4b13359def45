"""`qevict-diag inspect`: what a trace is."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer


def inspect(
    trace: Annotated[Path, typer.Argument(help="A trace folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show a trace: model, shapes, sizes, and how concentrated its attention is."""
    from qevict_diag.trace.summary import summary
    from qevict_diag.trace.trace import Trace

    facts = summary(Trace.open(trace))
    if as_json:
        typer.echo(json.dumps(facts, indent=1))
    else:
        _print(facts)


def _print(facts: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from qevict_diag.trace.summary import printable

    console = Console()
    table = Table(show_header=False, box=None)
    for name, value in facts.items():
        if name != "layers":
            table.add_row(name.replace("_", " "), printable(value))
    console.print(table)
    layers = Table(
        "layer",
        "window",
        "rotary",
        "P·V residual",
        "top 5%",
        "first 5",
        "last 32",
        title="attention of the decode queries",
    )
    for row in facts["layers"]:
        cells = (row["layer"], row["sliding_window"] or "-", row["rotary"], f"{row['pv_residual']:.1e}")
        layers.add_row(*map(str, cells), *(f"{row[name]:.3f}" for name in ("top_5_percent", "first_5", "last_32")))
    console.print(layers)
