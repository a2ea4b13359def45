"""The readings: every place where the paper's prose allows more than one interpretation (definitions.md, section 9).

A result is a number *under a reading*. All readings live in the table `READINGS`; `Readings` holds one choice for each,
the default first. `Readings().label()` is empty; any other choice names itself, and travels with every row.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from qevict_diag.errors import ReadingError


@dataclass(frozen=True)
class Reading:
    """One open question of the paper: its letter, the question, and the allowed values, the default first."""

    letter: str
    name: str
    question: str
    values: tuple[str, ...]
    stage: str  # "replay" changes decisions, "metric" only the measurement

    @property
    def default(self) -> str:
        """The value used unless another is asked for."""
        return self.values[0]


READINGS: tuple[Reading, ...] = (
    Reading("A", "scope", "which heads share one set of windows", ("layer", "kv_head", "head"), "replay"),
    Reading("B", "score_queries", "which decode queries feed the score", ("every", "event"), "replay"),
    Reading("C", "policy_score", "what the policy sees", ("teacher_forced", "restricted"), "replay"),
    Reading("D", "universe", "windows over which LIR and transitions run", ("historical", "accessible"), "metric"),
    Reading("E", "churn_set", "the set whose churn is measured", ("retained", "full"), "metric"),
    Reading("F", "lir_episodes", "which inactive runs are episodes", ("literal", "after_exit"), "metric"),
    Reading(
        "G", "share_denominator", "what a mass share is a share of", ("cumulative", "instantaneous", "sinks"), "metric"
    ),
    Reading(
        "H",
        "fmm_denominator",
        "what missed mass is a fraction of",
        ("existing", "sinks", "all", "historical"),
        "metric",
    ),
    Reading(
        "I",
        "qsa_support",
        "support of the quantized softmax, over each interval or cumulative",
        ("fullkv", "accessible", "fullkv_cumulative", "accessible_cumulative"),
        "metric",
    ),
    Reading("J", "admission", "how a newcomer enters", ("compete", "forced"), "replay"),
    Reading("K", "newcomer_history", "what a newcomer has collected", ("birth", "local_exit"), "replay"),
    Reading("L", "score_start", "which prompt queries initialise the score", ("all", "last", "one"), "replay"),
    Reading("M", "ledger_bytes", "whether codes behind promoted windows count", ("excluded", "counted"), "metric"),
    Reading("N", "lag", "what a lagged transition counts", ("endpoint", "first_passage"), "metric"),
    Reading("O", "score_age", "whether a score is divided by its age", ("sums", "per_query"), "replay"),
    Reading(
        "P",
        "levels",
        "where the quantizer's levels lie",
        ("end_points", "bin_centres", "clipped"),
        "replay",
    ),
)


@dataclass(frozen=True)
class Readings:
    """One choice for each row of `READINGS`; raises ReadingError for a value that is not in the table."""

    scope: str = "layer"
    score_queries: str = "every"
    policy_score: str = "teacher_forced"
    universe: str = "historical"
    churn_set: str = "retained"
    lir_episodes: str = "literal"
    share_denominator: str = "cumulative"
    fmm_denominator: str = "existing"
    qsa_support: str = "fullkv"
    admission: str = "compete"
    newcomer_history: str = "birth"
    ledger_bytes: str = "excluded"
    lag: str = "endpoint"
    score_start: str = "all"
    score_age: str = "sums"
    levels: str = "end_points"

    def __post_init__(self) -> None:
        for reading in READINGS:
            value = getattr(self, reading.name)
            if value not in reading.values:
                raise ReadingError(f"reading {reading.name}={value}: allowed are {', '.join(reading.values)}")

    @classmethod
    def parse(cls, choices: Iterable[str]) -> "Readings":
        """Readings from ``NAME=VALUE`` words, as the command line gives them; a later word wins."""
        known = {field.name for field in fields(cls)}
        chosen: dict[str, str] = {}
        for choice in choices:
            name, equals, value = choice.partition("=")
            if not equals or name not in known:
                raise ReadingError(f"reading {choice!r}: write NAME=VALUE with NAME one of {', '.join(sorted(known))}")
            chosen[name] = value
        return cls(**chosen)

    def label(self) -> str:
        """The choices that differ from the defaults, ``name=value`` joined by commas; empty for the defaults."""
        values = ((reading, getattr(self, reading.name)) for reading in READINGS)
        return ",".join(f"{reading.name}={value}" for reading, value in values if value != reading.default)

    def deciding(self, *, quantizes: bool) -> "Readings":
        """These readings, those that touch no decision at their defaults; so P where nothing is quantized."""
        idle = {reading.name: reading.default for reading in READINGS if reading.stage == "metric"}
        return replace(self, **idle, **({} if quantizes else {"levels": "end_points"}))

    def with_(self, **choices: str) -> "Readings":
        """These readings with some choices replaced."""
        return replace(self, **choices)
