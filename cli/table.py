"""`qevict-diag table`: print a table of the paper from traces."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qevict_diag.cli import options

if TYPE_CHECKING:
    from qevict_diag.figures.tables.sheet import Sheet
    from qevict_diag.replay.settings import Settings
    from qevict_diag.trace.trace import Trace


@options.with_settings()
def table(
    number: Annotated[str, typer.Argument(help="14, 15, 16, 17a, 17b, 17 (both), 18 or another; see `tables`.")],
    traces: options.Traces,
    form: Annotated[
        str | None,
        typer.Option("--format", help="md, latex, csv, html or json. Default: what --out ends in, or md."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File to write instead of printing.")] = None,
    window: options.Window = None,
    *,
    settings: "Settings",
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Print a table: published value, ours, interval, byte use and reading side by side."""
    from qevict_diag import files
    from qevict_diag.cli.show import say, say_json, say_text
    from qevict_diag.figures import tables
    from qevict_diag.figures.tables.formats import form_of, render_all
    from qevict_diag.measure.models import one_model
    from qevict_diag.policies.catalogue import policies

    form = form_of("json" if as_json else form, out)
    names = tables.names_of(number, form)
    if out is not None:
        files.check_target(out)
    opened = options.open_traces(traces)
    one_model(opened)
    replayed = dict.fromkeys(policy for name in names for policy in tables.table(name).needs.policies)
    options.say_notes(opened, policies(replayed, window=window), settings)
    content = render_all([_built(name, opened, settings, window, quiet) for name in names], form)
    if out is not None:
        say(str(files.write_text(out, content)))
    elif form == "json":
        say_json(content)
    else:
        say_text(content)


def _built(name: str, opened: "list[Trace]", settings: "Settings", window: int | None, quiet: bool) -> "Sheet":
    from qevict_diag.cli.progress import shown
    from qevict_diag.figures import tables
    from qevict_diag.progress import part_of

    with shown(quiet) as progress:
        stage = part_of(progress, f"table {name}")
        found = tables.table(name).needs.measured(opened, settings, window=window, progress=stage)
    lengths = ", ".join(dict.fromkeys(f"{trace.shape.prefill}+{trace.shape.decode}" for trace in opened))
    return tables.build(name, found.frame, found.bytes, settings, lengths)
