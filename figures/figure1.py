"""Figure 1: (a) Future Missed Mass over decoding, churn annotated; (b) where the reference mass of R2 and R3 lies.

Frames of measurements in, figures out. Bands and brackets are 95% t intervals over articles;
with one article there are none. In (b) the thin bars are the published shares of Llama-3.1-8B.
"""

from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.layout_engine import ConstrainedLayoutEngine

from qevict_diag.analyses import needs, observation1, observation2
from qevict_diag.analyses.estimates import window_of
from qevict_diag.figures.figure import Figure
from qevict_diag.figures.style import (
    MUTED,
    POLICY_DASHES,
    TIER_COLORS,
    axes_of,
    color_of,
    shown_name,
    spread_apart,
    style,
)
from qevict_diag.replay.settings import Settings

POLICIES = observation1.POLICIES
COMPARED = ("R2", "R3")
TIER_NAMES = {"full": "full", "quantized": "INT2", "evicted": "evicted", "local": "local"}
TIER_INKS = {"full": "#0B4F8A", "quantized": "#2F7FB5", "evicted": "#9A6A35", "local": "#6E6E6E"}


def plot_figure1(frame: pl.DataFrame) -> Drawing:
    """Draw both panels side by side, 7.2 inches wide; of the measured policies those of the paper's figure."""
    frame = frame.filter(pl.col("policy").is_in(POLICIES))
    with style():
        figure = Drawing(figsize=(7.2, 2.75), layout=ConstrainedLayoutEngine(wspace=0.06))
        left, right = figure.subplots(1, 2, width_ratios=(1.45, 1))
        plot_fmm(frame, ax=left)
        plot_mass_shares(frame, ax=right)
        left.set_title("(a)  Future attention that was thrown away")
        right.set_title("(b)  Where the reference mass lies")
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # laid out once, so that every format gets the same drawing
    return figure


