"""Under which readings of the paper each claim holds: one reading changed at a time, against the defaults.

Readings that change decisions are replayed and measured anew. The others leave the decisions alone and touch only some
metrics (`TOUCHED`), so only those are measured again and everything else is taken from the default's measurement.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import polars as pl

from qevict_diag.analyses.claims.checks import Setting, checks
from qevict_diag.analyses.claims.evaluate import evaluate
from qevict_diag.analyses.claims.verdicts import LETTERS, summary
from qevict_diag.analyses.observation3 import after_exit
from qevict_diag.errors import InputError
from qevict_diag.frames import MEASUREMENTS
from qevict_diag.measure.traces import Wanted, measure_each
from qevict_diag.metrics import METRICS
from qevict_diag.policies.catalogue import policies
from qevict_diag.progress import Progress, Steps, silent
from qevict_diag.readings import READINGS, Readings
from qevict_diag.replay.settings import Settings
from qevict_diag.sweep.engine import Engine
from qevict_diag.trace.find import articles
from qevict_diag.trace.layer import Recorded

EPISODES = ("lir", "return_time", "episodes")  # what Global LIR is measured as
TOUCHED: dict[str, tuple[str, ...]] = {
    reading.name: tuple(name for name, metric in METRICS.items() if reading.name in metric.readings)
    for reading in READINGS
    if reading.stage == "metric"
}
KEPT = ("claim", "verdict", "sign", "n", "numbers", "text")
FORCED = "admission=forced"
FORCED_R1 = "admission=forced, R1 only"
STAGE = "replaying under each reading"
ROOM = 3 * 2**29  # bytes of a block: many runs share it, and few layers at a time cost much time
Frames = Mapping[Setting, pl.DataFrame]


def alternatives() -> tuple[str, ...]:
    """Every value of every reading but the defaults, as labels ``name=value``, in the table's order."""
    return tuple(f"{reading.name}={value}" for reading in READINGS for value in reading.values[1:])


def by_setting(traces: Sequence[Recorded]) -> dict[Setting, tuple[Recorded, ...]]:
    """Sort traces by the paper's settings: those that decode more than they prefill are about promotion (Appendix K).

    Traces of one article count once. InputError without traces.
    """
    traces = articles(traces)
    if not traces:
        raise InputError("no trace to put the readings to the test on; name at least one")
    late = tuple(trace for trace in traces if trace.shape.decode > trace.shape.prefill)
    return {"diagnostic": tuple(trace for trace in traces if trace not in late), "promotion": late}


def compare(
    traces: Mapping[Setting, Sequence[Recorded]],
    settings: Settings,
    labels: Iterable[str] = alternatives(),
    *,
    window: int | None = None,
    workers: int = 1,
    progress: Progress = silent,
) -> pl.DataFrame:
    """Verdict on every claim under the defaults and under each label, one row each, on the ``traces`` of each setting.

    Columns: letter, reading (empty for the defaults), claim, verdict, default, changed, sign (of the estimates: on the
    claimed side or not), n, numbers, text. `verdicts.standing` puts it in words. Forced admission comes twice, for all
    policies and for R1 alone (`FORCED_R1`), which is what the paper's churn of R1 suggests. ``window`` is for policies
    that are not defined by theirs; ``workers`` processes share the traces; a step of ``progress`` is a trace. Raises
    ReadingError for a label that is not in the table, and what `measure` raises.
    """
    chosen = [label for label in (_readings(label).label() for label in labels) if label]
    measured = _measure_all(traces, settings, ["", *dict.fromkeys(chosen)], window, workers, progress)
    default = next(measured)[1]
    tables = [_verdicts("", default, settings)]
    for label, own in measured:
        found = {setting: completed(label, default[setting], own[setting]) for setting in own}
        tables.append(_verdicts(label, found, settings))
        if label == FORCED:
            alone = {setting: mixed(default[setting], found[setting], label, "R1") for setting in own}
            tables.append(_verdicts(FORCED_R1, alone, settings))
    return _against_default(pl.concat(tables))


def needed(label: str, setting: Setting) -> dict[str, tuple[str, ...]]:
    """The metrics to measure of each policy under a reading: what the claims of a setting ask of it."""
    quantities = [q for check in checks() if check.setting == setting for q in check.quantities]
    touched = TOUCHED.get(_name(label), tuple(METRICS))
    found: dict[str, tuple[str, ...]] = {}
    for one in quantities:
        if one.metric in touched and one.metric not in found.get(one.policy, ()):
            found[one.policy] = (*found.get(one.policy, ()), one.metric)
    return found


