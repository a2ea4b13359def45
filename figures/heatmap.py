"""A metric by layer and head: a map for each policy, all on one scale."""

from collections.abc import Iterable

import numpy as np
import polars as pl
from matplotlib.figure import Figure as Drawing

from qevict_diag.analyses import needs
from qevict_diag.analyses.estimates import rows_of
from qevict_diag.analyses.shown import measured, one_group
from qevict_diag.figures.figure import Figure
from qevict_diag.figures.maps import across, add_bar, averages, draw_map, size_of
from qevict_diag.figures.style import shown_name, style
from qevict_diag.metrics import metric
from qevict_diag.replay.settings import Settings


def plot_heatmaps(frame: pl.DataFrame, name: str = "fmm", reading: str = "") -> Drawing:
    """Map a metric of each policy over layers and heads, averaged over traces and events; darker is more.

    Without heads it is over layers and events, or lags (m of a LIR). MetricError when it is not in the frame.
    """
    kind = metric(name)
    rows = one_group(rows_of(frame, name, reading=reading), kind)
    along = across(rows)
    tables = {policy: averages(part, kind, along) for (policy,), part in rows.group_by("policy", maintain_order=True)}
    limits = _limits(tables.values(), kind.scale)
    wide, high = size_of(next(iter(tables.values())))
    with style():
        drawing = Drawing(figsize=(wide * len(tables) + 0.9, high), layout="constrained")
        axes = list(drawing.subplots(1, len(tables), sharey=True, squeeze=False)[0])
        for ax, (policy, table) in zip(axes, tables.items(), strict=True):
            mesh = draw_map(ax, table, kind.scale, along, **limits)
            ax.set_title(shown_name(str(policy)))
        for ax in axes[1:]:
            ax.set_ylabel("")
        add_bar(axes, mesh, label=kind.label)
    return drawing


def _limits(tables: Iterable[pl.DataFrame], scale: float) -> dict[str, float]:
    """The least and the largest value of all maps."""
    values = np.concatenate([table.drop("layer").to_numpy().ravel() for table in tables]).astype(np.float64) * scale
    return {"vmin": float(np.nanmin(values)), "vmax": float(np.nanmax(values))}


def _draw(frame: pl.DataFrame, used: pl.DataFrame, settings: Settings) -> Drawing:
    return plot_heatmaps(frame, measured(frame), settings.readings.label())


FIGURE = Figure("heatmap", "a metric of each policy by layer and head", needs.MAPPED, _draw, free=True)
