"""A metric by layer and head."""

from typing import cast

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from qevict_diag import metrics
from qevict_diag.analyses.estimates import rows_of
from qevict_diag.analyses.sweeps import of_sweep, one_model
from qevict_diag.figures.maps import across, add_bar, averages, draw_map, size_of
from qevict_diag.figures.style import axes_of, shown_name, style
from qevict_diag.figures.sweep.figure import SweepFigure, Swept
from qevict_diag.figures.sweep.points import held


def plot_heatmap(frame: pl.DataFrame, metric: str = "fmm", policy: str = "R3", *, ax: Axes | None = None) -> Axes:
    """Map a metric of one policy over layers and heads; over layers and events, or lags (m of a LIR), without heads."""
    one_model(frame)
    kind = metrics.metric(metric)
    rows = held(of_sweep(rows_of(frame, metric, policy=policy), kind), ())
    along = across(rows)
    table = averages(rows, kind, along)
    wide, high = size_of(table)
    with style():
        ax = axes_of(ax, wide + 1.2, high)
        mesh = draw_map(ax, table, kind.scale, along)
        ax.set_title(f"{shown_name(policy)}: {kind.label}", parse_math=False)
        add_bar(ax, mesh)
    return ax


def _draw(swept: Swept) -> Figure:
    return cast("Figure", plot_heatmap(swept.rows, swept.metric, swept.policy).get_figure())


FIGURE = SweepFigure("heatmap", "a metric of one policy by layer and head", _draw)
