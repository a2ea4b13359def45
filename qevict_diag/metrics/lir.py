"""Global LIR (definitions.md, section 7; paper I.4): how often a window returns after sustained inactivity.

``selected`` and ``exists`` are bool [.., event, window]. An inactive episode is a maximal run of events at which a
window exists and is not selected. It is eligible once it has lasted ``m`` events; it is rescued if the window is
selected at any later event. Runs still open at the end stay in the denominator, runs that end before ``m`` are in
neither count.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl
import torch
from torch import Tensor
from torch.nn.functional import pad

from qevict_diag.cache.tier import Tier
from qevict_diag.frames import of_each, rows_of_cases
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
        return self._where(keep)

    def of_rescued(self) -> "Runs":
        """Those that were rescued."""
        return self._where(self.rescued)

    def counts(self, lanes: int) -> tuple[Tensor, Tensor]:
        """Rescued and all runs of each lane, int64 [lane]."""
        return torch.bincount(self.lane[self.rescued], minlength=lanes), torch.bincount(self.lane, minlength=lanes)

    def waited(self, min_inactive: int) -> Tensor:
        """Events from eligibility to the return, at least 1, or to the last event of a run still open; int64 [run]."""
        return self.length - min_inactive + self.rescued.long()

    def _where(self, keep: Tensor) -> "Runs":
        return Runs(self.lane[keep], self.length[keep], self.rescued[keep], self.exited[keep])


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
    lags = sorted({*INACTIVE, settings.min_inactive})
    for group, selected in {"oracle": oracle_selection(run, exists), "policy": run.tier == Tier.FULL}.items():
        runs = inactive_runs(selected, exists)
        cases = [
            _Case(reading, m, runs.eligible(m, after_exit=reading == "after_exit")) for reading in READ for m in lags
        ]
        watched = [case for case in cases if case.lag == settings.min_inactive]
        parts = {"lir": _rates(run, cases), "return_time": _returns(run, cases), "episodes": _watched(run, watched)}
        for metric, frame in parts.items():
            yield frame.with_columns(metric=pl.lit(metric), group=pl.lit(group))


READ = ("literal", "after_exit")  # the readings of episodes, both of which are always reported


@dataclass(frozen=True, eq=False)
class _Case:
    """The runs that count under one reading of episodes and one m."""

    episodes: str
    lag: int
    runs: Runs


def _told(run: Replay, cases: Sequence[_Case]) -> dict[str, list[str | int]]:
    """What the rows of each case say of it."""
    readings = run.plan.settings.readings
    labels: list[str | int] = [readings.with_(lir_episodes=case.episodes).label() for case in cases]
    return {"reading": labels, "lag": [case.lag for case in cases]}


def _rates(run: Replay, cases: Sequence[_Case]) -> pl.DataFrame:
    shape = run.tier.shape[:2]
    counts = [torch.stack(case.runs.counts(shape.numel())).view(2, *shape) for case in cases]
    rescued, eligible = torch.stack(counts, dim=1).double()  # [case, layer, unit]
    numbers = {"value": ratio(rescued, eligible), "numerator": rescued, "denominator": eligible}
    return rows_of_cases(_told(run, cases), axes(run), **numbers)


def _returns(run: Replay, cases: Sequence[_Case]) -> pl.DataFrame:
    """Every time to return: that of each rescued run."""
    found = _per_run(run, [(number, case.lag, case.runs.of_rescued()) for number, case in enumerate(cases)])
    return found.select("layer", "value", **of_each(_told(run, cases), found["case"]))


def _watched(run: Replay, cases: Sequence[_Case]) -> pl.DataFrame:
    """Rescued and all episodes of each layer by how many events they were watched."""
    found = _per_run(run, [(number, case.lag, case.runs) for number, case in enumerate(cases)])
    keys = ("case", "layer", "value")
    counted = found.group_by(keys).agg(numerator=pl.col("rescued").sum(), denominator=pl.len()).sort(keys)
    return counted.with_columns(**of_each(_told(run, cases), counted["case"])).drop("case")


def _per_run(run: Replay, cases: Sequence[tuple[int, int, Runs]]) -> pl.DataFrame:
    """A row for each run: its case, its layer, how long it was watched, and whether it was rescued."""
    number = torch.cat([torch.full_like(runs.lane, case) for case, _, runs in cases]).cpu()
    lane, waited, rescued = (
        torch.cat(parts).cpu()
        for parts in zip(*((runs.lane, runs.waited(m).double(), runs.rescued) for _, m, runs in cases), strict=True)
    )
    layers = torch.tensor(run.layers)[lane // run.plan.units]
    columns = {"case": number, "layer": layers, "value": waited, "rescued": rescued}
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
