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
    from qevict_diag.cli.show import say_json
    from qevict_diag.trace.summary import summary
    from qevict_diag.trace.trace import Trace

    facts = summary(Trace.open(trace))
    if as_json:
        say_json(facts)
    else:
        _print(facts)


def _print(facts: dict[str, Any]) -> None:
    from qevict_diag.cli.show import say_table

    said = [(name.replace("_", " "), _told(value)) for name, value in facts.items() if name != "layers"]
    say_table(("", ""), said)
    heads = ("layer", "window", "rotary", "P·V residual", "top 5%", "first 5", "last 32")
    rows = [
        (
            *map(str, (row["layer"], row["sliding_window"] or "-", row["rotary"], f"{row['pv_residual']:.1e}")),
            *(f"{row[name]:.3f}" for name in ("top_5_percent", "first_5", "last_32")),
        )
        for row in facts["layers"]
    ]
    say_table(heads, rows, title="attention of the decode queries", numbers=(0, 1, 3, 4, 5, 6))


def _told(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
