"""Missed mass against bytes."""

from typing import cast

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from qevict_diag import metrics
from qevict_diag.analyses.sweeps import KEYS, bytes_used
from qevict_diag.figures.lines import (
    CLAIRVOYANT,
    _finish,
    _line,
    _look,
    _name_lines,
    _ordered,
)
from qevict_diag.figures.style import axes_of, style
from qevict_diag.figures.sweep.figure import SweepFigure, Swept
from qevict_diag.figures.sweep.points import chance_of, held, with_chance
from qevict_diag.policies.arms import CHANCE


def plot_pareto(frame: pl.DataFrame, used: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot FMM against the bytes really used, in percent of FullKV's: one line with a band for each policy.

    The thin dark steps are the front: settings that no other setting of the sweep beats in both. Small dots are the
    settings off the lines.
    """
    share = bytes_used(used).with_columns(share=pl.col("bytes") * 100)
    share = pl.concat([share, chance_of(share)])
    found = with_chance(frame).join(share, on=KEYS, how="left", nulls_equal=True).sort("share")
    shown = held(found, ("budget",))
    with style():
        ax = axes_of(ax, 4.6, 3.0)
        _front(ax, found)
        _dots(ax, found.join(shown, on=KEYS, how="anti", nulls_equal=True))
        for policy in _ordered(shown):
            _line(ax, shown.filter(pl.col("policy") == policy), "share", policy)
        _name_lines(ax, shown, "share")
        ax.set_xlabel("bytes used (% of FullKV, protected regions included)")
        ax.set_ylabel(metrics.metric("fmm").label)
        _finish(ax, found, "\nthin steps: no setting that uses less misses less")
        ax.set_ylim(bottom=0)
    return ax


def _front(ax: Axes, found: pl.DataFrame) -> None:
    """Step along the settings that nothing cheaper beats; what knows the future, and chance, don't count."""
    real = found.filter(~pl.col("policy").str.contains_any([f"[{name}" for name in (*CLAIRVOYANT, CHANCE)]))
    best = real.filter(pl.col("estimate") < pl.col("estimate").cum_min().shift(1).fill_null(float("inf")))
    ax.plot(
        *(best["share"], best["estimate"]),
        drawstyle="steps-post",
        color="#222222",
        linewidth=0.6,
        zorder=2,
        label="_front",
    )


def _dots(ax: Axes, rows: pl.DataFrame) -> None:
    if not rows.is_empty():
        colors = [_look(policy)[0] for policy in rows["policy"]]
        ax.scatter(rows["share"], rows["estimate"], s=3, c=colors, alpha=0.45, linewidths=0, zorder=1, label="_others")


def _draw(swept: Swept) -> Figure:
    return cast("Figure", plot_pareto(swept.rows, swept.bytes).get_figure())


FIGURE = SweepFigure("pareto", "missed mass against the bytes really used", _draw, metric="fmm")
