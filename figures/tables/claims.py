"""The claims as tables: one row for each claim, and one for each check behind it."""

import polars as pl

from qevict_diag.analyses.claims import verdicts
from qevict_diag.figures.tables.numbers import EMPTY, limits, number, p_value, significant, text
from qevict_diag.figures.tables.sheet import Column, Sheet

SIGNS = {"above": ">", "below": "<", "equal": "="}
RULE = (
    "A claim holds when the 95% intervals of all its checks lie on the claimed side of their thresholds, and does not "
    "hold when one lies on the other side; there is no difference where the interval lies within a stated margin. "
    "Articles are the sample (n), layers a full set: t intervals over articles, p-values corrected by Holm."
)


def claims_table(evaluated: pl.DataFrame, model: str, compared: pl.DataFrame | None = None) -> Sheet:
    """One row for each of the twelve claims: verdict, n, intervals, and what else it takes to read them.

    ``compared`` has the verdicts under every reading (`sensitivity.compare`); without it nothing is said of them.
    """
    columns = (
        Column(("claim",), "claim", text),
        Column(("verdict",), "verdict", text),
        Column(("n",), "n", number(0)),
        Column(("text",), "what the paper says", text),
        Column(("evidence",), f"on {model}, with 95% intervals", text),
        Column(("readings",), "under other readings", text),
        Column(("remark",), "beside it", text),
        Column(("more",), "to decide it", text),
        Column(("place",), "place", text),
    )
    title = f"The paper's claims on {model}"
    return Sheet("claims", title, verdicts.summary(evaluated, compared), columns, (RULE,))


def checks_table(evaluated: pl.DataFrame, model: str) -> Sheet:
    """One row for each check: statistic, interval, threshold, p-values, unit of replication, n and spreads."""
    columns = (
        Column(("claim",), "claim", text),
        Column(("statistic",), "statistic", text),
        Column(("estimate",), "estimate", significant(4)),
        Column(("low", "high"), "95% interval", limits(significant(4))),
        Column(("n",), "n", number(0)),
        Column(("side", "threshold", "word", "margin"), "claimed", claimed, words=True),
        Column(("verdict", "counts"), "verdict", _verdict, words=True),
        Column(("p_value",), "p", p_value()),
        Column(("p_holm",), "p, Holm", p_value()),
        Column(("layer_sd",), "sd over layers", significant(3)),
        Column(("numbers",), "numbers", text),
        Column(("method",), "interval by", text),
        Column(("unit",), "unit of replication", text),
        Column(("layers",), "layers", number(0)),
        Column(("reading",), "reading", _reading, words=True),
    )
    return Sheet("claim_checks", f"Checks behind the claims on {model}", evaluated, columns, (RULE,))


def claimed(side: str, threshold: float, word: str = "", margin: float = 0.0) -> str:
    """Write the claimed side of a threshold, ``> 0`` say; a threshold or margin of ours is called so."""
    told = f"{SIGNS[side]} {threshold:g}"
    told = f"{word}: {told}, our threshold" if word else f"claimed {told}"
    return f"{told}; no difference within {margin:g}, our margin" if margin else told


def _verdict(verdict: str, counts: bool) -> str:
    return verdict if counts else f"{verdict} (beside it)"


def _reading(value: str | None) -> str:
    return EMPTY if value is None else value or "default"
