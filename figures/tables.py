"""Tables 14 to 18 from the measurements, with the published Llama-3.1-8B values beside ours.

Every table has the published value where the paper's text states one, the 95% interval, the byte use and the reading.
Table 17's body is lost from the paper's text; it was either the lagged transitions (17a) or the comparison of
importance estimators (17b), so there are both.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import polars as pl

from qevict_diag.analyses import importance, observation1, observation2, observation3, promotion, regret
from qevict_diag.analyses.cells import grid
from qevict_diag.errors import InputError
from qevict_diag.figures.table_model import FORMATS, Column, Table, limits, number, percent, significant, text
from qevict_diag.policies import policies

PAPER = "Llama-3.1-8B"
TRANSITIONS_OF = ("R3",)
SHOWN_14 = observation1.POLICIES
THREE_TIERS = ("R3", "R4")
AGREEMENT_NAMES = {
    "qsa": "QSA, mean over events",
    "qsa pooled": "QSA, Σ dot products / Σ norms",
    "mass_ratio": "R_Q, ratio of sums",
    "mass_ratio mean": "R_Q, mean of ratios",
}
QUANTITY_NAMES = {
    "fmm": "FMM (%), lower is better",
    "qsa": "QSA (%)",
    "mass_ratio": "R_Q (%)",
    "lir": "Global LIR (%)",
    "promotions": "Q→F transitions, all layers and articles",
}
BYTE_COLUMNS = (
    Column(("used_share",), "bytes used, % of allowance", percent(), "Byte use"),
    Column(("persistent_ratio",), "% of FullKV", percent(), "Byte use"),
)
READING = Column(("reading",), "reading", text)
AGAINST_O2 = (
    Column(("regret",), "regret to O2, points", percent(), "FMM"),
    Column(("closed",), "gap random–O2 closed, %", percent(0), "FMM"),
)
O2_NOTE = (
    "O2 keeps the best sets of as many windows when eviction is final and the future is known; random is the mean of "
    f"{regret.DRAWS} seeded draws. A policy closes 100% of the gap when it is as good as O2, 0% when it is no better "
    "than chance."
)


@dataclass(frozen=True)
class Spec:
    """One entry of `TABLES`: how to build it, and the policies and metrics that must have been measured."""

    build: Callable[[pl.DataFrame, pl.DataFrame, int], Table]
    policies: tuple[str, ...]
    metrics: tuple[str, ...]

    @property
    def bounds(self) -> tuple[str, ...]:
        """Random arms and optima that its policies' Future Missed Mass is held against, beyond the policies."""
        if "fmm" not in self.metrics:
            return ()
        return tuple(one.name for one in regret.bounds(policies(self.policies)))


def table14(frame: pl.DataFrame, used: pl.DataFrame, min_inactive: int = 3) -> Table:
    """Average FMM and churn of each condition (Table 14)."""
    keys = list(observation1.KEYS)
    over = grid(frame)
    fmm = observation1.fmm(frame, over).select(
        *keys, "n", "layers", "undefined", fmm="estimate", fmm_low="low", fmm_high="high", fmm_pooled="pooled"
    )
    churn = observation1.churn(frame, over).select(
        *keys,
        *("window", "tokens_per_event", "windows_per_event"),
        churn="estimate",
        churn_low="low",
        churn_high="high",
        churn_published="published",
    )
    rows = fmm.join(churn, on=keys, how="left", nulls_equal=True).filter(pl.col("policy").is_in(SHOWN_14))
    rows = rows.join(regret.regret(frame, over), on="policy", how="left", maintain_order="left")
    columns = (
        Column(("policy",), "policy", text),
        Column(("window",), "Ω", number(0)),
        Column(("fmm",), "mean, %", percent(), "FMM, H = 32"),
        Column(("fmm_low", "fmm_high"), "95% interval", limits(percent()), "FMM, H = 32"),
        Column(("fmm_pooled",), "ratio of sums, %", percent(), "FMM, H = 32"),
        *(replace(column, spanner="FMM, H = 32") for column in AGAINST_O2),
        Column(("churn",), "per event", number(4), "Churn"),
        Column(("churn_low", "churn_high"), "95% interval", limits(number(4)), "Churn"),
        Column(("churn_published",), PAPER, number(4), "Churn"),
        Column(("windows_per_event",), "windows swapped per event", number(2), "Churn"),
        *BYTE_COLUMNS,
        READING,
    )
    notes = (
        "Churn values at different Ω are not comparable; windows swapped per event, which equals tokens swapped per "
        "generated token, are. The paper's text states no FMM value of this table.",
        O2_NOTE,
        *_notes(rows),
    )
    title = "Table 14. Future Missed Mass and historical-set churn"
    return Table("table14", title, _with_bytes(_ordered(rows, SHOWN_14), used), columns, notes)


