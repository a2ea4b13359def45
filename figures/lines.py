"""Lines over an axis, one for each policy, with their names beside them."""

from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

from qevict_diag.figures.style import MUTED, POLICY_COLORS, POLICY_DASHES, shown_name, spread_apart
from qevict_diag.policies.arms import CHANCE, OPTIMUM, RANDOM
from qevict_diag.policies.catalogue import ESTIMATORS, POLICIES
from qevict_diag.policies.names import base_of
from qevict_diag.policies.ranking import Foresight, Split

OTHER, BOUND_DASHES = "#555555", {CHANCE: (0, (1, 1.6)), RANDOM: (0, (1, 3)), OPTIMUM: (0, (6, 1.2))}
BOUND_NAMES = {CHANCE: "chance", RANDOM: "random", OPTIMUM: "O2"}


CLAIRVOYANT = [name for name, kind in ESTIMATORS.items() if issubclass(kind, (Foresight, Split))]


def _ordered(found: pl.DataFrame) -> list[str]:
    """Policies as in the paper, then the others, bounds last."""
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
        label=shown_name(policy),
        zorder=3,
    )
    if rows["low"].is_not_nan().any():
        ax.fill_between(rows[x], rows["low"], rows["high"], color=color, alpha=0.04 if faint else 0.13, linewidth=0)


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
        told = end["policy"] if bound is None else f"{base_of(end['policy'])} {BOUND_NAMES[bound]}"
        written = f" {shown_name(told)}"
        ax.annotate(written, place, color=color, fontsize=6, fontweight=weight, va="center", annotation_clip=False)


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
