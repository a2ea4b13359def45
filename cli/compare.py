"""`qevict-diag compare`: any policies on the same traces, at the same bytes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qevict_diag.cli import options

if TYPE_CHECKING:
    from qevict_diag.analyses.comparison import Comparison
    from qevict_diag.replay.settings import Settings


@options.with_settings(*(name for name in options.SHARED if name != "budget"))
def compare(
    traces: options.Traces,
    policy: Annotated[
        list[str] | None, typer.Option(help="Repeat for several, or all; see `policies`. Default: all.")
    ] = None,
    budget: Annotated[
        list[str] | None, typer.Option(help="Share of FullKV's bytes; repeat for several. Default: 1/5.")
    ] = None,
    match: Annotated[str, typer.Option(help="Equal bytes at the peak, in the mean, or equal budget.")] = "peak",
    out: Annotated[Path | None, typer.Option(help="Folder for the table, the picture and the rows.")] = None,
    *,
    settings: "Settings",
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Hold policies against each other: missed mass and churn at the same bytes, and which of them to use."""
    from qevict_diag import files
    from qevict_diag.analyses import comparison
    from qevict_diag.cli.progress import shown
    from qevict_diag.cli.show import say, say_json, say_text
    from qevict_diag.figures.comparison import sheet
    from qevict_diag.figures.tables.formats import render
    from qevict_diag.measure.models import one_model
    from qevict_diag.sweep.engine import workers_here

    asked = _asked(policy or ["all"], budget or ["1/5"], match)
    if out is not None:
        files.check_set(out)
    opened = options.open_traces(traces)
    one_model(opened)
    with shown(quiet or as_json) as progress:
        workers = workers_here(settings.device)
        found = comparison.measured(opened, asked, settings, workers=workers, progress=progress)
    made = sheet(comparison.ranked(found, match), match)
    if as_json:
        say_json(render(made, "json"))
    else:
        say_text(render(made, "md"))
    if out is not None:
        from qevict_diag.figures.report.comparison import write

        for path in write(made, found, out):
            say(str(path), err=as_json)


def _asked(names: list[str], budgets: list[str], match: str) -> "Comparison":
    from qevict_diag.analyses.comparison import EVERY, Comparison
    from qevict_diag.cache.budget import exact
    from qevict_diag.policies.catalogue import policies

    chosen = [one for name in names for one in (EVERY if name == "all" else (name,))]
    return Comparison(policies(chosen), tuple(map(exact, budgets)), match)
