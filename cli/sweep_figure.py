"""`qevict-diag sweep-figure`: draw a sweep."""

from pathlib import Path
from typing import Annotated

import typer

from qevict_diag.cli import options


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
    import polars as pl

    from qevict_diag.analyses.sweeps import beside
    from qevict_diag.cli.show import say, say_json
    from qevict_diag.figures.style import picture_kind, save
    from qevict_diag.figures.sweep import sweep_figure as find_figure
    from qevict_diag.figures.sweep.figure import Swept
    from qevict_diag.metrics import metric as find_metric
    from qevict_diag.sweep import read

    wanted = find_figure(kind)
    picture_kind(out)
    find_metric(metric)
    shown = wanted.metric or metric
    frames = read(sweep, partial=partial).of(model)
    rows = frames.measurements.filter(pl.col("metric").is_in(beside(shown))).collect()
    save(wanted.draw(Swept(rows, frames.bytes.collect(), shown, policy, frames.min_inactive)), out)
    say_json({"figure": kind, "file": str(out)}) if as_json else say(str(out))
