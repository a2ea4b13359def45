"""`qevict-diag figure`: draw a figure from traces: the paper's Figure 1, or the time to return."""

import json
from pathlib import Path
from typing import Annotated

import typer

from qevict_diag.cli import options


def figure(
    number: Annotated[str, typer.Argument(help="1, or returns: time to return as a survival curve.")],
    traces: options.Traces,
    out: Annotated[Path, typer.Option(help="Picture to write: .pdf, .png or .svg.")],
    budget: options.Ratio = "1/5",
    sinks: options.Sinks = 5,
    recent: options.Recent = 32,
    quantized_fraction: options.Fraction = "1/2",
    bits: options.Bits = 2,
    horizon: options.Horizon = 32,
    min_inactive: options.Inactive = 3,
    reading: options.ReadingChoices = None,
    device: options.Device = "cpu",
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Draw Figure 1, missed mass over decoding and where the reference mass lies, or how long windows stay away."""
    from qevict_diag.cli.progress import layers_bar
    from qevict_diag.errors import InputError
    from qevict_diag.figures import figure1
    from qevict_diag.figures import returns as returns_figure
    from qevict_diag.figures.style import picture_kind, save
    from qevict_diag.measure.traces import measure, one_model

    known = {
        "1": (figure1, lambda frame, _: figure1.plot_figure1(frame)),
        "returns": (returns_figure, returns_figure.figure_returns),
    }
    if number not in known:
        raise InputError(f"figure {number}: there are {', '.join(known)}")
    picture_kind(out)
    settings = options.settings(budget, sinks, recent, quantized_fraction, bits, horizon, reading, device)
    opened = options.open_traces(traces)
    one_model(opened)
    module, draw = known[number]
    with layers_bar("replaying", opened, quiet) as progress:
        found = measure(opened, module.POLICIES, module.METRICS, settings, min_inactive=min_inactive, progress=progress)
    save(draw(found.frame, settings.readings.label()), out)
    typer.echo(json.dumps({"figure": number, "file": str(out)}) if as_json else str(out))
