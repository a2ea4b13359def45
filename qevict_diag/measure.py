"""From traces to tidy measurements: replay, then turn each metric's tensors into rows (interface.md).

Rows carry numerator and denominator beside every value, so that any later aggregation is the reader's own.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import polars as pl
import torch
from torch import Tensor

from qevict_diag.errors import InputError, MetricError
from qevict_diag.frames import BYTES, DECISIONS, MEASUREMENTS, conform, rows
from qevict_diag.layer_trace import Recorded
from qevict_diag.metrics import METRICS
from qevict_diag.metrics.churn import churn_counts
from qevict_diag.metrics.counting import count
from qevict_diag.metrics.fmm import ratio
from qevict_diag.metrics.lir import inactive_runs
from qevict_diag.metrics.mass_share import tier_mass
from qevict_diag.metrics.transitions import promotion_counts, transition_counts
from qevict_diag.observe import Save
from qevict_diag.plan import Settings
from qevict_diag.policies import Policy, policy
from qevict_diag.replay import Replay, replay, replay_blocks
from qevict_diag.tiers import Tier, best

INACTIVE = (1, 2, 3, 4, 8)  # m of Global LIR that is always reported (paper I.4)
LAGS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Measurements:
    """``frame`` holds the tidy measurements, ``bytes`` what each policy's cache uses of its allowance."""

    frame: pl.DataFrame
    bytes: pl.DataFrame


def measure(
    traces: Sequence[Recorded],
    policies: Sequence[str | Policy] = ("R1", "R2", "R3", "R4"),
    metrics: Sequence[str] = ("all",),
    settings: Settings | None = None,
    *,
    min_inactive: int = 3,
    progress: Callable[[int], None] | None = None,
) -> Measurements:
    """Replay every policy on every trace and measure it.

    ``metrics`` are names of `METRICS` or ``all``. ``progress`` is called with the number of layers just finished.
    Raises InputError for unknown names, and what `replay` raises.
    """
    settings = settings or Settings()
    names, chosen = metric_names(metrics), [p if isinstance(p, Policy) else policy(p) for p in policies]
    if min_inactive < 1:
        raise InputError(f"min-inactive {min_inactive}: must be at least 1 event")
    measured, used = [], []
    for trace in traces:
        for block in replay_blocks(trace, chosen, settings, needed(names)):
            for run in block:
                measured.append(measure_replay(run, names, min_inactive, trace.name, trace.model_id))
                used.append(byte_use(run, trace.name))
            if progress is not None:
                progress(len(block[0].layers))
    return Measurements(pl.concat(measured), _peak(pl.concat(used)))


def one_model(traces: Sequence[Recorded]) -> None:
    """Refuse traces of different models: their numbers are not samples of one thing (InputError)."""
    models = sorted({trace.model_id for trace in traces})
    if len(models) > 1:
        raise InputError(
            f"traces of {len(models)} models ({', '.join(models)}); analyze one at a time, or --mix-models"
        )


def metric_names(metrics: Sequence[str]) -> tuple[str, ...]:
    """The names asked for, in the table's order; InputError for one that is not in it."""
    unknown = set(metrics) - {*METRICS, "all"}
    if unknown or not metrics:
        raise InputError(f"metric {', '.join(sorted(unknown)) or '(none)'}: there are {', '.join(METRICS)} and all")
    return tuple(METRICS) if "all" in metrics else tuple(name for name in METRICS if name in metrics)


def needed(metrics: Iterable[str]) -> Save:
    """What a replay has to keep for these metrics."""
    names = set(metrics)
    return Save(
        missed="fmm" in names,
        reference=bool(names & {"mass_share", "lir"}),
        agreement=bool(names & {"qsa", "mass_ratio"}),
    )


def measure_replay(run: Replay, metrics: Iterable[str], min_inactive: int, trace: str, model: str) -> pl.DataFrame:
    """Measurements of one replay, all rows of the given metrics."""
    settings = run.plan.settings
    constants = {"trace": trace, "model": model, "policy": run.policy.name, "budget": str(settings.budget.ratio)}
    label = settings.readings.label()
    frames = []
    for name in metrics:
        for frame in ROWS[name](run, min_inactive):
            own = {"metric": name, "reading": label}
            frames.append(conform(frame, MEASUREMENTS, **constants, **{k: v for k, v in own.items() if k not in frame}))
    return pl.concat(frames) if frames else pl.DataFrame(schema=MEASUREMENTS)


def fmm_rows(run: Replay, min_inactive: int) -> Iterator[pl.DataFrame]:
    """One row per layer, head and event with a full horizon; NaN where nothing historical exists or is attended."""
    seen = run.seen
    if seen.missed is None or seen.attended is None:
        raise MetricError("this replay did not keep missed mass; replay with Save(missed=True)")
    events = range(run.grid.eligible(run.plan.settings.horizon))
    existing = run.historical.any(-1)[: len(events)]
    missed, attended = seen.missed[..., : len(events)], seen.attended[..., : len(events)]
    attended = torch.where(existing, attended, 0)
    axes = {"layer": run.layers, "head": range(missed.shape[1]), "event": events}
    yield _timed(run, rows(axes, value=ratio(missed, attended), numerator=missed, denominator=attended))


def churn_rows(run: Replay, min_inactive: int) -> Iterator[pl.DataFrame]:
    """One row per layer and pair of consecutive events, at the later event; counts in tokens."""
    full_only = run.plan.settings.readings.churn_set == "full"
    selected = run.tier == Tier.FULL if full_only else run.retained
    difference, union = (count.double() * run.grid.window for count in churn_counts(selected))
    value = ratio(difference, union).nan_to_num(0.0)
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
        axes = {"layer": run.layers, "head": range(found.dot.shape[1]), "event": range(found.dot.shape[2])}
        yield _timed(run, rows(axes, value=found.qsa(), numerator=found.dot, denominator=found.norms))


