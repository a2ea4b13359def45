"""A metric by layer and head."""

from typing import cast

import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from qevict_diag import metrics
from qevict_diag.analyses.estimates import rows_of
from qevict_diag.analyses.sweeps import one_group, one_model
from qevict_diag.figures.style import axes_of, shown_name, style
from qevict_diag.figures.sweep.figure import SweepFigure, Swept
from qevict_diag.figures.sweep.points import averages, held

HEAT = LinearSegmentedColormap.from_list("heat", ["#F7FBFF", "#9CC9E6", "#2F7FB5", "#0B3C6F"])


def plot_heatmap(frame: pl.DataFrame, metric: str = "fmm", policy: str = "R3", *, ax: Axes | None = None) -> Axes:
    """Map a metric of one policy over layers and heads; over layers and events, or lags (m of a LIR), without heads."""
    one_model(frame)
    rows = held(one_group(rows_of(frame, metric, policy=policy), metric), ())
    across = next(name for name in ("head", "event", "lag") if rows[name].null_count() < len(rows))
    table = averages(rows, metric, across)
    with style():
        ax = axes_of(ax, 2.1 + 0.11 * min(table.width, 24), 0.9 + 0.075 * len(table))
        kind = metrics.metric(metric)
        values = table.drop("layer").to_numpy() * kind.scale
        image = ax.imshow(values, cmap=HEAT, aspect="auto", interpolation="nearest")
        _ticks(ax, table)
        ax.set_xlabel(across)
        ax.set_ylabel("layer")
        ax.set_title(f"{shown_name(policy)}: {kind.label}", parse_math=False)
        bar = ax.figure.colorbar(image, ax=ax, pad=0.03, aspect=30)
        bar.outline.set_visible(False)
    return ax


def _ticks(ax: Axes, table: pl.DataFrame) -> None:
    layers, labels = table["layer"].to_list(), table.columns[1:]
    down, along = max(1, -(-len(layers) // 15)), max(1, -(-len(labels) // 12))
    ax.set_yticks(range(0, len(layers), down), [str(layer) for layer in layers[::down]])
    ax.set_xticks(range(0, len(labels), along), labels[::along])
    ax.tick_params(length=0)
    for side in ax.spines.values():
        side.set_visible(False)


def _draw(swept: Swept) -> Figure:
    return cast("Figure", plot_heatmap(swept.rows, swept.metric, swept.policy).get_figure())


FIGURE = SweepFigure("heatmap", "a metric of one policy by layer and head", _draw)
