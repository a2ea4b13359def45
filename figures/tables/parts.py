"""What several tables share: columns of bytes and regret, the order of rows, and the notes below."""

import polars as pl

from qevict_diag.figures.tables.numbers import limits, percent, text
from qevict_diag.figures.tables.sheet import Column
from qevict_diag.policies.arms import CHANCE, DRAWS
from qevict_diag.statistics.power import FEWEST

PAPER = "Llama-3.1-8B"
BYTE_COLUMNS = (
    Column(("share_of_allowance",), "F ∪ Q, % of allowance", percent(), "Byte use"),
    Column(("share_after_event",), "after an event", percent(), "% of FullKV's bytes"),
    Column(("share_mean",), "mean over queries", percent(), "% of FullKV's bytes"),
    Column(("share_peak",), "peak", percent(), "% of FullKV's bytes"),
    Column(("share_peak_with_ledger",), "peak with the ledger", percent(), "% of FullKV's bytes"),
)
READING = Column(("reading",), "reading", text)
AGAINST_O2 = (
    Column(("chance",), "by chance, %", percent(), "FMM"),
    Column(("regret",), "regret to O2, points", percent(), "FMM"),
    Column(("closed",), "gap chance–O2 closed, %", percent(0), "FMM"),
    Column(("closed_low", "closed_high"), "95% interval", limits(percent(0)), "FMM"),
)
LAYER_SD = "sd over layers"


def o2_note(frame: pl.DataFrame) -> str:
    """Say what chance and O2 are: chance in closed form where the frame has it, else drawn."""
    closed_form = CHANCE in frame["metric"]
    how = "in closed form" if closed_form else f"from {DRAWS} seeded draws"
    return (
        "O2 keeps the best sets of as many windows when eviction is final and the future is known; chance keeps a "
        f"random set of as many, {how}. A policy closes 100% of the gap when it is as good as O2, 0% when it is no "
        "better than chance."
    )


def with_bytes(rows: pl.DataFrame, used: pl.DataFrame) -> pl.DataFrame:
    """Add the byte use of each policy, the largest over the traces, and name the default reading."""
    most = used.group_by("policy").agg(pl.col("used_bytes", *(column.names[0] for column in BYTE_COLUMNS)).max())
    named = rows.with_columns(reading=pl.when(pl.col("reading") == "").then(pl.lit("default")).otherwise("reading"))
    return named.join(most, on="policy", how="left", maintain_order="left")


def ordered(rows: pl.DataFrame, policies: tuple[str, ...], *then: str) -> pl.DataFrame:
    """Sort by the paper's order of policies, then as asked."""
    rank = pl.col("policy").replace_strict({name: index for index, name in enumerate(policies)}, return_dtype=pl.Int64)
    return rows.sort(rank, *then, maintain_order=True)


def sample_notes(rows: pl.DataFrame) -> tuple[str, ...]:
    """Say what the intervals rest on."""
    articles, layers = (int(rows[name].to_numpy().max()) for name in ("n", "layers"))
    if articles == 1:
        return (f"One article, {layers} layers: one article gives no interval.",)
    told = (
        f"{articles} articles × {layers} layers; 95% t intervals over articles. Layers are all there are: their spread "
        "is a number of its own."
    )
    wide = " An interval of so few articles may reach beyond what the number can be." if articles < FEWEST else ""
    return (told + wide,)