def mass_ratio_rows(run: Replay, min_inactive: int) -> Iterator[pl.DataFrame]:
    """One row per layer, head and full interval; none for a policy without a quantized tier."""
    found = run.seen.agreement
    if found is not None:
        axes = {"layer": run.layers, "head": range(found.dot.shape[1]), "event": range(found.dot.shape[2])}
        yield _timed(run, rows(axes, value=found.mass_ratio(), numerator=found.quantized, denominator=found.full))


def lir_rows(run: Replay, min_inactive: int) -> Iterator[pl.DataFrame]:
    """Global LIR of oracle and policy per layer and m, under both readings of episodes, and every time to return."""
    exists, readings = universe(run), run.plan.settings.readings
    for group, selected in {"oracle": oracle_selection(run, exists), "policy": run.tier == Tier.FULL}.items():
        runs = inactive_runs(selected, exists)
        for reading in ("literal", "after_exit"):
            label = pl.lit(readings.with_(lir_episodes=reading).label()).alias("reading")
            for m in sorted({*INACTIVE, min_inactive}):
                found = runs.eligible(m, after_exit=reading == "after_exit")
                shape = selected.shape[:2]
                rescued, eligible = (count.reshape(shape).double() for count in found.counts(shape.numel()))
                frame = rows(_axes(run), value=ratio(rescued, eligible), numerator=rescued, denominator=eligible)
                yield frame.with_columns(label, group=pl.lit(group), lag=pl.lit(m))
                returned = _return_times(run, found.lane[found.rescued], found.waited(m)[found.rescued])
                yield returned.with_columns(label, group=pl.lit(group), lag=pl.lit(m), metric=pl.lit("return_time"))


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


def all_decisions(
    traces: Sequence[Recorded],
    policies: Sequence[Policy],
    settings: Settings,
    *,
    progress: Callable[[int], None] | None = None,
) -> pl.DataFrame:
    """Tidy decisions of every policy on every trace."""
    frames = []
    for trace in traces:
        for run in replay(trace, policies, settings, save=Save(False, False, False), progress=progress):
            frames.append(decisions(run, trace.name))
    return pl.concat(frames)


def byte_use(run: Replay, trace: str) -> pl.DataFrame:
    """Peak bytes of a replay's tiers against its allowance, per layer and key-value head.

    ``persistent_ratio`` adds the sinks and the recent region and divides by FullKV's bytes at the final length;
    ``persistent_ratio_with_ledger`` also counts the codes the ledger keeps for windows now in the full tier (reading
    M).
    """
    room, settings = run.capacity, run.plan.settings
    token_bytes = room.full_window_bytes // room.window
    protected = (settings.budget.sinks + settings.budget.recent) * token_bytes
    full, quantized = (count(run.tier == z) for z in (Tier.FULL, Tier.QUANTIZED))
    used = full * room.full_window_bytes + quantized * room.low_window_bytes
    kept = count(run.ledger & (run.tier == Tier.FULL)) * room.low_window_bytes
    everything = run.grid.length * token_bytes
    frame = pl.DataFrame(
        {
            "window": room.window,
            "full_windows": room.full,
            "quantized_windows": room.quantized,
            "history_bytes": room.history_bytes,
            "used_bytes": int(used.max()),
            "used_share": int(used.max()) / room.history_bytes,
            "persistent_ratio": (protected + int(used.max())) / everything,
            "persistent_ratio_with_ledger": (protected + int((used + kept).max())) / everything,
        }
    )
    return conform(frame, BYTES, trace=trace, policy=run.policy.name, budget=str(settings.budget.ratio))


def decisions(run: Replay, trace: str) -> pl.DataFrame:
    """Tier of every complete window at every event, one row each; a column ``unit`` where heads have own sets."""
    axes = {
        "layer": run.layers,
        "unit": range(run.plan.units),
        "event": range(run.grid.events),
        "window": range(run.grid.count),
    }
    complete = run.grid.complete_mask().to(run.tier.device)
    frame = rows(axes, tier=run.tier, complete=complete).filter(pl.col("complete") == 1)
    words = {float(tier): tier.word for tier in Tier}
    named = frame.with_columns(pl.col("tier").replace_strict(words, return_dtype=pl.String))
    schema = DECISIONS | ({"unit": pl.Int32()} if run.plan.units > 1 else {})
    return conform(named, schema, trace=trace, policy=run.policy.name)


def _axes(run: Replay, **more: Sequence[int]) -> dict[str, Sequence[int | None]]:
    """Axes of a tensor [layer, unit, ..]: units are numbered in ``head``, which is null when the layer is one unit."""
    units = range(run.plan.units) if run.plan.units > 1 else (None,)
    return {"layer": run.layers, "head": units, **more}


def _timed(run: Replay, frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(step=pl.col("event") * run.grid.window)


def _return_times(run: Replay, lane: Tensor, waited: Tensor) -> pl.DataFrame:
    layers = torch.tensor(run.layers)[lane.cpu() // run.plan.units]
    return pl.DataFrame({"layer": layers.numpy(), "value": waited.double().cpu().numpy()})


def _peak(used: pl.DataFrame) -> pl.DataFrame:
    """The largest use over the blocks of layers of each trace and policy."""
    keys = [
        f for f in BYTES if f not in ("used_bytes", "used_share", "persistent_ratio", "persistent_ratio_with_ledger")
    ]
    return used.group_by(keys, maintain_order=True).max().select(list(BYTES))