def table15(frame: pl.DataFrame, used: pl.DataFrame, min_inactive: int = 3) -> Table:
    """Agreement between INT2 and FullKV scores over the quantized windows (Table 15)."""
    rows = observation2.agreement(frame).filter(pl.col("policy").is_in(THREE_TIERS))
    rows = rows.with_columns(shown=pl.col("statistic").replace_strict(AGREEMENT_NAMES))
    columns = (
        Column(("policy",), "policy", text),
        Column(("shown",), "statistic", text),
        Column(("estimate",), "value", number(4)),
        Column(("low", "high"), "95% interval", limits(number(4))),
        Column(("published",), PAPER, number(4)),
        Column(("count",), "head events", number(0)),
        Column(("undefined",), "undefined", number(0)),
        *BYTE_COLUMNS,
        READING,
    )
    notes = (
        "Undefined: fewer than two quantized windows, or no mass on them; not in the mean. R_Q above 1 means that INT2 "
        "keys draw more attention than the originals. The paper calls R_Q lower than 1 and states no number here.",
        *_notes(rows),
    )
    title = "Table 15. Agreement between INT2 and FullKV scores over quantized windows"
    return Table("table15", title, _with_bytes(_ordered(rows, THREE_TIERS), used), columns, notes)


def table16(frame: pl.DataFrame, used: pl.DataFrame, min_inactive: int = 3) -> Table:
    """Global LIR of the oracle's and the policy's selections (Table 16)."""
    rates = observation3.lir(frame)
    rows = rates.filter(pl.col("policy").is_in(THREE_TIERS), pl.col("lag") == min_inactive)
    columns = (
        Column(("policy",), "policy", text),
        Column(("group",), "selection", text),
        Column(("estimate",), "LIR, %", percent(2), "Rescued / eligible episodes"),
        Column(("low", "high"), "two-level", limits(percent(2)), "Rescued / eligible episodes"),
        Column(("wilson_low", "wilson_high"), "Wilson", limits(percent(2)), "Rescued / eligible episodes"),
        Column(("trace_low", "trace_high"), "over articles", limits(percent(2)), "Rescued / eligible episodes"),
        Column(("rescued",), "rescued", number(0), "Rescued / eligible episodes"),
        Column(("eligible",), "eligible", number(0), "Rescued / eligible episodes"),
        Column(("published",), PAPER, percent(2), "Rescued / eligible episodes"),
        Column(("median_return",), "events", number(1), "Median time to return"),
        Column(("return_low", "return_high"), "95% interval", limits(number(1)), "Median time to return"),
        Column(("published_return",), PAPER, number(0), "Median time to return"),
        *BYTE_COLUMNS,
        READING,
    )
    notes = (
        f"m = {min_inactive} inactive events. Literal episodes include windows that were never selected; after_exit "
        "counts only runs that began by leaving. Wilson's interval takes episodes as independent, which they are not. "
        "Episodes open at the end of the trace stay in the denominator.",
        *_notes(rows),
    )
    rows = _ordered(rows, THREE_TIERS, "reading", "group")
    return Table(
        "table16", "Table 16. Global LIR of full-precision selections", _with_bytes(rows, used), columns, notes
    )


