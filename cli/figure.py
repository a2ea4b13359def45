"""`qevict-diag figure`: draw a figure of the paper from traces."""

import json
from pathlib import Path
from typing import Annotated

import typer

from qevict_diag.cli import options


def figure(
    number: Annotated[str, typer.Argument(help="Which figure: 1.")],
    traces: options.Traces,
    out: Annotated[Path, typer.Option(help="Picture to write: .pdf, .png or .svg.")],
    budget: options.Ratio = "1/5",
    sinks: options.Sinks = 5,
    recent: options.Recent = 32,
    quantized_fraction: options.Fraction = "1/2",
    bits: options.Bits = 2,
    horizon: options.Horizon = 32,
    reading: options.ReadingChoices = None,
    device: options.Device = "cpu",
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Draw Figure 1: missed mass over decoding with churn, and where the reference mass lies."""
    from qevict_diag.cli.progress import layers_bar
    from qevict_diag.errors import InputError
    from qevict_diag.figures import figure1
    from qevict_diag.figures.style import picture_kind, save
    from qevict_diag.measure import measure, one_model

    if number != "1":
        raise InputError(f"figure {number}: there is 1")
    picture_kind(out)
    settings = options.settings(budget, sinks, recent, quantized_fraction, bits, horizon, reading, device)
    opened = options.open_traces(traces)
    one_model(opened)
    with layers_bar("replaying", opened, quiet) as progress:
        found = measure(opened, figure1.POLICIES, figure1.METRICS, settings, progress=progress)
    save(figure1.plot_figure1(found.frame), out)
    typer.echo(json.dumps({"figure": number, "file": str(out)}) if as_json else str(out))
