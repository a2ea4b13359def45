"""Pictures of a sweep: missed mass against bytes, sensitivity to each setting, and layer × head maps of any metric.

Frames of `qevict_diag.sweep.read` in, axes out. Bands are 95% intervals of the two-level bootstrap (articles, then
layers within), draws of the random arm pooled; with one article there are none. What a picture holds fixed:
`sweep_points.reference`.
"""

from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from qevict_diag.analyses.estimates import rows_of
from qevict_diag.analyses.sweeps import KEYS, bytes_used, one_group, one_model
from qevict_diag.errors import InputError
from qevict_diag.figures.style import MUTED, POLICY_COLORS, POLICY_DASHES, axes_of, spread_apart, style
from qevict_diag.figures.sweep.points import PERCENT, averages, held, points, varied, varying
from qevict_diag.policies.oracles.foresight import Foresight, Split
from qevict_diag.policies.policy import OPTIMUM, POLICIES, RANDOM, base_of
from qevict_diag.policies.ranking import ESTIMATORS

OTHER, BOUND_DASHES = "#555555", {RANDOM: (0, (1, 1.6)), OPTIMUM: (0, (6, 1.2))}
BOUND_NAMES = {RANDOM: "random", OPTIMUM: "O2"}
CLAIRVOYANT = [name for name, kind in ESTIMATORS.items() if issubclass(kind, (Foresight, Split))]
PANELS = {
    "window": ("window size Ω (tokens)", "(a)  Window size"),
    "quantized_fraction": ("quantized fraction q", "(b)  Quantized fraction"),
    "bits": ("bits", "(c)  Precision"),
}
HEAT = LinearSegmentedColormap.from_list("heat", ["#F7FBFF", "#9CC9E6", "#2F7FB5", "#0B3C6F"])
NAMES = {
    "fmm": "Future Missed Mass (%)",
    "churn": "Selection Churn (%)",
    "mass_share": "evicted share of the mass (%)",
    "qsa": "QSA",
    "mass_ratio": "R_Q",
    "lir": "Global LIR of the policy (%)",
    "transitions": "P01 (%)",
    "promotions": "promotions per event",
}


