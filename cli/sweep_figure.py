"""`qevict-diag sweep-figure`: draw a sweep."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from qevict_diag.cli import options

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from qevict_diag.sweep import SweepFrames

KINDS = ("pareto", "sensitivity", "heatmap")


def sweep_figure(
    kind: Annotated[str, typer.Argument(help="pareto, sensitivity or heatmap.")],
    sweep: Annotated[Path, typer.Argument(help="Folder of the sweep.")],
    out: Annotated[Path, typer.Option(help="Picture to write: .pdf, .png or .svg.")],
    metric: Annotated[str, typer.Option(help="Metric of a sensitivity or a heat map; see `metrics`.")] = "fmm",
    policy: Annotated[str, typer.Option(help="Policy of a heat map.")] = "R3",
    model: options.OneModel = None,
    partial: options.Partial = False,
    as_json: options.AsJson = False,
) -> None:
    """Draw missed mass against bytes, the sensitivity to window, q and bits, or a layer × head map of a metric."""
    from qevict_diag.cli.show import say, say_json
    from qevict_diag.errors import InputError
    from qevict_diag.figures.style import picture_kind, save
    from qevict_diag.metrics import metric as find_metric
    from qevict_diag.sweep import read

    if kind not in KINDS:
        raise InputError(f"figure {kind!r}: there are {', '.join(KINDS)}")
    picture_kind(out)
    find_metric(metric)
    save(_draw(kind, read(sweep, partial=partial).of(model), metric, policy), out)
    say_json({"figure": kind, "file": str(out)}) if as_json else say(str(out))


def _draw(kind: str, frames: "SweepFrames", metric: str, policy: str) -> "Figure":
    from qevict_diag.figures.sweep.heatmap import plot_heatmap
    from qevict_diag.figures.sweep.pareto import plot_pareto
    from qevict_diag.figures.sweep.sensitivity import plot_sensitivities

    rows = frames.measurements.filter(metric="fmm" if kind == "pareto" else metric).collect()
    if kind == "pareto":
        return cast("Figure", plot_pareto(rows, frames.bytes.collect()).get_figure())
    if kind == "sensitivity":
        return plot_sensitivities(rows, metric, frames.min_inactive)
    return cast("Figure", plot_heatmap(rows, metric, policy).get_figure())
