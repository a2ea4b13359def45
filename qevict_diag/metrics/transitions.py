"""Lagged transitions (definitions.md, section 7; paper I.4) and promotions.

    P01(Δ) = Pr[X[r+Δ,w] = 1 | X[r,w] = 0],   P10(Δ) = Pr[X[r+Δ,w] = 0 | X[r,w] = 1]    over pairs where w exists at r

Counts travel with rates, because P10/P01 ≈ (W - K_f)/K_f is capacity arithmetic, not dynamics.
"""

from collections.abc import Iterator, Sequence

import polars as pl
import torch
from torch import Tensor

from qevict_diag.cache.tier import Tier
from qevict_diag.frames import rows, rows_of_cases
from qevict_diag.metrics.arithmetic import count, ratio
from qevict_diag.metrics.metric import Metric, axes, timed
from qevict_diag.metrics.selection import universe
from qevict_diag.replay.result import Replay


def transition_counts(
    selected: Tensor, exists: Tensor, lag: int, *, first_passage: bool = False
) -> dict[str, tuple[Tensor, Tensor]]:
    """``{"01": (moved, pairs), "10": (moved, pairs)}``, each [..]; zeros when ``lag`` reaches the number of events.

    ``selected`` and ``exists`` are bool [.., event, window]. A pair counts when the window exists at its first event; a
    window that exists no more at the second (evicted, under reading D: accessible) is not selected there.
    ``first_passage`` (reading N) asks whether the other state was seen at any of the next ``lag`` events.
    """
    exists = exists.expand_as(selected)
    selected = selected & exists
    now, pairs = selected[..., :-lag, :], exists[..., :-lag, :]
    return {
        "01": _counts(_reached(selected, lag, True, first_passage), pairs & ~now),
        "10": _counts(_reached(selected, lag, False, first_passage), pairs & now),
    }


def promotion_counts(tier: Tensor) -> Tensor:
    """Windows in Q at event r and in F at r + 1: [.., event - 1]. ``tier`` is [.., event, window]."""
    return count((tier[..., :-1, :] == Tier.QUANTIZED) & (tier[..., 1:, :] == Tier.FULL))


def _reached(selected: Tensor, lag: int, state: bool, first_passage: bool) -> Tensor:
    reached = selected[..., lag:, :] == state
    for step in range(1, lag) if first_passage else ():
        stop = step + reached.shape[-2]
        reached = reached | (selected[..., step:stop, :] == state)
    return reached


def _counts(moved: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
    return count(moved & pairs, 2), count(pairs, 2)


LAGS = (1, 2, 4, 8)


def transition_rows(run: Replay) -> Iterator[pl.DataFrame]:
    """P01 and P10 of the policy's full tier per layer and lag, with their counts."""
    exists, selected = universe(run), run.tier == Tier.FULL
    first_passage = run.plan.settings.readings.lag == "first_passage"
    found = {
        (group, lag): torch.stack(counts)
        for lag in LAGS
        for group, counts in transition_counts(selected, exists, lag, first_passage=first_passage).items()
    }
    moved, pairs = torch.stack(list(found.values()), dim=1).double()  # [case, layer, unit]
    groups, lags = zip(*found, strict=True)
    cases: dict[str, Sequence[str | int]] = {"group": groups, "lag": lags}
    yield rows_of_cases(cases, axes(run), value=ratio(moved, pairs), numerator=moved, denominator=pairs)


def promotion_rows(run: Replay) -> Iterator[pl.DataFrame]:
    """Windows that moved from Q to F, per layer and event, beside the number in Q before."""
    moved = promotion_counts(run.tier).double()
    before = count(run.tier[:, :, :-1] == Tier.QUANTIZED).double()
    where = axes(run, event=range(1, run.grid.events))
    yield timed(run, rows(where, value=moved, numerator=moved, denominator=before))


TRANSITIONS = Metric(
    "transitions",
    "lagged transition rates out of and into the full tier",
    *("share", "descriptive", "P01 (%)"),
    rows=transition_rows,
    how="pooled",
    group="01",
    lag=1,
    readings=("universe", "lag"),
)
PROMOTIONS = Metric(
    "promotions",
    "windows moved from the quantized to the full tier",
    *("windows", "descriptive", "promotions per event"),
    rows=promotion_rows,
)