def plot_pareto(frame: pl.DataFrame, used: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot FMM against the bytes really used, in percent of FullKV's: one line with a band for each policy.

    The thin dark steps are the front: settings that no other setting of the sweep beats in both. Small dots are the
    settings off the lines.
    """
    share = bytes_used(used).with_columns(share=pl.col("bytes") * 100)
    found = points(frame).join(share, on=KEYS, how="left", nulls_equal=True).sort("share")
    shown = held(found, ("budget",))
    with style():
        ax = axes_of(ax, 4.6, 3.0)
        _front(ax, found)
        _dots(ax, found.join(shown, on=KEYS, how="anti", nulls_equal=True))
        for policy in _ordered(shown):
            _line(ax, shown.filter(pl.col("policy") == policy), "share", policy)
        _name_lines(ax, shown, "share")
        ax.set_xlabel("bytes used (% of FullKV, protected regions included)")
        ax.set_ylabel(NAMES["fmm"])
        _finish(ax, found, "\nthin steps: no setting that uses less misses less")
        ax.set_ylim(bottom=0)
    return ax


def plot_sensitivity(
    frame: pl.DataFrame, name: str, metric: str = "fmm", min_inactive: int = 3, *, ax: Axes | None = None
) -> Axes:
    """Plot a metric against one axis of the sweep (`PANELS`), everything else at its reference value.

    ``min_inactive`` is the m at which Global LIR is shown.
    """
    if name not in PANELS:
        raise InputError(f"axis {name!r}: there are {', '.join(PANELS)}")
    shown = varied(points(frame, metric, min_inactive), name)
    places = sorted(shown[name].unique().to_list(), key=Fraction)
    shown = shown.with_columns(place=pl.col(name).replace_strict(places, range(len(places)), return_dtype=pl.Float64))
    with style():
        ax = axes_of(ax)
        for policy in _ordered(shown):
            _line(ax, shown.filter(pl.col("policy") == policy).sort("place"), "place", policy)
        _name_lines(ax, shown, "place")
        ax.set_xticks(range(len(places)), [str(place) for place in places])
        ax.set_xlabel(PANELS[name][0])
        ax.set_ylabel(NAMES[metric])
        _finish(ax, shown)
    return ax


def plot_sensitivities(frame: pl.DataFrame, metric: str = "fmm", min_inactive: int = 3) -> Figure:
    """Draw a panel for every axis that the sweep varies, side by side: the counterpart of the paper's Tables 11-13."""
    found = points(frame, metric, min_inactive)
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


def plot_heatmap(frame: pl.DataFrame, metric: str = "fmm", policy: str = "R3", *, ax: Axes | None = None) -> Axes:
    """Map a metric of one policy over layers and heads; over layers and events, or lags (m of a LIR), without heads."""
    one_model(frame)
    rows = held(one_group(rows_of(frame, metric, policy=policy), metric), ())
    across = next(name for name in ("head", "event", "lag") if rows[name].null_count() < len(rows))
    table = averages(rows, metric, across)
    with style():
        ax = axes_of(ax, 2.1 + 0.11 * min(table.width, 24), 0.9 + 0.075 * len(table))
        values = table.drop("layer").to_numpy() * (100 if metric in PERCENT else 1)
        image = ax.imshow(values, cmap=HEAT, aspect="auto", interpolation="nearest")
        _ticks(ax, table)
        ax.set_xlabel(across)
        ax.set_ylabel("layer")
        ax.set_title(f"{policy}: {NAMES[metric]}")
        bar = image.get_figure(root=True).colorbar(image, ax=ax, pad=0.03, aspect=30)  # type: ignore[union-attr]
        bar.outline.set_visible(False)
    return ax


def _ordered(found: pl.DataFrame) -> list[str]:
    """Policies as in the paper, then the others, random arms last."""
    known = list(POLICIES)
    names = found["policy"].unique().to_list()
    return sorted(names, key=lambda n: (_bound(n) or "", known.index(n) if n in known else len(known), n))


def _bound(policy: str) -> str | None:
    """Which bound a policy is, of `BOUND_NAMES`; None for what can be had."""
    return next((kind for kind in BOUND_NAMES if policy.endswith(f"[{kind}]")), None)


def _look(policy: str) -> tuple[str, Any]:
    bound = _bound(policy)
    if bound is not None:
        return POLICY_COLORS.get(base_of(policy), OTHER), BOUND_DASHES[bound]
    return POLICY_COLORS.get(policy, OTHER), POLICY_DASHES.get(policy, "-")


def _line(ax: Axes, rows: pl.DataFrame, x: str, policy: str) -> None:
    color, dashes = _look(policy)
    faint = _bound(policy) is not None
    width, alpha = (0.8, 0.75) if faint else (1.3, 1.0)
    ax.plot(
        *(rows[x], rows["estimate"]),
        color=color,
        linestyle=dashes,
        linewidth=width,
        alpha=alpha,
        marker="o",
        markersize=1.6 if faint else 2.6,
        label=policy,
        zorder=3,
    )
    if rows["low"].is_not_nan().any():
        ax.fill_between(rows[x], rows["low"], rows["high"], color=color, alpha=0.04 if faint else 0.13, linewidth=0)


def _front(ax: Axes, found: pl.DataFrame) -> None:
    """Step along the settings that nothing cheaper beats; clairvoyant policies are bounds and don't count."""
    real = found.filter(~pl.col("policy").str.contains_any([f"[{name}" for name in CLAIRVOYANT]))
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


def _name_lines(ax: Axes, rows: pl.DataFrame, x: str) -> None:
    """Name each line at its right end, moved apart where names collide."""
    ends = [rows.filter(pl.col("policy") == policy).sort(x).tail(1).row(0, named=True) for policy in _ordered(rows)]
    low, high = ax.get_ylim()
    gap = (high - low) * 0.052
    heights = _above(_range(rows)[0], spread_apart([end["estimate"] for end in ends], gap), gap)
    right, span = max(end[x] for end in ends), float(np.ptp(rows[x].to_numpy()))
    ax.set_xlim(right=right + 0.03 * span)
    for end, height in zip(ends, heights, strict=True):
        color = _look(end["policy"])[0]
        place = (right + 0.05 * span, height)
        ax.plot(
            *((end[x], place[0]), (end["estimate"], height)),
            color=color,
            linewidth=0.4,
            clip_on=False,
            zorder=1,
            label="_leader",
        )
        bound = _bound(end["policy"])
        weight = "bold" if bound is None else "normal"
        told = f" {end['policy']}" if bound is None else f" {base_of(end['policy'])} {BOUND_NAMES[bound]}"
        ax.annotate(told, place, color=color, fontsize=6, fontweight=weight, va="center", annotation_clip=False)


def _above(floor: float, heights: list[float], gap: float) -> list[float]:
    """Push label heights up until none lies below ``floor``, keeping their order and the gap."""
    raised = list(heights)
    for rank, index in enumerate(sorted(range(len(heights)), key=heights.__getitem__)):
        raised[index] = max(heights[index], floor + rank * gap)
    return raised


def _range(rows: pl.DataFrame) -> tuple[float, float]:
    """Lowest and highest value that is drawn, bands included."""
    drawn = pl.concat([rows[name].fill_nan(None) for name in ("estimate", "low", "high")]).drop_nulls()
    return float(np.min(drawn.to_numpy())), float(np.max(drawn.to_numpy()))


def _finish(ax: Axes, rows: pl.DataFrame, more: str = "") -> None:
    ax.yaxis.grid(True)
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    articles, layers = int(np.max(rows["n"].to_numpy())), rows["layers"][0]
    told = f"bands: 95%, {articles} articles × {layers} layers" if articles > 1 else "one article: no interval"
    ax.text(0.015, 0.02, told + more, transform=ax.transAxes, fontsize=5.6, color=MUTED, gid="note")


def _ticks(ax: Axes, table: pl.DataFrame) -> None:
    layers, labels = table["layer"].to_list(), table.columns[1:]
    down, along = max(1, -(-len(layers) // 15)), max(1, -(-len(labels) // 12))
    ax.set_yticks(range(0, len(layers), down), [str(layer) for layer in layers[::down]])
    ax.set_xticks(range(0, len(labels), along), labels[::along])
    ax.tick_params(length=0)
    for side in ax.spines.values():
        side.set_visible(False)
