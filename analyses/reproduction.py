"""What a reproduction of the paper takes: the recordings, and what is measured on them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import polars as pl

from qevict_diag.analyses import importance, needs, observation1, observation2, promotion
from qevict_diag.analyses.claims import checks, sensitivity
from qevict_diag.errors import InputError
from qevict_diag.measure.models import one_model
from qevict_diag.measure.traces import Measurements, measure
from qevict_diag.models.identity import difference
from qevict_diag.policies.arms import BOUNDED, optima
from qevict_diag.policies.catalogue import policies
from qevict_diag.progress import Progress, part_of
from qevict_diag.replay.settings import Settings
from qevict_diag.sweep.engine import workers_here
from qevict_diag.texts.source import Source, built_in, slug
from qevict_diag.trace.trace import Trace

if TYPE_CHECKING:
    from qevict_diag.record import RecordOptions
    from qevict_diag.record.options import Continuation


@dataclass(frozen=True)
class Setting:
    """One recording and what is measured on it: lengths, texts, and policies with the metrics they need.

    ``articles`` names the texts, all of the request's without any; ``continuation`` is the request's without one.
    """

    prefill: int
    decode: int
    measured: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    continuation: str = ""
    articles: tuple[str, ...] = ()

    @property
    def lengths(self) -> str:
        """How the paper writes them, ``512+256``."""
        return f"{self.prefill}+{self.decode}"

    @property
    def replays(self) -> int:
        """How many policies are replayed."""
        return sum(len(policies) for policies, _ in self.measured)

    def texts(self, sources: Sequence[Source]) -> tuple[Source, ...]:
        """The texts of this setting; InputError where one is missing."""
        if not self.articles:
            return tuple(sources)
        named = {source.name: source for source in sources}
        missing = [name for name in self.articles if name not in named]
        if missing:
            raise InputError(f"no text called {', '.join(missing)}; there are {', '.join(named)}")
        return tuple(named[name] for name in self.articles)


FEW_DISTINCT = 0.5  # share of distinct 4-grams below which a continuation is called a loop


RANKED = importance.POLICIES[1:]  # R3 itself is among the conditions


BOUNDS = tuple(
    name
    for name in dict.fromkeys((*needs.MISSED.bounds, *needs.RANKINGS.bounds))
    if name not in RANKED  # Table 17b ranks by the optimum too
)


BESIDE = (*needs.AGES.metrics, *observation2.LOGITS)  # measured for tables and figures of our own

SHOWN = ("the-eddystone", "the-eel")  # the paper's figure and tables are of two articles

DIAGNOSTIC = Setting(
    512,
    256,
    ((observation1.POLICIES, ("all", *BESIDE)), (RANKED, needs.RANKINGS.metrics), (BOUNDS, BOUNDED)),
    articles=SHOWN,
)

PROMOTION = Setting(
    256,
    1024,
    (
        ((promotion.WITHOUT, promotion.WITH), needs.PROMOTION.metrics),
        (needs.PROMOTION.bounds, BOUNDED),
    ),
    articles=SHOWN,
)

# What the claims need, and the optima of window policies for the gap that they close. All articles go through the model
# like prompts, in one batch.
JUDGED = (
    Setting(512, 256, ((observation1.POLICIES, ("all",)), (optima(policies(("R2", "R3", "R4"))), BOUNDED)), "teacher"),
    Setting(256, 1024, (((promotion.WITHOUT, promotion.WITH), needs.PROMOTION.metrics),), "teacher"),
)


@dataclass(frozen=True)
class Request:
    """What to reproduce: where to put it, on which model, with which continuation, on which texts.

    ``diagnostic`` and ``promotion`` are shown in figure and tables; the verdicts rest on ``judged``, in the same order.
    """

    out: Path
    model: str = "smollm2-135m"
    continuation: str = "greedy"
    settings: Settings = field(default_factory=Settings)
    revision: str | None = None
    trust_remote_code: bool = False
    accept_terms: Callable[[str], bool] | None = None
    diagnostic: Setting = DIAGNOSTIC
    promotion: Setting = PROMOTION
    judged: tuple[Setting, Setting] = JUDGED
    sources: tuple[Source, ...] = field(default_factory=built_in)

    @property
    def recorded(self) -> tuple[Setting, ...]:
        """Every setting, each once."""
        return tuple(dict.fromkeys((self.diagnostic, self.promotion, *self.judged)))

    def folder(self, setting: Setting) -> Path:
        """Where the traces of a setting lie."""
        return self.out / "traces" / f"{slug(Path(self.model).name)}-{self.continued(setting)}" / setting.lengths

    def of(self, setting: Setting) -> str:
        """Say which recordings a setting is of: ``512+256, 2 texts, greedy``."""
        return f"{setting.lengths}, {len(setting.texts(self.sources))} texts, {self.continued(setting)}"

    def continued(self, setting: Setting) -> str:
        """How the texts of a setting go on."""
        return setting.continuation or self.continuation


def record_missing(request: Request, progress: Progress) -> dict[Setting, list[Trace]]:
    """Record the texts of each setting that have no trace yet, all in one batch, and open all of them.

    Traces that are there are held against the request before anything is recorded, and so is every setting against the
    model: one that cannot be recorded is not found out after the others were.
    """
    from qevict_diag.models.fingerprint import fingerprint

    known = {"id": request.model} | fingerprint(request.model, request.revision)
    texts = {setting: setting.texts(request.sources) for setting in request.recorded}
    missing: dict[Setting, list[Source]] = {}
    planned: set[Path] = set()  # settings may share traces
    for setting, sources in texts.items():
        paths = {one: _path(request, setting, one) for one in sources}
        for source in (one for one, path in paths.items() if path.exists()):
            _opened(request, setting, source, known)
        missing[setting] = [one for one, path in paths.items() if not path.exists() and path not in planned]
        planned.update(paths.values())
    if any(missing.values()):
        _record(request, missing, progress)
        known |= fingerprint(request.model, request.revision)  # of a model that was fetched just now
    opened = {setting: [_opened(request, setting, one, known) for one in sources] for setting, sources in texts.items()}
    one_model([trace for traces in opened.values() for trace in traces])
    return opened


def _record(request: Request, missing: Mapping[Setting, Sequence[Source]], progress: Progress) -> None:
    from qevict_diag.models.load import load
    from qevict_diag.record import check, record

    progress("loading the model", 0, 1)
    loaded = load(
        request.model,
        device=request.settings.device,
        revision=request.revision,
        trust_remote_code=request.trust_remote_code,
        accept_terms=request.accept_terms,
    )
    progress("loading the model", 1, 1)
    jobs = [(setting, sources, _options(request, setting)) for setting, sources in missing.items() if sources]
    for _, sources, options in jobs:
        check(loaded.model, loaded.tokenizer, sources, options)
    for setting, sources, options in jobs:
        record(
            *(loaded.model, loaded.tokenizer, sources, options),
            out=request.folder(setting),
            identity=loaded.identity,
            progress=part_of(progress, f"recording {request.of(setting)}"),
        )


def _options(request: Request, setting: Setting) -> "RecordOptions":
    from qevict_diag.record import RecordOptions

    continuation = cast("Continuation", request.continued(setting))  # which it checks
    return RecordOptions(setting.prefill, setting.decode, continuation)


def _path(request: Request, setting: Setting, source: Source) -> Path:
    return request.folder(setting) / source.name / "manifest.json"


def _opened(request: Request, setting: Setting, source: Source, known: Mapping[str, Any]) -> Trace:
    """Open a trace and check that it is the one that would be recorded now; ``known`` is who its model should be."""
    trace = Trace.open(request.folder(setting) / source.name)
    origin = trace.entry("source")
    found = (trace.shape.prefill, trace.shape.decode, origin.get("continuation"), origin.get("text_sha256"))
    wanted = (setting.prefill, setting.decode, request.continued(setting), source.sha256)
    differs = difference(trace.entry("model"), known)
    if found != wanted or differs:
        told = f"another model ({differs})" if differs else "another text, length or continuation"
        raise InputError(f"{trace.path} was recorded from {told}; give another --out or move that trace away")
    return trace


def measure_setting(traces: Sequence[Trace], setting: Setting, request: Request, progress: Progress) -> Measurements:
    """Replay and measure what a setting asks for, on its traces."""
    (policies, metrics), *also = setting.measured
    return measure(
        *(traces, policies, metrics, request.settings),
        also=also,
        progress=part_of(progress, f"replaying {request.of(setting)}"),
    )


def under_readings(traces: Mapping[Setting, Sequence[Trace]], request: Request, progress: Progress) -> pl.DataFrame:
    """The verdict on every claim under every reading, on the traces that the verdicts rest on."""
    early, late = request.judged
    given: dict[checks.Setting, Sequence[Trace]] = {"diagnostic": traces[early], "promotion": traces[late]}
    workers = workers_here(request.settings.device)
    return sensitivity.compare(given, request.settings, workers=workers, progress=progress)


def loops(traces: Mapping[Setting, Sequence[Trace]]) -> tuple[str, ...]:
    """Warn of continuations that repeat themselves: small models do, when decoding is greedy."""
    origins = [trace.manifest.get("source") or {} for one in traces.values() for trace in one]
    shares = [origin.get("distinct_4grams") for origin in origins if origin.get("continuation") != "teacher"]
    known = [share for share in shares if share is not None]
    if not known or min(known) >= FEW_DISTINCT:
        return ()
    return (
        f"The model fell into loops: only {min(known):.0%} to {max(known):.0%} of a continuation's 4-grams are "
        "distinct. Figure and tables describe attention inside such loops; --continuation teacher measures the texts' "
        "own words instead, which is what the verdicts rest on.",
    )