def table17a(frame: pl.DataFrame, used: pl.DataFrame, min_inactive: int = 3) -> Table:
    """Lagged transitions of R3's full-precision tier (Table 17, first possibility)."""
    rows = observation3.transitions(frame).filter(pl.col("policy").is_in(TRANSITIONS_OF))
    into, out = "P01, entering F, %", "P10, leaving F, %"
    columns = (
        Column(("policy",), "policy", text),
        Column(("lag",), "Δ, events", number(0)),
        *(column for side, spanner in (("p01", into), ("p10", out)) for column in _transition_columns(side, spanner)),
        Column(("ratio",), "P10 / P01", number(1)),
        Column(("capacity_ratio",), "by capacity alone", number(1)),
        *BYTE_COLUMNS,
        READING,
    )
    notes = (
        "By capacity alone: pairs that start outside F over pairs that start in F, which is what the ratio would be "
        "for any selection of this size in equilibrium. A ratio near it is arithmetic, not dynamics.",
        *_notes(rows.with_columns(n=pl.lit(frame["trace"].n_unique()), layers=pl.lit(frame["layer"].n_unique()))),
    )
    return Table(
        "table17a", "Table 17a. Lagged transitions of the full-precision tier", _with_bytes(rows, used), columns, notes
    )


def _transition_columns(side: str, spanner: str) -> tuple[Column, ...]:
    return (
        Column((side,), "rate", percent(2), spanner),
        Column((f"{side}_low", f"{side}_high"), "95% interval", limits(percent(2)), spanner),
        Column((f"{side}_moved", f"{side}_pairs"), "moved / pairs", _fraction, spanner),
        Column((f"published_{side}",), PAPER, percent(2), spanner),
    )


def _fraction(moved: float | None, pairs: float | None) -> str:
    return f"{number(0)(moved)} / {number(0)(pairs)}"


def table17b(frame: pl.DataFrame, used: pl.DataFrame, min_inactive: int = 3) -> Table:
    """R3 under each importance estimator (Table 17, second possibility)."""
    rows = importance.compare(frame, min_inactive)
    rows = rows.join(regret.regret(frame), on="policy", how="left", maintain_order="left")
    reading = frame.filter(pl.col("metric") == "fmm")["reading"][0]
    rows = rows.with_columns(reading=pl.lit(reading), layers=pl.lit(frame["layer"].n_unique()))
    columns = (
        Column(("estimator",), "estimator", text),
        Column(("fmm",), "mean, %", percent(), "FMM"),
        Column(("fmm_low", "fmm_high"), "95% interval", limits(percent()), "FMM"),
        Column(("difference",), "less cumulative's, points", percent(2), "FMM"),
        Column(("difference_low", "difference_high"), "95% interval, paired", limits(percent(2)), "FMM"),
        *AGAINST_O2,
        Column(("churn",), "churn", number(4)),
        Column(("qsa",), "QSA", number(4)),
        Column(("r_q",), "R_Q", number(3)),
        Column(("lir",), "LIR, %", percent(2)),
        *BYTE_COLUMNS,
        READING,
    )
    notes = (
        "The paper's text states no number for any estimator (Appendix J). The oracle ranks by the attention of the "
        "coming horizon, which no cache knows; it is greedy; irreversible is O2, the best there could be.",
        O2_NOTE,
        *_notes(rows),
    )
    return Table("table17b", "Table 17b. R3 under each importance estimator", _with_bytes(rows, used), columns, notes)


def table18(frame: pl.DataFrame, used: pl.DataFrame, min_inactive: int = 3) -> Table:
    """R3 with and without promotion, paired on the same traces (Table 18)."""
    rows = promotion.compare(frame, min_inactive).join(
        _against_o2(frame), on="quantity", how="left", maintain_order="left"
    )
    rows = rows.with_columns(label=pl.col("quantity").replace_strict(QUANTITY_NAMES), policy=pl.lit(promotion.WITH))
    columns = (
        Column(("label",), "quantity", text),
        *_condition_columns("without", "Without promotion"),
        *_condition_columns("with", "With promotion"),
        Column(("quantity", "difference"), "with − without", _change, "Paired difference"),
        Column(("quantity", "difference_low", "difference_high"), "95% interval", _change_span, "Paired difference"),
        Column(("p_holm",), "p, Holm", number(3), "Paired difference"),
        *BYTE_COLUMNS,
        READING,
    )
    notes = (
        "Both conditions replay the same traces; the paper's use different articles, and it does not say how many "
        "its Q→F count covers.",
        O2_NOTE,
        *_notes(rows),
    )
    title = "Table 18. Promotion from the quantized tier, R3"
    return Table("table18", title, _with_bytes(rows, used), columns, notes)


