"""Missed mass by when it was evicted: after the prompt, or how many decode queries before the event.

    share_a(r) = Σ_{t in the horizon of r} Σ_{w in E_r, evicted at event e of age class a} A[t,w]  /  FMM's denominator

so that the classes add up to FMM. A window's eviction is the event since which it has been evicted without a break.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import final

import polars as pl
import torch
from torch import Tensor

from qevict_diag.cache.tier import Tier
from qevict_diag.metrics.fmm import MISSED, missed_shares
from qevict_diag.metrics.metric import Metric
from qevict_diag.replay.blocks import LayerBlock
from qevict_diag.replay.fold import Fold
from qevict_diag.replay.horizon import band, by_event, events_seeing, in_horizon
from qevict_diag.replay.plan import Plan
from qevict_diag.replay.result import Replay
from qevict_diag.replay.stream import QueryBlock

PROMPT = "after the prompt"
AGES = (0, 32, 128)  # decode queries since the eviction at which a class begins
CLASSES = (PROMPT, *(f"{first}-{last - 1}" for first, last in pairwise(AGES)), f"{AGES[-1]}+")


@final
@dataclass(frozen=True)
class MissedByAge(Fold):
    """Adds up what each event's horizon gives to windows of each age class, [layer, class, head, event]."""

    def start(self, plan: Plan, block: LayerBlock) -> Tensor:
        """Nothing yet."""
        shape = (len(block.layers), len(CLASSES), block.heads, plan.grid.events)
        return torch.zeros(shape, dtype=torch.float64, device=block.device)

    def add(self, plan: Plan, state: Tensor, masses: QueryBlock, tier: Tensor, ledger: Tensor) -> Tensor:
        """Add the block's queries to the events in whose horizon they lie."""
        every, horizon = plan.grid.every, plan.settings.horizon
        events = events_seeing(masses.queries, every, horizon)
        within, some = band(masses.queries, events, every, horizon, tier.device), slice(events.start, events.stop)
        kind = age_class(tier == Tier.EVICTED, every)[:, :, some]
        for index in range(len(CLASSES)):
            mass = by_event(masses.full[plan.cut], kind == index)
            state[:, index, :, some] += in_horizon(mass, within)
        return state

    def finish(self, plan: Plan, state: Tensor) -> Tensor:
        """The sums."""
        return state


MISSED_BY_AGE = MissedByAge()


def age_class(evicted: Tensor, every: int) -> Tensor:
    """The age class of each evicted window, -1 for any other: int64 [layer, unit, event, window]."""
    event = torch.arange(evicted.shape[2], device=evicted.device)[:, None]
    kept = torch.where(evicted, -1, event).cummax(2).values  # the last event at which it was not evicted, -1 for none
    age = (event - kept - 1) * every
    edges = torch.tensor(AGES, device=evicted.device)
    kind = torch.where(kept < 0, 0, torch.bucketize(age, edges, right=True))
    return torch.where(evicted, kind, -1)


def age_rows(run: Replay) -> Iterator[pl.DataFrame]:
    """One row per layer, head, event with a full horizon, and class."""
    for index, name in enumerate(CLASSES):
        yield missed_shares(run, run.kept(MISSED_BY_AGE)[:, index]).with_columns(group=pl.lit(name))


METRIC = Metric(
    "missed_age",
    "Future Missed Mass by when it was evicted: after the prompt, or decode queries ago",
    *("share", "descriptive", "missed mass evicted after the prompt (%)"),
    rows=age_rows,
    folds=(MISSED, MISSED_BY_AGE),
    group=PROMPT,
    readings=("fmm_denominator",),
    by_name=True,
)
