"""`qevict-diag figure`: draw a figure from traces."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qevict_diag.cli import options

if TYPE_CHECKING:
    from qevict_diag.replay.settings import Settings


@options.with_settings()
def figure(
    name: Annotated[str, typer.Argument(help="1, returns or another; see `figures`.")],
    traces: options.Traces,
    out: Annotated[Path, typer.Option(help="Picture to write: .pdf, .png or .svg.")],
    metric: Annotated[str | None, typer.Option(help="Metric of a heat map or a distribution; see `metrics`.")] = None,
    policy: options.Policies = None,
    window: options.Window = None,
    *,
    settings: "Settings",
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Draw Figure 1, missed mass over decoding and where the reference mass lies, or how long windows stay away."""
    from qevict_diag.cli.progress import shown
    from qevict_diag.cli.show import say, say_json
    from qevict_diag.figures.catalogue import figure as find_figure
    from qevict_diag.figures.style import picture_kind, save
    from qevict_diag.measure.models import one_model

    wanted = find_figure(name)
    needs = wanted.of(policy or (), metric)
    picture_kind(out)
    opened = options.open_traces(traces)
    one_model(opened)
    options.say_notes(opened, needs.chosen(window), settings)
    with shown(quiet) as progress:
        found = needs.measured(opened, settings, window=window, progress=progress)
    save(wanted.draw(found.frame, found.bytes, settings), out)
    say_json({"figure": name, "file": str(out)}) if as_json else say(str(out))
