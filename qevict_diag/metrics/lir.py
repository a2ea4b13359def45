"""Global LIR (definitions.md, section 7; paper I.4): how often a window returns after sustained inactivity.

``selected`` and ``exists`` are bool [.., event, window]. An inactive episode is a maximal run of events at which a
window exists and is not selected. It is eligible once it has lasted ``m`` events; it is rescued if the window is
selected at any later event. Runs still open at the end stay in the denominator, runs that end before ``m`` are in
neither count.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl
import torch
from torch import Tensor
from torch.nn.functional import pad

from qevict_diag.cache.tier import Tier
from qevict_diag.frames import rows
from qevict_diag.metrics.arithmetic import ratio
from qevict_diag.metrics.metric import Metric, axes
from qevict_diag.metrics.reference import REFERENCE
from qevict_diag.metrics.selection import oracle_selection, universe
from qevict_diag.replay.result import Replay


@dataclass(frozen=True, eq=False)
class Runs:
    """Every inactive episode, one entry each, whatever its length."""

    lane: Tensor  # int64 [run] index over the flattened leading axes
    length: Tensor  # int64 [run] events
    rescued: Tensor  # bool [run] the window was selected right after it
    exited: Tensor  # bool [run] the window was selected right before it

    def eligible(self, min_inactive: int, *, after_exit: bool = False) -> "Runs":
        """Runs of at least ``min_inactive`` events; ``after_exit`` (reading F) drops those that follow no selection."""
        keep = self.length >= min_inactive
        if after_exit:
            keep = keep & self.exited
        return Runs(self.lane[keep], self.length[keep], self.rescued[keep], self.exited[keep])

    def counts(self, lanes: int) -> tuple[Tensor, Tensor]:
        """Rescued and all runs of each lane, int64 [lane]."""
        return torch.bincount(self.lane[self.rescued], minlength=lanes), torch.bincount(self.lane, minlength=lanes)

    def waited(self, min_inactive: int) -> Tensor:
        """Events from eligibility to the return, at least 1, or to the last event of a run still open; int64 [run]."""
        return self.length - min_inactive + self.rescued.long()


def inactive_runs(selected: Tensor, exists: Tensor) -> Runs:
    """Find the inactive episodes of ``selected`` [.., event, window]."""
    events, windows = selected.shape[-2:]
    chosen = selected.reshape(-1, events, windows).transpose(-1, -2)
    idle = exists.expand_as(selected).reshape(-1, events, windows).transpose(-1, -2) & ~chosen
    edges = pad(idle, (1, 1))
    lane, window, start = (edges[..., 1:] & ~edges[..., :-1]).nonzero(as_tuple=True)
    end = (edges[..., :-1] & ~edges[..., 1:]).nonzero(as_tuple=True)[2]  # exclusive; in the order of the starts
    active = pad(chosen, (1, 1))  # shifted by one: never selected before the first event or after the last
    return Runs(lane, end - start, active[lane, window, end + 1], active[lane, window, start])


INACTIVE = (1, 2, 3, 4, 8)  # m of Global LIR that is always reported (paper I.4)


def lir_rows(run: Replay) -> Iterator[pl.DataFrame]:
    """Global LIR per layer and m, under both readings of episodes, with every time to return.

    For ``min_inactive`` also all episodes by the time they were watched, for a survival curve.
    """
    exists, settings = universe(run), run.plan.settings
    min_inactive, readings = settings.min_inactive, settings.readings
    for group, selected in {"oracle": oracle_selection(run, exists), "policy": run.tier == Tier.FULL}.items():
        runs = inactive_runs(selected, exists)
        for reading in ("literal", "after_exit"):
            label = readings.with_(lir_episodes=reading).label()
            for m in sorted({*INACTIVE, min_inactive}):
                found = runs.eligible(m, after_exit=reading == "after_exit")
                parts = {"lir": _rates(run, found), "return_time": _return_times(run, found, m)}
                if m == min_inactive:
                    parts["episodes"] = _watched(run, found, m)
                for metric, frame in parts.items():
                    named = {"metric": metric, "reading": label, "group": group}
                    yield frame.with_columns(**{k: pl.lit(v) for k, v in named.items()}, lag=pl.lit(m))


def _rates(run: Replay, found: Runs) -> pl.DataFrame:
    shape = run.tier.shape[:2]
    rescued, eligible = (number.reshape(shape).double() for number in found.counts(shape.numel()))
    return rows(axes(run), value=ratio(rescued, eligible), numerator=rescued, denominator=eligible)


def _return_times(run: Replay, found: Runs, min_inactive: int) -> pl.DataFrame:
    return _per_run(run, found, min_inactive).filter("rescued").select("layer", "value")


def _watched(run: Replay, found: Runs, min_inactive: int) -> pl.DataFrame:
    """Rescued and all episodes of each layer by how many events they were watched."""
    counted = _per_run(run, found, min_inactive).group_by("layer", "value")
    return counted.agg(numerator=pl.col("rescued").sum(), denominator=pl.len()).sort("layer", "value")


def _per_run(run: Replay, found: Runs, min_inactive: int) -> pl.DataFrame:
    layers = torch.tensor(run.layers)[found.lane.cpu() // run.plan.units]
    columns = {"layer": layers, "value": found.waited(min_inactive).double().cpu(), "rescued": found.rescued.cpu()}
    return pl.DataFrame({name: column.numpy() for name, column in columns.items()})


METRIC = Metric(
    "lir",
    "Global LIR: share of inactive episodes that return to the full tier",
    *("share", "descriptive", "Global LIR of the policy (%)"),
    rows=lir_rows,
    how="pooled",
    folds=(REFERENCE,),
    group="policy",
    readings=("universe", "lir_episodes"),
)
