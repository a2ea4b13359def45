"""Each metric of a replay as tidy rows: the thin labelled layer over the pure functions of `qevict_diag.metrics`."""

from collections.abc import Callable, Iterator, Sequence

import polars as pl
import torch
from torch import Tensor

from qevict_diag.cache.routing import best
from qevict_diag.cache.tier import Tier
from qevict_diag.errors import MetricError
from qevict_diag.frames import rows
from qevict_diag.metrics.arithmetic import count
from qevict_diag.metrics.churn import churn_counts, jaccard
from qevict_diag.metrics.fmm import ratio
from qevict_diag.metrics.lir import Runs, inactive_runs
from qevict_diag.metrics.mass_share import tier_mass
from qevict_diag.metrics.transitions import promotion_counts, transition_counts
from qevict_diag.replay.loop import Replay

INACTIVE = (1, 2, 3, 4, 8)  # m of Global LIR that is always reported (paper I.4)
LAGS = (1, 2, 4, 8)


def fmm_rows(run: Replay, min_inactive: int) -> Iterator[pl.DataFrame]:
    """One row per layer, head and event with a full horizon; NaN where nothing historical exists or is attended."""
    seen = run.seen
    if seen.missed is None or seen.attended is None:
        raise MetricError("this replay did not keep missed mass; replay with Save(missed=True)")
    events = range(run.grid.eligible(run.plan.settings.horizon))
    existing = run.historical.any(-1)[: len(events)]
    missed, attended = seen.missed[..., : len(events)], seen.attended[..., : len(events)]
    attended = torch.where(existing, attended, 0)
    axes = {"layer": run.layers, "head": run.heads, "event": events}
    yield _timed(run, rows(axes, value=ratio(missed, attended), numerator=missed, denominator=attended))


def churn_rows(run: Replay, min_inactive: int) -> Iterator[pl.DataFrame]:
    """One row per layer and pair of consecutive events, at the later event; counts in tokens."""
    full_only = run.plan.settings.readings.churn_set == "full"
    selected = run.tier == Tier.FULL if full_only else run.retained
    difference, union = (count.double() * run.grid.window for count in churn_counts(selected))
    value = jaccard(difference, union)
    axes = _axes(run, event=range(1, run.grid.events))
    yield _timed(run, rows(axes, value=value, numerator=difference, denominator=union))


def mass_share_rows(run: Replay, min_inactive: int) -> Iterator[pl.DataFrame]:
    """One row per layer, event and tier."""
    seen, reading = run.seen, run.plan.settings.readings.share_denominator
    if seen.reference is None or seen.interval is None or seen.sinks is None:
        raise MetricError("this replay did not keep reference scores; replay with Save(reference=True)")
    instantaneous = reading == "instantaneous"
    events = run.grid.full_intervals() if instantaneous else run.grid.events
    mass = (seen.interval if instantaneous else seen.reference)[:, :, :events].double()
    total = mass.sum(-1) + (seen.sinks if reading == "sinks" else 0)
    for tier, part in tier_mass(mass, run.measured[:, :, :events]).items():
        frame = rows(_axes(run, event=range(events)), value=ratio(part, total), numerator=part, denominator=total)
        yield _timed(run, frame.with_columns(group=pl.lit(tier.word)))


def qsa_rows(run: Replay, min_inactive: int) -> Iterator[pl.DataFrame]:
    """One row per layer, head and full interval; none for a policy without a quantized tier."""
    found = run.seen.agreement
    if found is not None:
        axes = {"layer": run.layers, "head": run.heads, "event": range(found.dot.shape[2])}
        yield _timed(run, rows(axes, value=found.qsa(), numerator=found.dot, denominator=found.norms))


def mass_ratio_rows(run: Replay, min_inactive: int) -> Iterator[pl.DataFrame]:
    """One row per layer, head and full interval; none for a policy without a quantized tier."""
    found = run.seen.agreement
    if found is not None:
        axes = {"layer": run.layers, "head": run.heads, "event": range(found.dot.shape[2])}
        yield _timed(run, rows(axes, value=found.mass_ratio(), numerator=found.quantized, denominator=found.full))


def lir_rows(run: Replay, min_inactive: int) -> Iterator[pl.DataFrame]:
    """Global LIR per layer and m, under both readings of episodes, with every time to return.

    For ``min_inactive`` also all episodes by the time they were watched, for a survival curve.
    """
    exists, readings = universe(run), run.plan.settings.readings
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


def transition_rows(run: Replay, min_inactive: int) -> Iterator[pl.DataFrame]:
    """P01 and P10 of the policy's full tier per layer and lag, with their counts."""
    exists, selected = universe(run), run.tier == Tier.FULL
    first_passage = run.plan.settings.readings.lag == "first_passage"
    for lag in LAGS:
        for group, counts in transition_counts(selected, exists, lag, first_passage=first_passage).items():
            moved, pairs = (count.double() for count in counts)
            frame = rows(_axes(run), value=ratio(moved, pairs), numerator=moved, denominator=pairs)
            yield frame.with_columns(group=pl.lit(group), lag=pl.lit(lag))


def promotion_rows(run: Replay, min_inactive: int) -> Iterator[pl.DataFrame]:
    """Windows that moved from Q to F, per layer and event, beside the number in Q before."""
    moved = promotion_counts(run.tier).double()
    before = count(run.tier[:, :, :-1] == Tier.QUANTIZED).double()
    axes = _axes(run, event=range(1, run.grid.events))
    yield _timed(run, rows(axes, value=moved, numerator=moved, denominator=before))


ROWS: dict[str, Callable[[Replay, int], Iterator[pl.DataFrame]]] = {
    "fmm": fmm_rows,
    "churn": churn_rows,
    "mass_share": mass_share_rows,
    "qsa": qsa_rows,
    "mass_ratio": mass_ratio_rows,
    "lir": lir_rows,
    "transitions": transition_rows,
    "promotions": promotion_rows,
}


def universe(run: Replay) -> Tensor:
    """Where X[r, w] is defined (reading D), bool [layer, unit, event, window]; nowhere without a full tier."""
    exists = run.historical.expand(run.tier.shape)
    if run.capacity.full == 0:
        return torch.zeros_like(exists)
    return exists & (run.tier != Tier.EVICTED) if run.plan.settings.readings.universe == "accessible" else exists


def oracle_selection(run: Replay, exists: Tensor) -> Tensor:
    """The paper's oracle: the K_f best windows of the universe by cumulative FullKV attention C_r."""
    if run.seen.reference is None:
        raise MetricError("this replay did not keep reference scores; replay with Save(reference=True)")
    return best(run.seen.reference, exists, run.capacity.full)


def _axes(run: Replay, **more: Sequence[int]) -> dict[str, Sequence[int | None]]:
    """Axes of a tensor [layer, unit, ..]: units are named in ``head``, which is null when the layer is one unit."""
    return {"layer": run.layers, "head": run.unit_numbers, **more}


def _timed(run: Replay, frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(step=pl.col("event") * run.grid.window)


def _rates(run: Replay, found: Runs) -> pl.DataFrame:
    shape = run.tier.shape[:2]
    rescued, eligible = (number.reshape(shape).double() for number in found.counts(shape.numel()))
    return rows(_axes(run), value=ratio(rescued, eligible), numerator=rescued, denominator=eligible)


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
