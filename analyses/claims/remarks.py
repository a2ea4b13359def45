"""What has to be read beside a claim so that its verdict says no more than the numbers bear."""

import math
from collections.abc import Callable

import polars as pl

from qevict_diag.analyses import regret
from qevict_diag.analyses.estimates import rows_of
from qevict_diag.analyses.observation3 import after_exit
from qevict_diag.errors import MetricError
from qevict_diag.replay.settings import Settings

WINDOWED = ("R1", "R2", "R3", "R4")
FIRST_LAG = 1


def remarks(frame: pl.DataFrame, settings: Settings | None = None) -> dict[str, str]:
    """A remark for each claim that needs one, from what the claims' setting measured; what was not is left out."""
    lag = (settings or Settings()).min_inactive
    reading = rows_of(frame, "fmm")["reading"][0]
    own = frame.filter(pl.col("reading").is_in((reading, after_exit(reading))))
    asked: dict[str, Callable[[], str]] = {
        "I-a": lambda: _capacity(own),
        "II-c": lambda: _inflation(own),
        "III-a": lambda: _first_entries(own, reading, lag),
        "III-b": lambda: _populations(own),
    }
    return {claim: told for claim, tell in asked.items() if (told := _or_nothing(tell))}


def _or_nothing(tell: Callable[[], str]) -> str:
    try:
        return tell()
    except MetricError:
        return ""


def _capacity(frame: pl.DataFrame) -> str:
    told = "R2 has two tiers as R1 has. R3 and R4 differ from R1 in capacity as well: they keep more tokens."
    found = regret.regret(frame).filter(pl.col("policy").is_in(WINDOWED), pl.col("closed").is_not_null())
    closed = ", ".join(f"{row['policy']} {_share(row)}" for row in found.sort("policy").iter_rows(named=True))
    return (
        f"{told} Of the gap between chance and O2, each at its own capacity, they close: {closed}." if closed else told
    )


def _share(row: dict[str, float]) -> str:
    limits = "" if math.isnan(row["closed_low"]) else f" [{row['closed_low']:.0%}, {row['closed_high']:.0%}]"
    return f"{row['closed']:.0%}{limits}"


def _inflation(frame: pl.DataFrame) -> str:
    """Eq. (24)."""
    rows = rows_of(frame, "mass_ratio", policy="R3").filter(pl.col("value").is_not_nan())
    ratio = _total(rows, "numerator") / _total(rows, "denominator") if len(rows) else math.nan
    told = "Above 1 is arithmetic: logit errors of mean 0 and variance s² give R_Q = exp(s²/2)."
    return f"{told} {ratio:.3f} is s = {math.sqrt(2 * math.log(ratio)):.2f}." if ratio > 1 else told


def _first_entries(frame: pl.DataFrame, reading: str, lag: int) -> str:
    def rescued(label: str) -> int:
        return int(rows_of(frame, "lir", policy="R3", group="policy", lag=lag, reading=label)["numerator"].sum())

    every, returned = rescued(reading), rescued(after_exit(reading))
    if every == returned:
        return ""
    return f"Of R3's {every} rescued episodes {every - returned} are first entries: the window had never been in F."


def _populations(frame: pl.DataFrame) -> str:
    """Eq. (28)."""
    (entered, outside), (left, inside) = (_moves(frame, group) for group in ("01", "10"))
    told = "True by capacity: where F has a fixed size every exit makes room for one entry."
    if not (entered and inside):
        return told
    return (
        f"{told} P10 / P01 is {left / inside / (entered / outside):.1f} at lag {FIRST_LAG}; "
        f"windows outside F over windows in it are {outside / inside:.1f}."
    )


def _moves(frame: pl.DataFrame, group: str) -> tuple[float, float]:
    rows = rows_of(frame, "transitions", policy="R3", lag=FIRST_LAG, group=group)
    return _total(rows, "numerator"), _total(rows, "denominator")


def _total(rows: pl.DataFrame, column: str) -> float:
    return float(rows[column].to_numpy().sum())
