"""Table 18: promotion from the quantized tier."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import polars as pl

from qevict_diag.analyses import needs, promotion, regret
from qevict_diag.figures.tables.numbers import limits, number, p_value, percent, significant, text
from qevict_diag.figures.tables.parts import AGAINST_O2, BYTE_COLUMNS, PAPER, READING, o2_note, sample_notes, with_bytes
from qevict_diag.figures.tables.sheet import Column, Sheet
from qevict_diag.figures.tables.table import Table
from qevict_diag.replay.settings import Settings

QUANTITY_NAMES = {
    "fmm": "FMM (%), lower is better",
    "qsa": "QSA (%)",
    "mass_ratio": "R_Q (%)",
    "lir": "Global LIR (%)",
    "promotions": "Q→F transitions, all layers and articles",
}


def table18(frame: pl.DataFrame, used: pl.DataFrame, settings: Settings) -> Sheet:
    """R3 with and without promotion, paired on the same traces (Table 18)."""
    rows = promotion.compare(frame, settings).join(_against_o2(frame), on="quantity", how="left", maintain_order="left")
    rows = rows.with_columns(label=pl.col("quantity").replace_strict(QUANTITY_NAMES), policy=pl.lit(promotion.WITH))
    columns = (
        Column(("label",), "quantity", text),
        *_condition_columns("without", "Without promotion"),
        *_condition_columns("with", "With promotion"),
        Column(("quantity", "difference"), "with − without", _change, "Paired difference"),
        Column(("quantity", "difference_low", "difference_high"), "95% interval", _change_span, "Paired difference"),
        Column(("p_holm",), "p, Holm", p_value(3), "Paired difference"),
        *BYTE_COLUMNS,
        READING,
    )
    notes = (
        "Both conditions replay the same traces; the paper's use different articles, and it does not say how many "
        "its Q→F count covers.",
        o2_note(frame),
        *sample_notes(rows),
    )
    title = "Table 18. Promotion from the quantized tier, R3"
    return Sheet("table18", title, with_bytes(rows, used), columns, notes)


def _condition_columns(side: str, spanner: str) -> tuple[Column, ...]:
    return (
        Column(("quantity", side), "value", _quantity, spanner),
        Column(("quantity", f"{side}_low", f"{side}_high"), "95% interval", _span, spanner),
        Column(("quantity", f"published_{side}"), PAPER, _quantity, spanner),
        *(replace(one, names=tuple(f"{name}_{side}" for name in one.names), spanner=spanner) for one in AGAINST_O2),
    )


def _against_o2(frame: pl.DataFrame) -> pl.DataFrame:
    """What chance would miss, regret and gap closed of both conditions, in one row for the quantity `fmm`."""
    columns = [name for one in AGAINST_O2 for name in one.names]
    found = regret.regret(frame)
    told: dict[str, object] = {"quantity": "fmm"}
    for side, name in {"without": promotion.WITHOUT, "with": promotion.WITH}.items():
        of = found.filter(pl.col("policy") == name)
        told |= {f"{x}_{side}": of[x][0] if len(of) else None for x in columns}
    numbers = {name: pl.Float64 for name in told if name != "quantity"}
    return pl.DataFrame([told], schema_overrides=numbers)


def _writer(quantity: str) -> Callable[[float | None], str]:
    return number(0) if quantity == "promotions" else percent(2)


def _quantity(quantity: str, value: float | None) -> str:
    return _writer(quantity)(value)


def _change(quantity: str, value: float | None) -> str:
    scale = 1.0 if quantity == "promotions" else 100.0
    return significant(3)(None if value is None else value * scale)


def _change_span(quantity: str, low: float | None, high: float | None) -> str:
    return limits(partial(_change, quantity))(low, high)


def _span(quantity: str, low: float | None, high: float | None) -> str:
    return limits(_writer(quantity))(low, high)


TABLE = Table("18", "R3 with and without promotion, paired", needs.PROMOTION, table18, of="promotion")
