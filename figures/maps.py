"""A metric over layers and heads, as a map."""

from typing import Any, cast

import polars as pl
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LinearSegmentedColormap

from qevict_diag.analyses.shown import average
from qevict_diag.metrics.metric import Metric

HEAT = LinearSegmentedColormap.from_list("heat", ["#F7FBFF", "#9CC9E6", "#2F7FB5", "#0B3C6F"])  # darker is more
UNDEFINED = "#D9C7B0"


def across(rows: pl.DataFrame) -> str:
    """What runs to the right of layers: heads; events, or lags, of a metric that has no heads."""
    return next(name for name in ("head", "event", "lag") if rows[name].null_count() < len(rows))


def averages(rows: pl.DataFrame, kind: Metric, across: str) -> pl.DataFrame:
    """Layers down, ``across`` to the right: means of defined values, or ratios of sums where counts are pooled."""
    defined = rows.filter(pl.col("value").is_not_nan())
    means = defined.group_by("layer", across).agg(value=average(kind)).sort(across, "layer")
    return means.pivot(across, index="layer", values="value").sort("layer")


def size_of(table: pl.DataFrame) -> tuple[float, float]:
    """Inches of a map, its colour bar aside."""
    return 0.9 + 0.11 * min(table.width, 24), 0.9 + 0.075 * len(table)


def draw_map(ax: Axes, table: pl.DataFrame, scale: float, label: str, **limits: Any) -> QuadMesh:
    """Map `averages` times ``scale``; what is undefined has its own colour. ``limits``: vmin and vmax, if given."""
    import seaborn

    values = table.drop("layer").to_numpy() * scale
    seaborn.heatmap(values, ax=ax, cmap=HEAT, cbar=False, xticklabels=False, yticklabels=False, **limits)
    ax.set_facecolor(UNDEFINED)
    _ticks(ax, table["layer"].to_list(), table.columns[1:])
    ax.set_xlabel(label)
    ax.set_ylabel("layer")
    return cast("QuadMesh", ax.collections[0])


def add_bar(ax: Axes | list[Axes], mesh: QuadMesh, **more: Any) -> None:
    """One colour bar for some maps."""
    first = ax if isinstance(ax, Axes) else ax[0]
    bar: Any = first.figure.colorbar(mesh, ax=ax, pad=0.03, aspect=30, **more)
    bar.outline.set_visible(False)


def _ticks(ax: Axes, layers: list[int], labels: list[str]) -> None:
    """Name some of the cells, at their middle."""
    down, along = max(1, -(-len(layers) // 15)), max(1, -(-len(labels) // 12))
    ax.set_yticks([0.5 + at for at in range(0, len(layers), down)], [str(layer) for layer in layers[::down]])
    ax.set_xticks([0.5 + at for at in range(0, len(labels), along)], labels[::along])
    ax.tick_params(length=0)
