"""Under which readings of the paper each claim holds: one reading changed at a time, against the defaults.

Readings that change decisions are replayed and measured anew. The others leave the decisions alone and touch only some
metrics (`TOUCHED`), so only those are measured again and everything else is taken from the default's measurement.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

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
from qevict_diag.progress import Progress, part_of, silent
from qevict_diag.readings import READINGS, Readings
from qevict_diag.replay.settings import Settings
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
Frames = Mapping[Setting, pl.DataFrame]


@dataclass(frozen=True, eq=False)
class Needed:
    """What a reading takes: the policies and metrics to measure on the traces of one of the paper's settings."""

    traces: tuple[Recorded, ...]
    policies: tuple[str, ...]
    metrics: tuple[str, ...]

    @property
    def layers(self) -> int:
        """How many layers are replayed."""
        return sum(len(trace.layers) for trace in self.traces) if self.metrics else 0


def alternatives() -> tuple[str, ...]:
    """Every value of every reading but the defaults, as labels ``name=value``, in the table's order."""
    return tuple(f"{reading.name}={value}" for reading in READINGS for value in reading.values[1:])


def by_setting(traces: Sequence[Recorded]) -> dict[Setting, tuple[Recorded, ...]]:
    """Sort traces by the paper's settings: those that decode more than they prefill are about promotion (Appendix K).

    InputError without traces.
    """
    if not traces:
        raise InputError("no trace to put the readings to the test on; name at least one")
    late = tuple(trace for trace in traces if trace.shape.decode > trace.shape.prefill)
    return {"diagnostic": tuple(trace for trace in traces if trace not in late), "promotion": late}


def compare(
    traces: Sequence[Recorded],
    settings: Settings,
    labels: Iterable[str] = alternatives(),
    *,
    window: int | None = None,
    progress: Progress = silent,
) -> pl.DataFrame:
    """Verdict on every claim under the defaults and under each label, one row each.

    Columns: letter, reading (empty for the defaults), claim, verdict, default, changed, sign (of the estimates: on the
    claimed side or not), n, numbers, text. `verdicts.standing` puts it in words. Forced admission comes twice, for all
    policies and for R1 alone (`FORCED_R1`), which is what the paper's churn of R1 suggests. ``window`` is for policies
    that are not defined by theirs; a step of ``progress`` is a layer. Raises ReadingError for a label that is not in
    the table, and what `measure` raises.
    """
    chosen = [label for label in (_readings(label).label() for label in labels) if label]
    measured = _measure_all(by_setting(traces), settings, ["", *dict.fromkeys(chosen)], window, progress)
    default = next(measured)[1]
    tables = [_verdicts("", default, settings)]
    for label, own in measured:
        found = {setting: completed(label, default[setting], own[setting]) for setting in own}
        tables.append(_verdicts(label, found, settings))
        if label == FORCED:
            alone = {setting: mixed(default[setting], found[setting], label, "R1") for setting in own}
            tables.append(_verdicts(FORCED_R1, alone, settings))
    return _against_default(pl.concat(tables))


def needed(label: str, traces: Sequence[Recorded], setting: Setting) -> Needed:
    """What has to be measured for a reading, by what the claims of a setting ask of it."""
    quantities = [q for check in checks() if check.setting == setting for q in check.quantities]
    touched = TOUCHED.get(_name(label), tuple(q.metric for q in quantities))
    asked = [q for q in quantities if q.metric in touched]
    policies, metrics = (tuple(dict.fromkeys(getattr(q, name) for q in asked)) for name in ("policy", "metric"))
    return Needed(tuple(traces), policies, metrics)


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
    progress: Progress,
) -> Iterator[tuple[str, Frames]]:
    """Measure what each reading needs: all of them on one stream of masses, so that logits are computed once."""
    total, done, found = sum(len(trace.layers) for some in traces.values() for trace in some), 0, {}
    for setting, some in traces.items():
        found[setting] = _measured(some, setting, settings, labels, window, part_of(progress, STAGE, done, total))
        done += sum(len(trace.layers) for trace in some)
    for label in labels:
        yield label, {setting: found[setting][label] for setting in traces}


def _measured(
    traces: Sequence[Recorded],
    setting: Setting,
    settings: Settings,
    labels: Sequence[str],
    window: int | None,
    progress: Progress,
) -> dict[str, pl.DataFrame]:
    """What the claims of a setting need under each reading, by label."""
    asked: list[tuple[str, Wanted]] = []
    for label in labels:
        need, under = needed(label, traces, setting), replace(settings, readings=_readings(label))
        if need.layers:
            asked += [(label, Wanted(one, need.metrics, under)) for one in policies(need.policies, window=window)]
    each = measure_each(traces, [wanted for _, wanted in asked], progress=progress) if asked else []
    parts: dict[str, list[pl.DataFrame]] = {label: [pl.DataFrame(schema=MEASUREMENTS)] for label in labels}
    for (label, _), measured in zip(asked, each, strict=True):
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
