"""The heads that miss most: what a mean over heads hides."""

import polars as pl

from qevict_diag.analyses import needs, profile
from qevict_diag.figures.tables.numbers import limits, number, percent, text
from qevict_diag.figures.tables.parts import BYTE_COLUMNS, READING, ordered, sample_notes, with_bytes
from qevict_diag.figures.tables.sheet import Column, Sheet
from qevict_diag.figures.tables.table import Table
from qevict_diag.replay.settings import Settings


def heads(frame: pl.DataFrame, used: pl.DataFrame, settings: Settings) -> Sheet:
    """Future Missed Mass over heads: its mean, and its upper quantiles."""
    rows = profile.worst_heads(frame.filter(pl.col("policy").is_in(needs.CONDITIONS)))
    of_heads, of_events = "Heads, mean over events, %", "Single head events, %"
    columns = (
        Column(("policy",), "policy", text),
        Column(("mean",), "mean, %", percent(), "FMM"),
        Column(("low", "high"), "95% interval", limits(percent()), "FMM"),
        Column(("layer_sd",), "sd over layers", percent(), "FMM"),
        *(Column((f"head_{q * 100:g}",), f"{q:.0%} below", percent(), of_heads) for q in profile.QUANTILES),
        Column(("worst",), "worst", percent(), of_heads),
        Column(("worst_low", "worst_high"), "its articles", limits(percent()), of_heads),
        Column(("layer", "head"), "layer.head", _name, of_heads),
        *(Column((f"event_{q * 100:g}",), f"{q:.0%} below", percent(), of_events) for q in profile.QUANTILES),
        *BYTE_COLUMNS,
        READING,
    )
    notes = (
        "Layers and heads are all there are, not a sample: these are quantiles of what was measured. A head that looks "
        "something up far back can lose nearly all of it while the mean stays low.",
        *sample_notes(rows),
    )
    return Sheet(
        "heads", "Future Missed Mass over heads", with_bytes(ordered(rows, needs.CONDITIONS), used), columns, notes
    )


def _name(layer: int, head: int) -> str:
    return f"{number(0)(layer)}.{number(0)(head)}"


TABLE = Table("heads", "the heads that miss most", needs.HEADS, heads)
