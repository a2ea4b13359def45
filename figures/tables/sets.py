"""What it costs that all heads of a layer share one set of windows."""

import polars as pl

from qevict_diag.analyses import needs, variants
from qevict_diag.figures.tables.numbers import limits, percent, text
from qevict_diag.figures.tables.parts import BYTE_COLUMNS, LAYER_SD, READING, ordered, sample_notes, with_bytes
from qevict_diag.figures.tables.sheet import Column, Sheet
from qevict_diag.figures.tables.table import Table
from qevict_diag.policies.names import base_of
from qevict_diag.replay.settings import Settings

SHARED = {"": "layer", "(scope=kv_head)": "key-value head"}


def sets(frame: pl.DataFrame, used: pl.DataFrame, settings: Settings) -> Sheet:
    """Future Missed Mass with one set of windows for a layer, or one for each of its key-value heads."""
    rows = variants.against(frame, {name: base_of(name) for name in needs.SETS.policies})
    rows = rows.with_columns(
        base=pl.col("policy").map_elements(base_of, pl.String),
        sets=pl.col("policy").str.extract(r"(\(.*\))").fill_null("").replace_strict(SHARED),
    )
    columns = (
        Column(("base",), "policy", text),
        Column(("sets",), "one set for each", text),
        Column(("estimate",), "mean, %", percent(), "FMM"),
        Column(("low", "high"), "95% interval", limits(percent()), "FMM"),
        Column(("layer_sd",), LAYER_SD, percent(), "FMM"),
        Column(("difference",), "less one for the layer, points", percent(), "FMM"),
        Column(("difference_low", "difference_high"), "95% interval", limits(percent()), "FMM"),
        *BYTE_COLUMNS,
        READING,
    )
    notes = (
        "At the same bytes. A layer's heads attend to different places, so one set for all of them misses what sets of "
        "their own keep.",
        *sample_notes(rows),
    )
    title = "Layer-wide sets against sets of key-value heads"
    return Sheet("sets", title, with_bytes(ordered(rows, needs.SETS.policies), used), columns, notes)


TABLE = Table("sets", "one set for a layer against one for each key-value head", needs.SETS, sets)
