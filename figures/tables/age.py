"""When what is missed was evicted: right after the prompt, or lately."""

import polars as pl

from qevict_diag.analyses import needs
from qevict_diag.analyses.estimates import estimates, rows_of, sample
from qevict_diag.figures.tables.numbers import limits, percent, text
from qevict_diag.figures.tables.parts import BYTE_COLUMNS, LAYER_SD, READING, ordered, sample_notes, with_bytes
from qevict_diag.figures.tables.sheet import Column, Sheet
from qevict_diag.figures.tables.table import Table
from qevict_diag.metrics.eviction_age import CLASSES, PROMPT
from qevict_diag.replay.settings import Settings


def age(frame: pl.DataFrame, used: pl.DataFrame, settings: Settings) -> Sheet:
    """Future Missed Mass by when it was evicted; the classes of a policy add up to its FMM."""
    rows = rows_of(frame, "missed_age").filter(pl.col("policy").is_in(needs.CONDITIONS))
    rows = estimates(rows, sample(rows), ("policy", "reading", "group"), "mean")
    rows = rows.with_columns(
        of_missed=pl.col("estimate") / pl.col("estimate").sum().over("policy", "reading"),
        place=pl.col("group").replace_strict({name: at for at, name in enumerate(CLASSES)}, return_dtype=pl.Int64),
        when=pl.when(pl.col("group") == PROMPT).then("group").otherwise(pl.col("group") + " queries ago"),
    )
    columns = (
        Column(("policy",), "policy", text),
        Column(("when",), "evicted", text),
        Column(("estimate",), "mean, %", percent(), "Missed mass"),
        Column(("low", "high"), "95% interval", limits(percent()), "Missed mass"),
        Column(("layer_sd",), LAYER_SD, percent(), "Missed mass"),
        Column(("of_missed",), "% of what is missed", percent(0), "Missed mass"),
        *BYTE_COLUMNS,
        READING,
    )
    notes = (
        "Counted at each event in decode queries since the eviction. What was evicted after the prompt was never "
        "given a chance while decoding; what was evicted lately had been kept until shortly before it was needed.",
        *sample_notes(rows),
    )
    title = "Missed mass by when it was evicted"
    return Sheet("age", title, with_bytes(ordered(rows, needs.CONDITIONS, "place"), used), columns, notes)


TABLE = Table("age", "missed mass by when it was evicted", needs.AGES, age)