def _condition_columns(side: str, spanner: str) -> tuple[Column, ...]:
    return (
        Column(("quantity", side), "value", _quantity, spanner),
        Column(("quantity", f"{side}_low", f"{side}_high"), "95% interval", _span, spanner),
        Column(("quantity", f"published_{side}"), PAPER, _quantity, spanner),
        *(replace(one, names=(f"{one.names[0]}_{side}",), spanner=spanner) for one in AGAINST_O2),
    )


def _against_o2(frame: pl.DataFrame) -> pl.DataFrame:
    """Regret and gap closed of both conditions, in one row for the quantity `fmm`."""
    found = regret.regret(frame).select("policy", "regret", "closed")
    told: dict[str, object] = {"quantity": "fmm"}
    for side, name in {"without": promotion.WITHOUT, "with": promotion.WITH}.items():
        of = found.filter(pl.col("policy") == name)
        told |= {f"{x}_{side}": of[x][0] if len(of) else None for x in ("regret", "closed")}
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


TABLES: dict[str, Spec] = {
    "14": Spec(table14, SHOWN_14, ("fmm", "churn")),
    "15": Spec(table15, THREE_TIERS, ("qsa", "mass_ratio")),
    "16": Spec(table16, THREE_TIERS, ("lir",)),
    "17a": Spec(table17a, TRANSITIONS_OF, ("transitions",)),
    "17b": Spec(table17b, importance.POLICIES, ("fmm", "churn", "qsa", "mass_ratio", "lir")),
    "18": Spec(table18, (promotion.WITHOUT, promotion.WITH), ("fmm", "qsa", "mass_ratio", "lir", "promotions")),
}


def build(name: str, frame: pl.DataFrame, used: pl.DataFrame, min_inactive: int = 3) -> Table:
    """Build the table called ``name``; InputError for one that does not exist."""
    return spec_of(name).build(frame, used, min_inactive)


def spec_of(name: str) -> Spec:
    """Look a table up; InputError for one that does not exist."""
    if name not in TABLES:
        raise InputError(f"table {name!r}: there are {', '.join(TABLES)}")
    return TABLES[name]


def names_of(number: str, form: str) -> tuple[str, ...]:
    """Tables that a number stands for: 17 is 17a and 17b; InputError where one file cannot hold both."""
    if form not in FORMATS:
        raise InputError(f"table format {form!r}: allowed are {', '.join(FORMATS)}")
    if number == "17" and form == "csv":
        raise InputError("table 17 is two tables, which one CSV cannot hold; ask for 17a or 17b")
    names = ("17a", "17b") if number == "17" else (number,)
    for name in names:
        spec_of(name)
    return names


def _with_bytes(rows: pl.DataFrame, used: pl.DataFrame) -> pl.DataFrame:
    """Add the byte use of each policy, the largest over the traces, and name the default reading."""
    most = used.group_by("policy").agg(pl.col("used_bytes", "used_share", "persistent_ratio").max())
    named = rows.with_columns(reading=pl.when(pl.col("reading") == "").then(pl.lit("default")).otherwise("reading"))
    return named.join(most, on="policy", how="left", maintain_order="left")


def _ordered(rows: pl.DataFrame, policies: tuple[str, ...], *then: str) -> pl.DataFrame:
    """Sort by the paper's order of policies, then as asked."""
    rank = pl.col("policy").replace_strict({name: index for index, name in enumerate(policies)}, return_dtype=pl.Int64)
    return rows.sort(rank, *then, maintain_order=True)


def _notes(rows: pl.DataFrame) -> tuple[str, ...]:
    """Say what the intervals rest on."""
    articles, layers = (int(rows[name].to_numpy().max()) for name in ("n", "layers"))
    if articles == 1:
        return (f"One article, {layers} layers: one article gives no interval.",)
    told = f"{articles} articles × {layers} layers; 95% two-level bootstrap (articles, then layers within)."
    few = " With so few articles the interval says little about other texts." if articles < 10 else ""
    return (told + few,)