def plot_fmm(frame: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot FMM in percent against generated tokens, one line with a band for each policy, churn at its end."""
    with style():
        ax = axes_of(ax)
        series = observation1.series(frame).sort("step")
        policies = _ordered(series["policy"].unique().to_list())
        for policy in policies:
            _line(ax, series.filter(pl.col("policy") == policy), policy)
        _limits(ax, series)
        _label_ends(ax, series, policies, observation1.churn(frame), dict(window_of(frame).rows()))
        _tell_bands(ax, series, ", ".join(sorted(frame["model"].unique())))
        ax.set_xlabel("generated tokens at the routing event")
        ax.set_ylabel("Future Missed Mass (%)")
        ax.yaxis.grid(True)
    return ax


def _ordered(policies: list[str]) -> list[str]:
    """The paper's conditions in the paper's order, then the others."""
    known = [policy for policy in POLICIES if policy in policies]
    return known + sorted(set(policies) - set(known))


def _line(ax: Axes, rows: pl.DataFrame, policy: str) -> None:
    color = color_of(policy)
    percent = rows.select("step", *(pl.col(name) * 100 for name in ("estimate", "low", "high")))
    dashes = POLICY_DASHES.get(policy, "-")
    ax.plot(percent["step"], percent["estimate"], color=color, linestyle=dashes, label=shown_name(policy), zorder=3)
    if percent["low"].is_not_nan().any():
        band = (percent["step"], percent["low"], percent["high"])
        ax.fill_between(*band, color=color, alpha=0.16, linewidth=0, zorder=2)


def _limits(ax: Axes, series: pl.DataFrame) -> None:
    """Start at 0, and leave room on the right for the labels."""
    steps, tops = (series[name].to_numpy() for name in ("step", "high"))
    heights = np.append(series["estimate"].to_numpy(), tops)
    ax.set_xlim(0, max(float(steps.max()), 1.0) * 1.02)
    ax.set_ylim(0, float(np.nanmax(heights, initial=0.01)) * 108)


def _tell_bands(ax: Axes, series: pl.DataFrame, model: str) -> None:
    articles, layers = series["n"][0], series["layers"][0]
    bands = f"bands: 95%, {articles} articles × {layers} layers" if articles > 1 else "one article: no interval"
    told = f"{shown_name(model)}  ·  {bands}"
    ax.text(0.015, 0.03, told, transform=ax.transAxes, fontsize=5.8, color=MUTED, in_layout=False)


def _label_ends(
    ax: Axes, series: pl.DataFrame, policies: list[str], churn: pl.DataFrame, windows: dict[str, int]
) -> None:
    """Name each line at its right end, with its window size and churn per event, moved apart where they collide."""
    ends = [series.filter(pl.col("policy") == policy).tail(1).row(0, named=True) for policy in policies]
    per_event = dict(churn.select("policy", "estimate").rows())
    gap = ax.get_ylim()[1] * 0.115
    heights = spread_apart([end["estimate"] * 100 for end in ends], gap)
    right = ax.get_xlim()[1]
    for policy, end, height in zip(policies, ends, heights, strict=True):
        color = color_of(policy)
        point, place = (end["step"], end["estimate"] * 100), (right * 1.035, height)
        ax.plot(
            [point[0], place[0]],
            [point[1], place[1]],
            color=color,
            linewidth=0.5,
            clip_on=False,
            zorder=1,
            label="_leader",
        )
        text = f" {shown_name(policy)}, Ω = {windows.get(policy, '?')}"
        ax.annotate(text, place, color=color, fontweight="bold", fontsize=6.5, va="bottom", annotation_clip=False)
        if policy in per_event:
            told = f" churn {per_event[policy]:.4f} per event"
            ax.annotate(told, place, color=MUTED, fontsize=5.8, va="top", annotation_clip=False)


def plot_mass_shares(frame: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Stack the tier-mass shares of R2 and R3 as bars in percent, the published ones as thin bars beneath."""
    with style():
        ax = axes_of(ax)
        shares = observation2.mass_shares(frame).filter(pl.col("policy").is_in(COMPARED))
        for row, policy in enumerate(COMPARED):
            part = shares.filter(pl.col("policy") == policy)
            _stack(ax, part, "estimate", row, 0.42, 1.0)
            _name_tiers(ax, part, row - 0.235)
            _stack(ax, part, "published", row + 0.36, 0.15, 0.55)
        ticks = [place for row in range(len(COMPARED)) for place in (row, row + 0.36)]
        ax.set_yticks(ticks, [name for policy in COMPARED for name in (policy, "paper")])
        _dress(ax)
    return ax


def _stack(ax: Axes, part: pl.DataFrame, column: str, row: float, height: float, alpha: float) -> None:
    left = 0.0
    for share in part.iter_rows(named=True):
        width = (share[column] or 0.0) * 100
        color = TIER_COLORS[share["group"]]
        ax.barh(row, width, height, left=left, color=color, alpha=alpha, edgecolor="white", linewidth=0.6)
        if width >= 9:
            _write(ax, share, column, left + width / 2, row)
        left += width


def _name_tiers(ax: Axes, part: pl.DataFrame, y: float) -> None:
    """Name each tier above its part of the bar; the last one, too narrow for its name, ends where the bar ends."""
    left = 0.0
    for share in part.filter(pl.col("estimate") > 0).iter_rows(named=True):
        group, width = share["group"], share["estimate"] * 100
        at = (100, "right") if group == "local" else (left + width / 2, "center")
        ax.text(at[0], y, TIER_NAMES[group], ha=at[1], va="bottom", fontsize=6, color=TIER_INKS[group])
        left += width


def _write(ax: Axes, share: dict[str, Any], column: str, x: float, y: float) -> None:
    """Write the share into its bar, and its interval beneath."""
    dark = share["group"] == "full" and column == "estimate"
    color = "white" if dark else "#222222"
    if column == "published":
        ax.text(x, y, f"{share[column] * 100:.1f}", ha="center", va="center", fontsize=5.6, color=color)
        return
    bounded = share["low"] == share["low"]
    place = y - 0.06 if bounded else y
    ax.text(x, place, f"{share[column] * 100:.1f}", ha="center", va="center", fontsize=7, color=color)
    if bounded:
        limits = f"{share['low'] * 100:.1f}–{share['high'] * 100:.1f}"
        ax.text(x, y + 0.1, limits, ha="center", va="center", fontsize=5.2, color=color)


def _dress(ax: Axes) -> None:
    for label, paper in zip(ax.get_yticklabels(), (False, True) * len(COMPARED), strict=True):
        label.set(fontsize=5.8 if paper else 7, color=MUTED if paper else "#222222")
        label.set_fontweight("normal" if paper else "bold")
    ax.set_ylim(1.62, -0.36)
    ax.set_xlim(0, 100)
    ax.set_xlabel("share of the cumulative attention (%)")
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def _draw(frame: pl.DataFrame, used: pl.DataFrame, settings: Settings) -> Drawing:
    return plot_figure1(frame)


FIGURE = Figure(
    "1",
    "missed mass over decoding, and where the reference mass lies",
    needs.SHARES,
    _draw,
    file="figure1",
    title="Figure 1",
    caption=(
        "<b>Figure 1.</b> (a) Share of the attention of the next 32 queries that falls on what a policy can no longer "
        "read, by routing event; R3-full-only counts R3's quantized windows as lost. (b) Where the cumulative FullKV "
        "attention lies under R2 and R3 at the same bytes; thin bars: the published shares of Llama-3.1-8B."
    ),
)
