"""Layer by layer: Future Missed Mass of the conditions, and the mass ratio of the quantized tier.

Lines are all articles together, dots the articles. Layers are not a sample, so there are no bands over them.
"""

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from qevict_diag.analyses import needs
from qevict_diag.analyses.profile import by_layer
from qevict_diag.figures.figure import Figure
from qevict_diag.figures.style import POLICY_COLORS, POLICY_DASHES, axes_of, style
from qevict_diag.replay.settings import Settings


def plot_missed(frame: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot FMM in percent by layer, a line for each condition."""
    with style():
        ax = _lines(axes_of(ax), by_layer(_conditions(frame)), 100)
        ax.set_ylabel("Future Missed Mass (%)")
        ax.set_ylim(bottom=0)
    return ax


def plot_ratio(frame: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot R_Q by layer, ratio of sums, a line for each condition that has a quantized tier; 1 is no change."""
    with style():
        ax = axes_of(ax)
        ax.axhline(1, color="#222222", linewidth=0.5, zorder=1)
        _lines(ax, by_layer(_conditions(frame), "mass_ratio", "pooled"), 1)
        ax.set_ylabel("R_Q")
    return ax


def plot_logits(frame: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot the variance s² of the quantized logits' error by layer, and thin its mean; 0 is no error."""
    with style():
        ax = axes_of(ax)
        ax.axhline(0, color="#222222", linewidth=0.5, zorder=1)
        _lines(ax, by_layer(_conditions(frame), "logit_variance", "pooled"), 1)
        bias = by_layer(_conditions(frame), "logit_bias", "pooled")
        for (policy,), rows in bias.group_by("policy", maintain_order=True):
            ax.plot(rows["layer"], rows["estimate"], color=POLICY_COLORS[str(policy)], linewidth=0.6, zorder=3)
        ax.set_ylabel("error of a logit: s², mean (thin)")
    return ax


def figure_layers(frame: pl.DataFrame) -> Drawing:
    """Draw the panels side by side, 7.2 inches wide."""
    with style():
        figure = Drawing(figsize=(7.2, 2.4), layout="constrained")
        left, middle, right = figure.subplots(1, 3)
        plot_missed(frame, ax=left).set_title("(a)  Missed mass")
        plot_ratio(frame, ax=middle).set_title("(b)  Mass ratio of the quantized tier")
        plot_logits(frame, ax=right).set_title("(c)  Error of its logits")
    return figure


def _conditions(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.filter(pl.col("policy").is_in(needs.CONDITIONS))


def _lines(ax: Axes, table: pl.DataFrame, scale: float) -> Axes:
    for (policy,), rows in table.group_by("policy", maintain_order=True):
        if rows["estimate"].null_count() == len(rows):
            continue
        color, dashes = POLICY_COLORS[str(policy)], POLICY_DASHES.get(str(policy), "-")
        ax.plot(rows["layer"], rows["estimate"] * scale, color=color, linestyle=dashes, label=policy, zorder=3)
        dots = rows.select("layer", "by_article").explode("by_article").drop_nulls()
        ax.scatter(dots["layer"], dots["by_article"] * scale, s=4, color=color, alpha=0.4, linewidths=0, zorder=2)
    ax.set_xlabel("layer")
    ax.yaxis.grid(True)
    ax.legend(fontsize=6)
    return ax


def _draw(frame: pl.DataFrame, used: pl.DataFrame, settings: Settings) -> Drawing:
    return figure_layers(frame)


FIGURE = Figure(
    "layers",
    "missed mass and R_Q, layer by layer",
    needs.LAYERS,
    _draw,
    title="Layer by layer",
    caption=(
        "<b>By layer.</b> (a) Future Missed Mass of each layer, mean over heads and events: the line is all articles "
        "together, the dots are the articles. (b) R_Q of each layer: unbiased logit errors of variance s² give "
        "exp(s²/2), which is above 1. (c) That variance, and the mean of the errors. The spread over layers is what it "
        "is; the spread over articles is what intervals rest on."
    ),
)
