"""The numbers that the paper prints (Llama-3.1-8B-Instruct, two articles): a comparison, never an expected value."""

import json
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any

import polars as pl

from qevict_diag.errors import InputError

MODEL = "Llama-3.1-8B"


@cache
def values() -> dict[str, Any]:
    """Everything in `paper_values.json`, with the place of each number in the paper."""
    text = resources.files("qevict_diag").joinpath("data", "paper_values.json").read_text(encoding="utf-8")
    values: dict[str, Any] = json.loads(text)
    return values


def value(*path: str) -> float | None:
    """Look one number up, ``value("lir", "policy_R3")``; None where the paper states none."""
    found: Any = values()
    for name in path:
        if not isinstance(found, dict) or name not in found:
            return None
        found = found[name]
    if isinstance(found, dict):
        raise InputError(f"published value {'/'.join(path)} is a group of {', '.join(found)}; name one of them")
    return float(found)


def attach(frame: pl.DataFrame, name: str, by: list[str], look: Callable[..., float | None]) -> pl.DataFrame:
    """Add column ``name``: a published number looked up from the columns ``by``; null where the paper states none."""
    found = [look(*row) for row in frame.select(by).rows()]
    return frame.with_columns(pl.Series(name, found, dtype=pl.Float64))


def lir(policy: str, group: str, lag: int) -> float | None:
    """Global LIR of the ``oracle`` or the ``policy`` selection at m = 3 (Table 16)."""
    return value("lir", f"{group}_{policy}") if lag == values()["setup"]["min_inactive"] else None


def return_time(policy: str, group: str, lag: int) -> float | None:
    """Median time to return at m = 3, in routing events; the paper gives it for the policy's selection only."""
    known = group == "policy" and lag == values()["setup"]["min_inactive"]
    return value("lir", "median_return_events", policy) if known else None


def claims() -> list[dict[str, str]]:
    """Return the twelve claims, each with ``id``, ``text`` and ``place``."""
    return list(values()["claims"])
