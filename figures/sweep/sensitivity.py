"""How a metric changes with window size, quantized share and bits."""

from fractions import Fraction

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from qevict_diag import metrics
from qevict_diag.errors import InputError, one_of
from qevict_diag.figures.lines import _finish, _line, _name_lines, _ordered, _range
from qevict_diag.figures.style import axes_of, style
from qevict_diag.figures.sweep.figure import SweepFigure, Swept
from qevict_diag.figures.sweep.points import varied, varying, with_chance
from qevict_diag.replay.settings import Settings

PANELS = {
    "window": ("window size Ω (tokens)", "(a)  Window size"),
    "quantized_fraction": ("quantized fraction q", "(b)  Quantized fraction"),
    "bits": ("bits", "(c)  Precision"),
}


def plot_sensitivity(
    frame: pl.DataFrame,
    name: str,
    metric: str = "fmm",
    min_inactive: int = Settings.min_inactive,
    *,
    ax: Axes | None = None,
) -> Axes:
    """Plot a metric against one axis of the sweep (`PANELS`), everything else at its reference value.

    ``min_inactive`` is the m at which Global LIR is shown.
    """
    one_of("axis", name, PANELS)
    shown = varied(with_chance(frame, metric, min_inactive), name)
    places = sorted(shown[name].unique().to_list(), key=Fraction)
    shown = shown.with_columns(place=pl.col(name).replace_strict(places, range(len(places)), return_dtype=pl.Float64))
    with style():
        ax = axes_of(ax)
        for policy in _ordered(shown):
            _line(ax, shown.filter(pl.col("policy") == policy).sort("place"), "place", policy)
        _name_lines(ax, shown, "place")
        ax.set_xticks(range(len(places)), [str(place) for place in places])
        ax.set_xlabel(PANELS[name][0])
        ax.set_ylabel(metrics.metric(metric).label)
        _finish(ax, shown)
    return ax


def plot_sensitivities(frame: pl.DataFrame, metric: str = "fmm", min_inactive: int = Settings.min_inactive) -> Figure:
    """Draw a panel for every axis that the sweep varies, side by side: the counterpart of the paper's Tables 11-13."""
    found = with_chance(frame, metric, min_inactive)
    names = [name for name in PANELS if not varying(found, name).is_empty()]
    if not names:
        raise InputError(
            "the sweep varies neither window, quantized fraction nor bits; give one of them several values"
        )
    low, high = _range(pl.concat([varying(found, name) for name in names]))
    with style():
        figure = Figure(figsize=(2.5 * len(names) + 0.4, 2.5), layout="constrained")
        axes = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
        axes[0].set_ylim(low - (high - low) * 0.08, high + (high - low) * 0.05)
        for name, ax in zip(names, axes, strict=True):
            plot_sensitivity(frame, name, metric, min_inactive, ax=ax)
            ax.set_title(PANELS[name][1])
        for ax in axes[1:]:
            ax.set_ylabel("")
            for text in [text for text in ax.texts if text.get_gid() == "note"]:
                text.remove()
    return figure


def _draw(swept: Swept) -> Figure:
    return plot_sensitivities(swept.rows, swept.metric, swept.min_inactive)


FIGURE = SweepFigure("sensitivity", "a metric against window, quantized fraction and bits", _draw)
