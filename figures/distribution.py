"""How a metric is distributed: what a mean does not show."""

from typing import cast

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from qevict_diag.analyses import needs
from qevict_diag.analyses.estimates import rows_of
from qevict_diag.analyses.shown import average, measured, one_group, one_lag
from qevict_diag.errors import MetricError
from qevict_diag.figures.figure import Figure
from qevict_diag.figures.style import MUTED, axes_of, color_of, shown_name, style
from qevict_diag.metrics import metric
from qevict_diag.replay.settings import Settings

INK = "#222222"


def plot_distribution(
    frame: pl.DataFrame, name: str = "fmm", settings: Settings | None = None, *, ax: Axes | None = None
) -> Axes:
    """Draw the single values of a metric, one for each layer, head and event that it has, as a violin for each policy.

    Each dot is an article: the mean of its values, or the ratio of their sums. All violins are as wide, and end where
    the values do. MetricError when nothing is defined.
    """
    settings, kind = settings or Settings(), metric(name)
    rows = one_group(rows_of(frame, name, reading=settings.readings.label()), kind)
    lag = one_lag(kind, settings.min_inactive)
    rows = rows.filter(pl.col("value").is_not_nan(), *([] if lag is None else [pl.col("lag") == lag]))
    if rows.is_empty():
        raise MetricError(f"no defined value of metric {name}; measure more events, or another metric")
    policies = rows["policy"].unique(maintain_order=True).to_list()
    articles = rows.group_by("policy", "trace", maintain_order=True).agg(value=average(kind))
    with style():
        ax = axes_of(ax, 3.6, 0.9 + 0.32 * len(policies))
        _violins(ax, rows, policies, kind.scale)
        _dots(ax, articles, policies, kind.scale)
        ax.set_yticks(range(len(policies)), [shown_name(policy) for policy in policies], parse_math=False)
        ax.set_xlabel(kind.label)
        ax.set_ylabel("")
        ax.tick_params(axis="y", length=0)
        ax.xaxis.grid(True)
        told = f"violins: one value for each {_axes(rows)}; dots: articles"
        ax.text(1, 1.02, told, transform=ax.transAxes, fontsize=5.6, color=MUTED, ha="right", gid="note")
    return ax


def _axes(rows: pl.DataFrame) -> str:
    """What there is a value for: ``layer, head, event`` as far as the rows have them."""
    return ", ".join(name for name in ("layer", "head", "event") if rows[name].null_count() < len(rows))


def _violins(ax: Axes, rows: pl.DataFrame, policies: list[str], scale: float) -> None:
    import seaborn

    seaborn.violinplot(
        x=(rows["value"] * scale).to_numpy(),
        y=rows["policy"].to_numpy(),
        hue=rows["policy"].to_numpy(),
        order=policies,
        hue_order=policies,
        palette=[color_of(policy) for policy in policies],
        ax=ax,
        cut=0,
        density_norm="width",
        saturation=1,
        inner="quart",
        inner_kws={"linewidth": 0.7},
        linewidth=0.5,
        legend=False,
    )


def _dots(ax: Axes, articles: pl.DataFrame, policies: list[str], scale: float) -> None:
    import seaborn

    seaborn.stripplot(
        x=(articles["value"] * scale).to_numpy(),
        y=articles["policy"].to_numpy(),
        order=policies,
        ax=ax,
        jitter=False,
        color=INK,
        size=2.4,
        edgecolor="white",
        linewidth=0.4,
        zorder=4,
        legend=False,
    )


def _draw(frame: pl.DataFrame, used: pl.DataFrame, settings: Settings) -> Drawing:
    drawing = plot_distribution(frame, measured(frame), settings).get_figure()
    return cast("Drawing", drawing)


FIGURE = Figure("distribution", "single values of a metric, by policy, and articles", needs.SPREAD, _draw, free=True)
