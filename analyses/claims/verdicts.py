"""From checks to claims: one verdict for each claim, with its evidence, and how it fares under the other readings.

A verdict hangs on how the paper is read, so none stands alone: beside it is said under how many readings it stays, and
which ones change it. Where the articles at hand decide nothing, the side of the estimate is what is compared.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from qevict_diag.analyses.claims.evaluate import EXACT, FAILS, HOLDS, SAME, UNDECIDED, UNMEASURED
from qevict_diag.readings import READINGS

WORST_FIRST = (FAILS, SAME, UNMEASURED, UNDECIDED, HOLDS)
LETTERS = {reading.name: reading.letter for reading in READINGS}
COLUMNS = {
    "claim": pl.String,
    "verdict": pl.String,
    "sign": pl.String,
    "n": pl.Int64,
    "text": pl.String,
    "evidence": pl.String,
    "numbers": pl.String,
    "more": pl.String,
    "remark": pl.String,
    "readings": pl.String,
    "layers": pl.Int64,
    "place": pl.String,
}
SIDES = {"+": "estimate on the claimed side", "-": "estimate not on the claimed side"}


def summary(evaluated: pl.DataFrame, compared: pl.DataFrame | None = None) -> pl.DataFrame:
    """Combine the checks of each claim, in the paper's order.

    ``evidence`` is the statistics with their intervals; ``readings`` is `standing`, empty without ``compared``, the
    verdicts under every reading.
    """
    stands = {} if compared is None else standing(compared)
    rows = [_claim(checks, stands) for checks in evaluated.partition_by("claim", maintain_order=True)]
    return pl.DataFrame(rows, schema=COLUMNS)


def _claim(checks: pl.DataFrame, stands: Mapping[str, str]) -> dict[str, Any]:
    counted, first = checks.filter("counts"), checks.row(0, named=True)
    return {
        **{name: first[name] for name in ("claim", "text", "remark", "place")},
        "verdict": combined(counted["verdict"].to_list()),
        "sign": combined_sign(counted["sign"].to_list()),
        "evidence": "; ".join(told(check) for check in checks.iter_rows(named=True) if check["verdict"] != UNMEASURED),
        "numbers": _merged(checks["numbers"].to_list()),
        "more": "; ".join(dict.fromkeys(one for one in counted["more"] if one)),
        "readings": stands.get(first["claim"], ""),
        **{name: counted[name].max() for name in ("n", "layers")},
    }


def told(check: Mapping[str, Any]) -> str:
    """A check's statistic, its estimate, its 95% interval if it has one, a threshold of ours, and whether it counts."""
    bounded = check["method"] != EXACT and not math.isnan(check["low"])
    limits = f" [{check['low']:.4g}, {check['high']:.4g}]" if bounded else ""
    ours = f" ({check['word']}: our threshold {check['threshold']:g})" if check["word"] else ""
    beside = "" if check["counts"] else f" (beside the claim: {check['verdict']})"
    return f"{check['statistic']} = {check['estimate']:.4g}{limits}{ours}{beside}"


def combined(parts: Sequence[str]) -> str:
    """Verdict of a claim from those of its checks: the worst news wins."""
    return next(verdict for verdict in WORST_FIRST if verdict in parts)


def combined_sign(signs: Sequence[str]) -> str:
    """``+`` where every estimate lies on the claimed side, ``-`` where one does not, else empty."""
    return "-" if "-" in signs else "+" if set(signs) == {"+"} else ""


def standing(compared: pl.DataFrame) -> dict[str, str]:
    """How each claim fares under the readings that were tried (`sensitivity.compare`), in words.

    "holds under 13 of 18 readings (n = 8); does not hold under B=event, C=restricted". Where the articles leave the
    default undecided, the sides of the estimates are compared instead; readings that leave a claim unmeasured are not
    counted.
    """
    return {rows["claim"][0]: _standing(rows) for rows in compared.partition_by("claim", maintain_order=True)}


def _standing(rows: pl.DataFrame) -> str:
    default = rows.row(by_predicate=pl.col("reading") == "", named=True)
    decided = default["verdict"] in (HOLDS, FAILS, SAME)
    told = pl.col("verdict") if decided else pl.col("sign").replace_strict(SIDES, default=None, return_dtype=pl.String)
    known = rows.filter(pl.col("verdict") != UNMEASURED).select("reading", told=told).drop_nulls()
    usual, others = (known.filter((pl.col("reading") == "") == own) for own in (True, False))
    if usual.is_empty() or others.is_empty():
        return ""
    same = pl.col("told") == usual["told"][0]
    parts = [f"{usual['told'][0]} under {len(others.filter(same))} of {len(others)} readings (n = {default['n']})"]
    for (other,), changed in others.filter(~same).group_by("told", maintain_order=True):
        parts.append(f"{other} under {', '.join(map(short, changed['reading']))}")
    return "; ".join(parts)


def short(label: str) -> str:
    """A reading's label with letters for names: ``B=event`` for ``score_queries=event``."""
    for name, letter in LETTERS.items():
        label = label.replace(f"{name}=", f"{letter}=")
    return label


def _merged(numbers: Sequence[str]) -> str:
    """Every number once, in order of first mention."""
    return ", ".join(dict.fromkeys(part for one in numbers for part in one.split(", ")))
