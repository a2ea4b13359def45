"""Pictures of a sweep: missed mass against bytes, sensitivity to each setting, and layer × head maps of any metric.

Frames of `qevict_diag.sweep.read` in, axes out. Bands are 95% intervals of the two-level bootstrap (articles, then
layers within), draws of the random arm pooled; with one article there are none. Where a picture fixes an axis of the
sweep, it takes the paper's diagnostic value if the sweep has it and the smallest one otherwise (`reference`).
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from qevict_diag.analyses.cells import estimates, grid, rows_of
from qevict_diag.analyses.summary import HOW
from qevict_diag.errors import InputError
from qevict_diag.figures.style import MUTED, POLICY_COLORS, POLICY_DASHES, axes_of, spread_apart, style
from qevict_diag.policies import POLICIES

AXES = ("window", "quantized_fraction", "bits", "budget", "swept_reading")
USUAL: dict[str, Any] = {"quantized_fraction": "1/2", "bits": 2, "budget": "1/5", "swept_reading": ""}
KEYS = ("policy", *AXES)
OTHER, RANDOM_DASHES = "#555555", (0, (1, 1.6))
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
PERCENT = ("fmm", "churn", "mass_share", "lir", "transitions")
GROUPS = {"mass_share": "evicted", "lir": "policy", "transitions": "01"}  # the one of several groups that is drawn
LAGS = {"lir": 3, "transitions": 1}  # and the lag, where a setting is one point


def points(frame: pl.DataFrame, metric: str = "fmm") -> pl.DataFrame:
    """Estimate and interval of one metric at every setting of a sweep; columns `KEYS` and the interval's."""
    one_model(frame)
    rows = one_group(rows_of(frame, metric), metric)
    if metric in LAGS:
        rows = rows.filter(pl.col("lag") == LAGS[metric])
    scale = 100 if metric in PERCENT else 1
    found = estimates(rows, grid(rows), KEYS, HOW[metric])
    return found.with_columns(pl.col("estimate", "low", "high") * scale)


def one_group(rows: pl.DataFrame, metric: str) -> pl.DataFrame:
    """Rows of the group of `GROUPS` where a metric has several, under the sweep's own reading."""
    own = rows.filter(pl.col("reading") == pl.col("swept_reading"))
    return own.filter(pl.col("group") == GROUPS[metric]) if metric in GROUPS else own


def one_model(frame: pl.DataFrame) -> None:
    """Refuse a sweep over several models: their numbers are not samples of one thing (InputError)."""
    models = frame["model"].unique().sort().to_list()
    if len(models) > 1:
        raise InputError(f"a sweep of {len(models)} models ({', '.join(models)}); filter the frame to one of them")


def reference(found: pl.DataFrame, name: str) -> Any:
    """The value at which a picture holds an axis fixed; None when the axis does not apply."""
    values = found[name].drop_nulls().unique(maintain_order=True).to_list()
    if USUAL.get(name) in values or not values:
        return USUAL.get(name) if values else None
    return min(values, key=str if name == "swept_reading" else Fraction)


def held(found: pl.DataFrame, free: Sequence[str]) -> pl.DataFrame:
    """Only points where every axis that is not ``free`` has its reference value, or does not apply.

    A policy's window is its own where the sweep has it: 1 for R1, 32 for R4, 8 for the others.
    """
    for name in AXES:
        if name in free:
            continue
        if name == "window":
            found = pl.concat([_own_window(part) for part in found.partition_by("policy", maintain_order=True)])
        else:
            value = reference(found, name)
            found = found.filter(pl.col(name).is_null() | (pl.col(name) == value))
    return found


