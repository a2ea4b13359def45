"""Table 14: average Future Missed Mass and churn of each condition."""

from dataclasses import replace

import polars as pl

from qevict_diag.analyses import needs, observation1, regret
from qevict_diag.analyses.estimates import sample
from qevict_diag.figures.tables.numbers import limits, number, percent, text
from qevict_diag.figures.tables.parts import (
    AGAINST_O2,
    BYTE_COLUMNS,
    LAYER_SD,
    PAPER,
    READING,
    o2_note,
    ordered,
    sample_notes,
    with_bytes,
)
from qevict_diag.figures.tables.sheet import Column, Sheet
from qevict_diag.figures.tables.table import Table
from qevict_diag.replay.settings import Settings

POLICIES = observation1.POLICIES


def table14(frame: pl.DataFrame, used: pl.DataFrame, settings: Settings) -> Sheet:
    """Average FMM and churn of each condition (Table 14)."""
    keys = list(observation1.KEYS)
    over = sample(frame)
    fmm = observation1.fmm(frame, over).select(
        *(*keys, "n", "layers", "layer_sd", "undefined"),
        fmm="estimate",
        fmm_low="low",
        fmm_high="high",
        fmm_pooled="pooled",
    )
    churn = observation1.churn(frame, over).select(
        *keys,
        *("window", "tokens_per_event", "windows_per_event"),
        churn="estimate",
        churn_low="low",
        churn_high="high",
        churn_published="published",
    )
    rows = fmm.join(churn, on=keys, how="left", nulls_equal=True).filter(pl.col("policy").is_in(POLICIES))
    rows = rows.join(regret.regret(frame, over), on="policy", how="left", maintain_order="left")
    columns = (
        Column(("policy",), "policy", text),
        Column(("window",), "Ω", number(0)),
        Column(("fmm",), "mean, %", percent(), "FMM"),
        Column(("fmm_low", "fmm_high"), "95% interval", limits(percent()), "FMM"),
        Column(("layer_sd",), LAYER_SD, percent(), "FMM"),
        Column(("fmm_pooled",), "ratio of sums, %", percent(), "FMM"),
        *(replace(column, spanner="FMM") for column in AGAINST_O2),
        Column(("churn",), "per event", number(4), "Churn"),
        Column(("churn_low", "churn_high"), "95% interval", limits(number(4)), "Churn"),
        Column(("churn_published",), PAPER, number(4), "Churn"),
        Column(("windows_per_event",), "windows swapped per event", number(2), "Churn"),
        *BYTE_COLUMNS,
        READING,
    )
    notes = (
        "Churn values at different Ω are not comparable; windows swapped per event, which equals tokens swapped per "
        "generated token, are; while a cache still fills, a window that enters counts as half a swap. The paper's text "
        "states no FMM value of this table. R2 is to R1 like for like, two tiers both; R3 and R4 keep more tokens too.",
        o2_note(frame),
        *sample_notes(rows),
    )
    title = "Table 14. Future Missed Mass and historical-set churn"
    return Sheet("table14", title, with_bytes(ordered(rows, POLICIES), used), columns, notes)


TABLE = Table("14", "Future Missed Mass and churn of each condition", needs.MISSED, table14)
