"""From traces to tidy measurements: replay, then turn each metric's folds into rows.

Rows carry numerator and denominator beside every value, so that any later aggregation is the reader's own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from qevict_diag.errors import InputError
from qevict_diag.frames import MEASUREMENTS, conform, over_layers
from qevict_diag.measure.bytes import byte_use
from qevict_diag.measure.labels import policy_labels, setting_labels
from qevict_diag.measure.models import model_names
from qevict_diag.metrics import METRICS, metric
from qevict_diag.metrics import metric_names as all_metrics
from qevict_diag.policies.catalogue import policy
from qevict_diag.policies.policy import Policy
from qevict_diag.progress import Progress, Steps, silent
from qevict_diag.replay.fold import Fold
from qevict_diag.replay.loop import Asked, replay_blocks
from qevict_diag.replay.result import Replay
from qevict_diag.replay.settings import Settings
from qevict_diag.trace.find import articles
from qevict_diag.trace.layer import Recorded

Group = tuple[Sequence[str | Policy], Sequence[str]]  # policies, and the metrics they are measured by


@dataclass(frozen=True)
class Measurements:
    """``frame`` holds the tidy measurements, ``bytes`` what each policy's cache uses of its allowance."""

    frame: pl.DataFrame
    bytes: pl.DataFrame


@dataclass(frozen=True)
class Wanted:
    """A policy, the settings it is replayed under, and the metrics it is measured by."""

    policy: Policy
    metrics: tuple[str, ...]
    settings: Settings

    @property
    def asked(self) -> Asked:
        """What the replay has to keep for it."""
        return Asked(self.policy, folds(self.metrics), self.settings)


def measure(
    traces: Sequence[Recorded],
    policies: Sequence[str | Policy] = ("R1", "R2", "R3", "R4"),
    metrics: Sequence[str] = ("all",),
    settings: Settings | None = None,
    *,
    also: Sequence[Group] = (),
    progress: Progress = silent,
) -> Measurements:
    """Replay every policy on every trace and measure it.

    ``metrics`` are names of `METRICS` or ``all``. ``also`` are further policies with metrics of their own (random arms
    and optima, say, whose Future Missed Mass is all that matters), replayed on the same stream. A step of ``progress``
    is a layer. Traces of one article are measured once. Raises InputError for unknown names, and what `replay` raises.
    """
    settings, traces = settings or Settings(), articles(traces)
    wanted = [
        Wanted(one if isinstance(one, Policy) else policy(one), metric_names(names), settings)
        for group, names in ((policies, metrics), *also)
        for one in group
    ]
    return measure_wanted(traces, wanted, progress=progress)


def measure_wanted(
    traces: Sequence[Recorded], wanted: Sequence[Wanted], *, progress: Progress = silent
) -> Measurements:
    """The same for policies with settings of their own."""
    each = measure_each(traces, wanted, progress=progress)
    frames = (pl.concat(one) for one in zip(*((found.frame, found.bytes) for found in each), strict=True))
    return Measurements(*frames)


def measure_each(
    traces: Sequence[Recorded], wanted: Sequence[Wanted], *, progress: Progress = silent
) -> list[Measurements]:
    """The measurements of each that is wanted; all of them share one stream of masses for each trace."""
    _check(traces, wanted)
    finished = Steps(progress, "replaying", sum(len(trace.layers) for trace in traces))
    measured: list[list[pl.DataFrame]] = [[] for _ in wanted]
    used: list[list[pl.DataFrame]] = [[] for _ in wanted]
    for trace, model in zip(traces, model_names(traces), strict=True):
        for block in replay_blocks(trace, [one.asked for one in wanted]):
            for at, (run, one) in enumerate(zip(block, wanted, strict=True)):
                measured[at].append(measure_replay(run, one.metrics, trace.name, model))
                used[at].append(byte_use(run, trace.name))
            finished(len(block[0].layers))
    return [
        Measurements(pl.concat(rows), over_layers(pl.concat(bytes_).lazy()).collect())
        for rows, bytes_ in zip(measured, used, strict=True)
    ]


def metric_names(metrics: Sequence[str]) -> tuple[str, ...]:
    """The names asked for, in the table's order; ``all`` are the built-in ones but those `by_name`.

    InputError for an unknown one.
    """
    known = all_metrics()
    unknown = set(metrics) - {*known, "all"}
    if unknown or not metrics:
        raise InputError(f"metric {', '.join(sorted(unknown)) or '(none)'}: there are {', '.join(known)} and all")
    usual = {name for name, one in METRICS.items() if "all" in metrics and not one.by_name}
    return tuple(name for name in known if name in metrics or name in usual)


def folds(metrics: Iterable[str]) -> tuple[Fold, ...]:
    """What a replay has to keep for these metrics, each once."""
    return tuple(dict.fromkeys(fold for name in metrics for fold in metric(name).folds))


def measure_replay(run: Replay, metrics: Iterable[str], trace: str, model: str) -> pl.DataFrame:
    """Measurements of one replay, all rows of the given metrics."""
    constants = {"trace": trace, "model": model, **policy_labels(run.plan), **setting_labels(run.plan)}
    label = run.plan.settings.readings.label()
    frames = [pl.DataFrame(schema=MEASUREMENTS)]
    for name in metrics:
        if parts := list(metric(name).rows(run)):
            found = pl.concat(parts, how="diagonal_relaxed")
            named = {key: _or(found, key, value) for key, value in (("metric", name), ("reading", label))}
            frames.append(conform(found.with_columns(**named), MEASUREMENTS, **constants))
    return pl.concat(frames)


def _or(frame: pl.DataFrame, column: str, value: str) -> pl.Expr:
    """The column with ``value`` wherever it says nothing."""
    return pl.col(column).fill_null(value) if column in frame else pl.lit(value)


def _check(traces: Sequence[Recorded], wanted: Sequence[Wanted]) -> None:
    """InputError for no trace, names that merge, and horizons that no event has."""
    given = [trace.name for trace in traces]
    if not given or len(set(given)) < len(given):
        raise InputError(f"traces {', '.join(given) or '(none)'}: give at least one, each with a name of its own")
    horizons = {one.settings.horizon for one in wanted if "fmm" in one.metrics}
    for trace in traces:
        if horizons and max(horizons) > trace.shape.decode:
            raise InputError(
                f"horizon {max(horizons)}: {trace.name} has {trace.shape.decode} decode queries, so no event has a "
                "full horizon; lower --horizon, or leave fmm out"
            )
