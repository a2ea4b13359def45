"""From traces to tidy measurements: replay, then turn each metric's tensors into rows (interface.md).

Rows carry numerator and denominator beside every value, so that any later aggregation is the reader's own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from qevict_diag.errors import InputError, within
from qevict_diag.frames import MEASUREMENTS, conform, peaks
from qevict_diag.measure.bytes import byte_use
from qevict_diag.measure.models import model_names
from qevict_diag.metrics import METRICS, ROWS
from qevict_diag.policies.catalogue import policy
from qevict_diag.policies.policy import Policy
from qevict_diag.progress import Progress, Steps, silent
from qevict_diag.replay.fold import Save
from qevict_diag.replay.loop import replay_blocks
from qevict_diag.replay.result import Replay
from qevict_diag.replay.settings import Settings
from qevict_diag.trace.layer import Recorded

Group = tuple[Sequence[str | Policy], Sequence[str]]  # policies, and the metrics they are measured by


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
    also: Sequence[Group] = (),
    min_inactive: int = 3,
    progress: Progress = silent,
) -> Measurements:
    """Replay every policy on every trace and measure it.

    ``metrics`` are names of `METRICS` or ``all``. ``also`` are further policies with metrics of their own (random arms
    and optima, say, whose Future Missed Mass is all that matters), replayed on the same stream. A step of ``progress``
    is a layer. Raises InputError for unknown names, and what `replay` raises.
    """
    settings = settings or Settings()
    wanted = [
        (one if isinstance(one, Policy) else policy(one), metric_names(names))
        for group, names in ((policies, metrics), *also)
        for one in group
    ]
    asked = [(one, needed(names)) for one, names in wanted]
    given = [trace.name for trace in traces]
    if not given or len(set(given)) < len(given):
        raise InputError(f"traces {', '.join(given) or '(none)'}: give at least one, each with a name of its own")
    within("min-inactive", min_inactive, 1)
    for trace in traces:
        if settings.horizon > trace.shape.decode and any("fmm" in names for _, names in wanted):
            raise InputError(
                f"horizon {settings.horizon}: {trace.name} has {trace.shape.decode} decode queries, so no event has a "
                "full horizon; lower --horizon, or leave fmm out"
            )
    finished = Steps(progress, "replaying", sum(len(trace.layers) for trace in traces))
    measured, used = [], []
    for trace, model in zip(traces, model_names(traces), strict=True):
        for block in replay_blocks(trace, asked, settings):
            for run, (_, names) in zip(block, wanted, strict=True):
                measured.append(measure_replay(run, names, min_inactive, trace.name, model))
                used.append(byte_use(run, trace.name))
            finished(len(block[0].layers))
    return Measurements(pl.concat(measured), peaks(pl.concat(used).lazy()).collect())


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
