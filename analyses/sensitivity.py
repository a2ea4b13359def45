"""Under which readings of the paper each claim holds: one reading changed at a time, against the defaults.

Readings that change decisions are replayed and measured anew. The others leave the decisions alone and touch only some
metrics (`TOUCHED`), so only those are measured again and everything else is taken from the default's measurement.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import polars as pl

from qevict_diag.analyses import claims
from qevict_diag.analyses.claim_checks import Setting, checks
from qevict_diag.errors import InputError
from qevict_diag.frames import MEASUREMENTS
from qevict_diag.layer_trace import Recorded
from qevict_diag.measure import measure
from qevict_diag.plan import Settings
from qevict_diag.readings import READINGS, Readings

TOUCHED: dict[str, tuple[str, ...]] = {
    "universe": ("lir", "transitions"),
    "churn_set": ("churn",),
    "lir_episodes": (),  # the default's measurement has the rows of both
    "share_denominator": ("mass_share",),
    "fmm_denominator": ("fmm",),
    "qsa_support": ("qsa", "mass_ratio"),
    "ledger_bytes": (),  # byte totals; no claim is about them
    "lag": ("transitions",),
}
KEPT = ("claim", "verdict", "numbers", "text")
LETTERS = {reading.name: reading.letter for reading in READINGS}
Progress = Callable[[int, int], None]  # layers replayed, of how many


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
    min_inactive: int = 3,
    progress: Progress = lambda done, total: None,
) -> pl.DataFrame:
    """Verdict on every claim under the defaults and under each label, one row each.

    Columns: letter, reading (empty for the defaults), claim, verdict, default, changed, numbers, text. Raises
    ReadingError for a label that is not in the table, and what `measure` raises.
    """
    cases = ["", *(Readings.parse([label]).label() for label in labels)]
    sorted_traces = by_setting(traces)
    work = {
        (label, setting): needed(label, sorted_traces[setting], setting) for label in cases for setting in sorted_traces
    }
    total, done = sum(part.layers for part in work.values()), 0

    def finished(layers: int) -> None:
        nonlocal done
        done += layers
        progress(done, total)

    def frame(label: str, setting: Setting) -> pl.DataFrame:
        return _measured(work[label, setting], replace(settings, readings=_readings(label)), min_inactive, finished)

    default = {setting: frame("", setting) for setting in sorted_traces}
    tables = []
    for label in cases:
        found = default if not label else {s: completed(label, default[s], frame(label, s)) for s in sorted_traces}
        summary = claims.summary(claims.evaluate(found["diagnostic"], found["promotion"], min_inactive))
        tables.append(summary.select(pl.lit(_letter(label)).alias("letter"), pl.lit(label).alias("reading"), *KEPT))
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
        own, touched = default.filter(pl.col("reading") == label), ("lir", "return_time")
    borrowed = default.filter(pl.col("reading") == "", ~pl.col("metric").is_in(touched))
    return pl.concat([borrowed.with_columns(reading=pl.lit(label)), own])


def changes(compared: pl.DataFrame) -> pl.DataFrame:
    """The rows of `compare` whose verdict is not the default's."""
    return compared.filter("changed")


def matrix(compared: pl.DataFrame) -> pl.DataFrame:
    """One row per reading, one column per claim: its verdict."""
    return compared.pivot("claim", index=["letter", "reading"], values="verdict")


def _measured(part: Needed, settings: Settings, min_inactive: int, progress: Callable[[int], None]) -> pl.DataFrame:
    if not part.traces or not part.metrics:
        return pl.DataFrame(schema=MEASUREMENTS)
    found = measure(part.traces, part.policies, part.metrics, settings, min_inactive=min_inactive, progress=progress)
    return found.frame


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