def completed(label: str, default: pl.DataFrame, own: pl.DataFrame) -> pl.DataFrame:
    """Measurements under a reading: its own, and the default's for what it does not touch, under its label."""
    touched = TOUCHED.get(_name(label))
    if touched is None or default.is_empty():
        return own
    if _name(label) == "lir_episodes":
        own, touched = default.filter(pl.col("reading") == label), EPISODES
    left_alone = default.filter(~pl.col("metric").is_in(touched))
    under = {"": label, after_exit(""): after_exit(label)}  # Global LIR comes under both readings of episodes
    borrowed = [left_alone.filter(reading=usual).with_columns(reading=pl.lit(name)) for usual, name in under.items()]
    return pl.concat([*borrowed, own])


def mixed(default: pl.DataFrame, other: pl.DataFrame, label: str, policy: str) -> pl.DataFrame:
    """The default's measurements with those of one policy taken from another reading, all under the default's label."""
    usual = {label: "", after_exit(label): after_exit("")}
    swapped = other.filter(pl.col("policy") == policy).with_columns(pl.col("reading").replace_strict(usual))
    return pl.concat([default.filter(pl.col("policy") != policy), swapped])


def changes(compared: pl.DataFrame) -> pl.DataFrame:
    """The rows of `compare` whose verdict is not the default's."""
    return compared.filter("changed")


def matrix(compared: pl.DataFrame) -> pl.DataFrame:
    """One row per reading, one column per claim: its verdict."""
    return compared.pivot("claim", index=["letter", "reading"], values="verdict")


def _measure_all(
    traces: Mapping[Setting, Sequence[Recorded]],
    settings: Settings,
    labels: Sequence[str],
    window: int | None,
    workers: int,
    progress: Progress,
) -> Iterator[tuple[str, Frames]]:
    """Measure what each reading needs; on a trace all share one stream of masses, so that logits are computed once."""
    tasks = [(setting, trace) for setting, some in traces.items() for trace in some]
    calls = [(trace, setting, settings, tuple(labels), window) for setting, trace in tasks]
    engine = Engine(workers=min(workers, len(tasks)))
    found = engine.collect(_measured, calls, Steps(progress, STAGE, len(tasks)))
    for label in labels:
        parts: dict[Setting, list[pl.DataFrame]] = {setting: [pl.DataFrame(schema=MEASUREMENTS)] for setting in traces}
        for (setting, _), frames in zip(tasks, found, strict=True):
            parts[setting].append(frames[label])
        yield label, {setting: pl.concat(some) for setting, some in parts.items()}


def _measured(
    trace: Recorded, setting: Setting, settings: Settings, labels: Sequence[str], window: int | None
) -> dict[str, pl.DataFrame]:
    """What the claims of a setting need of a trace under each reading, by label."""
    asked: list[tuple[str, Wanted]] = []
    for label in labels:
        need, under = needed(label, setting), replace(settings, readings=_readings(label), block_bytes=ROOM)
        asked += [(label, Wanted(one, need[one.name], under)) for one in policies(need, window=window)]
    parts: dict[str, list[pl.DataFrame]] = {label: [pl.DataFrame(schema=MEASUREMENTS)] for label in labels}
    for (label, _), measured in zip(asked, measure_each([trace], [wanted for _, wanted in asked]), strict=True):
        parts[label].append(measured.frame)
    return {label: pl.concat(frames) for label, frames in parts.items()}


def _verdicts(label: str, frames: Frames, settings: Settings) -> pl.DataFrame:
    judged = summary(evaluate(frames["diagnostic"], frames["promotion"], settings))
    return judged.select(pl.lit(_letter(label)).alias("letter"), pl.lit(label).alias("reading"), *KEPT)


def _against_default(table: pl.DataFrame) -> pl.DataFrame:
    usual = table.filter(pl.col("reading") == "").select("claim", default="verdict")
    joined = table.join(usual, on="claim", how="left", maintain_order="left")
    return joined.select(
        "letter",
        "reading",
        "claim",
        "verdict",
        "default",
        (pl.col("verdict") != pl.col("default")).alias("changed"),
        *KEPT[2:],
    )


def _readings(label: str) -> Readings:
    return Readings.parse([label] if label else [])


def _name(label: str) -> str:
    return label.partition("=")[0]


def _letter(label: str) -> str:
    return LETTERS.get(_name(label), "")
