"""Future Missed Mass, and what chance would miss (definitions.md, sections 7 and 15; paper I.2).

    FMM_r = Σ_{t in the horizon of r} Σ_{i in E_r} A[t,i]  /  Σ_{t in the horizon of r} Σ_{S <= i < n_r} A[t,i]

    E[FMM_r] = Σ_w m_r(w) (1 - K/W_r)      of a uniform random set of the same K of the W_r historical windows

Both sums run over the horizon of event r; they are folded block by block.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import polars as pl
import torch
from torch import Tensor

from qevict_diag.cache.tier import Tier
from qevict_diag.frames import rows
from qevict_diag.metrics.arithmetic import count, ratio
from qevict_diag.metrics.metric import Metric, timed
from qevict_diag.replay.blocks import LayerBlock
from qevict_diag.replay.fold import Fold
from qevict_diag.replay.horizon import attended, band, by_event, events_seeing, historical_mass, in_horizon
from qevict_diag.replay.plan import Plan
from qevict_diag.replay.result import Replay
from qevict_diag.replay.stream import QueryBlock


@dataclass(frozen=True, eq=False)
class Missed:
    """Sums over the horizon of each event, float64 [layer, head, event]."""

    missed: Tensor  # mass on inaccessible windows
    attended: Tensor  # FMM's denominator (reading H)
    historical: Tensor  # mass on all historical windows


@final
@dataclass(frozen=True)
class MissedMass(Fold):
    """Adds up what each event's horizon gives to evicted and to all historical windows."""

    def start(self, plan: Plan, block: LayerBlock) -> Missed:
        """Nothing yet."""
        shape = (len(block.layers), block.heads, plan.grid.events)
        return Missed(*(torch.zeros(shape, dtype=torch.float64, device=block.device) for _ in range(3)))

    def add(self, plan: Plan, state: Missed, masses: QueryBlock, tier: Tensor, ledger: Tensor) -> Missed:
        """Add the block's queries to the events in whose horizon they lie."""
        every, horizon = plan.grid.every, plan.settings.horizon
        events = events_seeing(masses.queries, every, horizon)
        within = band(masses.queries, events, every, horizon, tier.device)
        some = slice(events.start, events.stop)
        state.missed[..., some] += missed(masses.full[plan.cut], tier[:, :, some] == Tier.EVICTED, within)
        state.attended[..., some] += in_horizon(attended(plan, masses, events), within)
        state.historical[..., some] += in_horizon(historical_mass(plan, masses, events), within)
        return state

    def finish(self, plan: Plan, state: Missed) -> Missed:
        """The sums."""
        return state


MISSED = MissedMass()


def missed(mass: Tensor, inaccessible: Tensor, within: Tensor) -> Tensor:
    """Σ_{t in the horizon} Σ_{w inaccessible after r} mass: [layer, head, event].

    ``mass`` [layer, head, query, window], ``inaccessible`` [layer, unit, event, window], ``within`` [query, event].
    """
    return in_horizon(by_event(mass, inaccessible), within)


def fmm_rows(run: Replay) -> Iterator[pl.DataFrame]:
    """One row per layer, head and event with a full horizon; NaN where nothing historical exists or is attended."""
    yield missed_shares(run, run.kept(MISSED).missed)


def chance_rows(run: Replay) -> Iterator[pl.DataFrame]:
    """The same of a random set: the missed mass that a uniform choice of as many windows would have on average."""
    exists = run.historical.sum(-1)
    retained = count((run.tier == Tier.FULL) | (run.tier == Tier.QUANTIZED))  # [layer, unit, event]
    gone = 1 - retained.double() / exists.clamp_min(1)
    per_head = gone.repeat_interleave(len(run.heads) // gone.shape[1], dim=1)
    yield missed_shares(run, run.kept(MISSED).historical * per_head)


def missed_shares(run: Replay, part: Tensor) -> pl.DataFrame:
    """Part of FMM's denominator of every eligible event."""
    events = range(run.grid.eligible(run.plan.settings.horizon))
    existing = run.historical.any(-1)[: len(events)]
    part, total = part[..., : len(events)], run.kept(MISSED).attended[..., : len(events)]
    total = torch.where(existing, total, 0)
    axes = {"layer": run.layers, "head": run.heads, "event": events}
    return timed(run, rows(axes, value=ratio(part, total), numerator=part, denominator=total))


METRIC = Metric(
    "fmm",
    "Future Missed Mass: future FullKV attention on positions already inaccessible",
    *("share", "lower", "Future Missed Mass (%)"),
    rows=fmm_rows,
    folds=(MISSED,),
    readings=("fmm_denominator",),
)
CHANCE = Metric(
    "chance",
    "the FMM that a random choice of as many windows would have, in closed form",
    *("share", "descriptive", "FMM of chance (%)"),
    rows=chance_rows,
    folds=(MISSED,),
    readings=("fmm_denominator",),
)
