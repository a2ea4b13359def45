"""The claims as tables: one row for each claim, and one for each check behind it."""

import polars as pl

from qevict_diag.analyses.claims import evaluate as claims
from qevict_diag.figures.tables.numbers import EMPTY, limits, number, significant, text
from qevict_diag.figures.tables.table import Column, Table

SIGNS = {"above": ">", "below": "<", "equal": "="}


def claims_table(evaluated: pl.DataFrame, model: str) -> Table:
    """One row for each of the twelve claims: verdict, text, numbers and what would decide it."""
    columns = (
        Column(("claim",), "claim", text),
        Column(("verdict",), "verdict", text),
        Column(("text",), "what the paper says", text),
        Column(("numbers",), f"on {model}", text),
        Column(("more",), "to decide it", text),
        Column(("place",), "place", text),
    )
    notes = (
        "A claim holds when the 95% intervals of all its checks lie on the claimed side of their thresholds, and does "
        "not hold when one lies on the other side. "
        "Unit of replication: the article, layers resampled within it.",
    )
    return Table("claims", f"The paper's claims on {model}", claims.summary(evaluated), columns, notes)


def checks_table(evaluated: pl.DataFrame, model: str) -> Table:
    """One row for each check: statistic, interval, threshold, p-values, unit of replication and n."""
    columns = (
        Column(("claim",), "claim", text),
        Column(("statistic",), "statistic", text),
        Column(("estimate",), "estimate", significant(4)),
        Column(("low", "high"), "95% interval", limits(significant(4))),
        Column(("side", "threshold"), "claimed", claimed),
        Column(("verdict",), "verdict", text),
        Column(("p_value",), "p", number(4)),
        Column(("p_holm",), "p, Holm", number(4)),
        Column(("numbers",), "numbers", text),
        Column(("method",), "interval by", text),
        Column(("unit",), "unit of replication", text),
        Column(("n",), "n", number(0)),
        Column(("layers",), "layers", number(0)),
        Column(("reading",), "reading", _reading),
    )
    return Table("claim_checks", f"Checks behind the claims on {model}", evaluated, columns)


def claimed(side: str, threshold: float) -> str:
    """Write the claimed side of a threshold, ``> 0`` say."""
    return f"{SIGNS[side]} {threshold:g}"


def _reading(value: str | None) -> str:
    return EMPTY if value is None else value or "default"
