"""`qevict-diag figure`: draw a figure from traces: the paper's Figure 1, or the time to return."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qevict_diag.cli import options

if TYPE_CHECKING:
    from qevict_diag.replay.settings import Settings


@options.with_settings()
def figure(
    number: Annotated[str, typer.Argument(help="1, or returns: time to return as a survival curve.")],
    traces: options.Traces,
    out: Annotated[Path, typer.Option(help="Picture to write: .pdf, .png or .svg.")],
    window: options.Window = None,
    *,
    settings: "Settings",
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Draw Figure 1, missed mass over decoding and where the reference mass lies, or how long windows stay away."""
    from qevict_diag.cli.progress import shown
    from qevict_diag.cli.show import say, say_json
    from qevict_diag.errors import InputError
    from qevict_diag.figures import figure1
    from qevict_diag.figures import returns as returns_figure
    from qevict_diag.figures.style import picture_kind, save
    from qevict_diag.measure.models import one_model
    from qevict_diag.measure.traces import measure
    from qevict_diag.policies.catalogue import policies

    known = {
        "1": (figure1, lambda frame, _: figure1.plot_figure1(frame)),
        "returns": (returns_figure, returns_figure.figure_returns),
    }
    if number not in known:
        raise InputError(f"figure {number}: there are {', '.join(known)}")
    picture_kind(out)
    opened = options.open_traces(traces)
    one_model(opened)
    module, draw = known[number]
    chosen = policies(module.POLICIES, window=window)
    options.say_notes(opened, chosen, settings)
    with shown(quiet) as progress:
        found = measure(*(opened, chosen, module.METRICS, settings), progress=progress)
    save(draw(found.frame, settings.readings.label()), out)
    say_json({"figure": number, "file": str(out)}) if as_json else say(str(out))
