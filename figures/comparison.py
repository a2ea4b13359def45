"""Policies side by side: a table at each budget, and missed mass against bytes."""

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from qevict_diag.analyses.comparison import ASKED, answers
from qevict_diag.figures.style import axes_of, color_of, style
from qevict_diag.figures.tables.numbers import limits, number, percent, text
from qevict_diag.figures.tables.parts import sample_notes
from qevict_diag.figures.tables.sheet import Column, Sheet

MATCHED = {
    "peak": "Each policy has the largest budget at which its cache holds no more than that share of FullKV's bytes at "
    "its peak, sinks, recent and later tokens included. Whole windows leave some unused; a policy that keeps all later "
    "tokens may hold more at any budget, and has no place then.",
    "mean": "Each policy has the largest budget at which its cache holds no more than that share of FullKV's bytes in "
    "the mean over decode queries.",
    "budget": "All policies have the same budget, and hold different bytes.",
}
MARKS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "h", "*", "p")


def sheet(table: pl.DataFrame, match: str) -> Sheet:
    """The rows of `comparison.ranked` as people see them, with what to use above the notes."""
    columns = (
        Column((ASKED,), "of FullKV's bytes", text),
        Column(("place",), "place", number(0)),
        Column(("policy",), "policy", text),
        Column(("estimate",), "mean, %", percent(), "Missed mass"),
        Column(("low", "high"), "95% interval", limits(percent()), "Missed mass"),
        Column(("difference",), "less the best's, points", percent(), "Missed mass"),
        Column(("difference_low", "difference_high"), "95% interval", limits(percent()), "Missed mass"),
        Column(("churn",), "churn per event", number(4)),
        Column(("share_after_event",), "after an event", percent(), "% of FullKV's bytes"),
        Column(("share_mean",), "mean over queries", percent(), "% of FullKV's bytes"),
        Column(("share_peak",), "peak", percent(), "% of FullKV's bytes"),
    )
    notes = (
        *answers(table),
        MATCHED[match],
        "Missed mass is a share of all attention on positions that exist, the first ones included. Policies share a "
        "place when the paired interval of their difference to the first of it covers 0. Quantized tokens count as "
        "kept: what quantization does to them is in QSA and R_Q, not here. Queries are those of the uncompressed run: "
        "what eviction does to later hidden states is in no number.",
        *sample_notes(table),
    )
    return Sheet("compare", "Policies at the same bytes", table, columns, notes)


def figure(table: pl.DataFrame) -> Figure:
    """Draw `plot_bytes` in a figure of its own."""
    with style():
        drawn = Figure(figsize=(5.2, 3.6), layout="constrained")
        plot_bytes(table, ax=drawn.add_subplot())
    return drawn


def plot_bytes(table: pl.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Plot missed mass against the bytes at the peak, both in percent: one line for each policy, named at its end."""
    with style():
        ax = axes_of(ax, 5.2, 3.6)
        for at, ((policy,), rows) in enumerate(table.sort("share_peak").group_by("policy", maintain_order=True)):
            share, missed = rows["share_peak"] * 100, rows["estimate"] * 100
            name, mark = str(policy), MARKS[at % len(MARKS)]
            ax.plot(share, missed, color=color_of(name), marker=mark, markersize=3.5, linewidth=0.9, label=name)
            if rows["low"].null_count() < len(rows):
                ax.fill_between(
                    *(share, rows["low"] * 100, rows["high"] * 100), color=color_of(name), alpha=0.08, linewidth=0
                )
        ax.set_xlabel("bytes at the peak (% of FullKV)")
        ax.set_ylabel("missed mass (% of all attention)")
        ax.set_ylim(bottom=0)
        ax.yaxis.grid(True)
        ax.legend(fontsize=6, ncols=2)
    return ax