def plot_pareto(frame: pl.DataFrame, used: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot FMM against the bytes really used, in percent of FullKV's: one line with a band for each policy.

    The thin dark steps are the front: settings that no other setting of the sweep beats in both. Small dots are the
    settings off the lines.
    """
    found = points(frame).join(_bytes(used), on=KEYS, how="left", nulls_equal=True).sort("share")
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


def plot_sensitivity(frame: pl.DataFrame, name: str, metric: str = "fmm", *, ax: Axes | None = None) -> Axes:
    """Plot a metric against one axis of the sweep (`PANELS`), everything else at its reference value."""
    if name not in PANELS:
        raise InputError(f"axis {name!r}: there are {', '.join(PANELS)}")
    shown = held(points(frame, metric), (name,)).filter(pl.col(name).is_not_null())
    places = sorted(shown[name].unique().to_list(), key=Fraction)
    shown = shown.with_columns(place=pl.col(name).replace_strict(places, range(len(places)), return_dtype=pl.Float64))
    varied = shown.filter(pl.len().over("policy") > 1)
    if varied.is_empty():
        raise InputError(f"the sweep has one value of {name.replace('_', ' ')}; sweep over several to see its effect")
    with style():
        ax = axes_of(ax)
        for policy in _ordered(varied):
            _line(ax, varied.filter(pl.col("policy") == policy).sort("place"), "place", policy)
        _name_lines(ax, varied, "place")
        ax.set_xticks(range(len(places)), [str(place) for place in places])
        ax.set_xlabel(PANELS[name][0])
        ax.set_ylabel(NAMES[metric])
        _finish(ax, varied)
    return ax


def plot_sensitivities(frame: pl.DataFrame, metric: str = "fmm") -> Figure:
    """Draw a panel for every axis that the sweep varies, side by side: the counterpart of the paper's Tables 11-13."""
    names = [name for name in PANELS if frame[name].drop_nulls().n_unique() > 1]
    if not names:
        raise InputError(
            "the sweep varies neither window, quantized fraction nor bits; give one of them several values"
        )
    with style():
        figure = Figure(figsize=(2.5 * len(names) + 0.4, 2.5), layout="constrained")
        axes = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
        for name, ax in zip(names, axes, strict=True):
            plot_sensitivity(frame, name, metric, ax=ax)
            ax.set_title(PANELS[name][1])
        for ax in axes[1:]:
            ax.set_ylabel("")
            for text in [text for text in ax.texts if text.get_gid() == "note"]:
                text.remove()
    return figure


def plot_heatmap(frame: pl.DataFrame, metric: str = "fmm", policy: str = "R3", *, ax: Axes | None = None) -> Axes:
    """Map a metric of one policy over layers and heads; over layers and events, or lags, where it has no heads."""
    one_model(frame)
    rows = held(one_group(rows_of(frame, metric, policy=policy), metric), ())
    across = next(name for name in ("head", "event", "lag") if rows[name].null_count() < len(rows))
    table = _averages(rows, metric, across)
    with style():
        ax = axes_of(ax, 2.1 + 0.11 * min(table.width, 24), 0.9 + 0.075 * len(table))
        values = table.drop("layer").to_numpy() * (100 if metric in PERCENT else 1)
        image = ax.imshow(values, cmap=HEAT, aspect="auto", interpolation="nearest")
        _ticks(ax, table)
        ax.set_xlabel(across)
        ax.set_ylabel("layer")
        ax.set_title(f"{policy}: {NAMES[metric]}")
        bar = ax.get_figure().colorbar(image, ax=ax, pad=0.03, aspect=30)
        bar.outline.set_visible(False)
    return ax


def _own_window(part: pl.DataFrame) -> pl.DataFrame:
    """The points of one policy at its own window, or at the first one that the sweep has."""
    base = POLICIES.get(part["policy"][0].partition("[")[0])
    windows = part["window"].unique().sort().to_list()
    own = base.window if base is not None and base.window in windows else windows[0]
    return part.filter(pl.col("window") == own)


def _bytes(used: pl.DataFrame) -> pl.DataFrame:
    """Mean over traces of the peak share of FullKV's bytes, in percent."""
    return used.group_by(KEYS).agg(share=pl.col("persistent_ratio").mean() * 100)


def _ordered(found: pl.DataFrame) -> list[str]:
    """Policies as in the paper, then the others, random arms last."""
    known = list(POLICIES)
    names = found["policy"].unique().to_list()
    return sorted(names, key=lambda n: (_is_random(n), known.index(n) if n in known else len(known), n))


def _is_random(policy: str) -> bool:
    return policy.endswith("[random]")


def _look(policy: str) -> tuple[str, Any]:
    if _is_random(policy):
        return POLICY_COLORS.get(policy.partition("[")[0], OTHER), RANDOM_DASHES
    return POLICY_COLORS.get(policy, OTHER), POLICY_DASHES.get(policy, "-")


def _line(ax: Axes, rows: pl.DataFrame, x: str, policy: str) -> None:
    color, dashes = _look(policy)
    faint = _is_random(policy)
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
    real = found.filter(~pl.col("policy").str.contains(r"\[oracle\]"))
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
    low, high = _range(rows)
    heights = _above(low, spread_apart([end["estimate"] for end in ends], (high - low) * 0.058), (high - low) * 0.058)
    right, span = max(end[x] for end in ends), rows[x].max() - rows[x].min()
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
        weight = "normal" if _is_random(end["policy"]) else "bold"
        told = f" {end['policy'].replace('[random]', ' random')}"
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
    return float(drawn.min()), float(drawn.max())


def _finish(ax: Axes, rows: pl.DataFrame, more: str = "") -> None:
    ax.yaxis.grid(True)
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    articles, layers = rows["n"].max(), rows["layers"][0]
    told = f"bands: 95%, {articles} articles × {layers} layers" if articles > 1 else "one article: no interval"
    ax.text(0.015, 0.02, told + more, transform=ax.transAxes, fontsize=5.6, color=MUTED, gid="note")


def _averages(rows: pl.DataFrame, metric: str, across: str) -> pl.DataFrame:
    """Layers down, ``across`` to the right: means of defined values, or ratios of sums where counts are pooled."""
    defined = rows.filter(pl.col("value").is_not_nan())
    pooled = pl.col("numerator").sum() / pl.col("denominator").sum()
    value = pooled if HOW[metric] == "pooled" else pl.col("value").mean()
    means = defined.group_by("layer", across).agg(value=value).sort(across, "layer")
    return means.pivot(across, index="layer", values="value").sort("layer")


def _ticks(ax: Axes, table: pl.DataFrame) -> None:
    layers, labels = table["layer"].to_list(), table.columns[1:]
    down, along = max(1, -(-len(layers) // 15)), max(1, -(-len(labels) // 12))
    ax.set_yticks(range(0, len(layers), down), [str(layer) for layer in layers[::down]])
    ax.set_xticks(range(0, len(labels), along), labels[::along])
    ax.tick_params(length=0)
    for side in ax.spines.values():
        side.set_visible(False)
