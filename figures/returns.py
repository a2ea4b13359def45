"""How long windows stay away: the share of inactive episodes that have returned, with open ones censored."""

from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from qevict_diag.analyses import needs, returns
from qevict_diag.errors import MetricError
from qevict_diag.figures.figure import Figure
from qevict_diag.figures.style import POLICY_COLORS, axes_of, shown_name, style
from qevict_diag.replay.settings import Settings

GROUPS: dict[str, Any] = {"policy": "-", "oracle": (0, (2.5, 1.5))}


def plot_returns(frame: pl.DataFrame, *, reading: str = "", ax: Axes | None = None) -> Axes:
    """Plot 1 - S(t) in percent against events since eligibility: a step with its pointwise band for each policy.

    Solid: the policy's own full tier; dashed: the paper's oracle, the windows with most attention so far. ``frame``
    holds `episodes` rows; ``reading`` chooses which episodes. MetricError when none are left.
    """
    table = returns.returned(frame).filter(pl.col("reading") == reading)
    if table.is_empty():
        raise MetricError("no inactive episode was long enough to be eligible; lower --min-inactive")
    with style():
        ax = axes_of(ax)
        for (policy, group), rows in table.group_by("policy", "group", maintain_order=True):
            _steps(
                ax,
                rows,
                POLICY_COLORS.get(policy, "#555555"),
                GROUPS[group],
                f"{shown_name(str(policy))}, {group}",
            )
        ax.set_xlabel("routing events since the episode became eligible")
        ax.set_ylabel("returned so far (%)")
        ax.set_ylim(bottom=0)
        ax.yaxis.grid(True)
        ax.legend(fontsize=6, loc="upper left")
    return ax


def _steps(ax: Axes, rows: pl.DataFrame, color: str, dashes: Any, label: str) -> None:
    """Draw a step function from 0 at time 0, and its band where it has one."""
    time, share, low, high = (np.append(0.0, rows[name]) for name in ("event", "returned", "low", "high"))
    ax.step(time, share * 100, where="post", color=color, linestyle=dashes, label=label, zorder=3)
    ax.fill_between(time, low * 100, high * 100, step="post", color=color, alpha=0.14, linewidth=0, zorder=2)


def _draw(frame: pl.DataFrame, used: pl.DataFrame, settings: Settings) -> Drawing:
    with style():
        figure = Drawing(figsize=(3.4, 2.4), layout="constrained")
        plot_returns(frame, reading=settings.readings.label(), ax=figure.add_subplot())
    return figure


FIGURE = Figure("returns", "time to return of a window, as a survival curve", needs.RETURNS, _draw)
