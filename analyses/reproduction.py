"""What a reproduction of the paper takes: the recordings, and what is measured on them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qevict_diag.analyses import importance, promotion
from qevict_diag.errors import InputError
from qevict_diag.figures import figure1, tables
from qevict_diag.measure.models import one_model
from qevict_diag.measure.traces import Measurements, measure
from qevict_diag.models.identity import difference
from qevict_diag.policies.arms import BOUNDED
from qevict_diag.progress import Progress, part_of
from qevict_diag.replay.settings import Settings
from qevict_diag.texts.source import Source, built_in, slug
from qevict_diag.trace.trace import Trace


@dataclass(frozen=True)
class Setting:
    """One recording length and what is measured on it: policies with the metrics they need."""

    prefill: int
    decode: int
    measured: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]

    @property
    def name(self) -> str:
        """How the paper writes it, ``512+256``."""
        return f"{self.prefill}+{self.decode}"

    @property
    def replays(self) -> int:
        """How many policies are replayed."""
        return sum(len(policies) for policies, _ in self.measured)


FEW_DISTINCT = 0.5  # share of distinct 4-grams below which a continuation is called a loop


RANKED = importance.POLICIES[1:]  # R3 itself is among the conditions


BOUNDS = tuple(
    name
    for name in dict.fromkeys((*tables.TABLES["14"].bounds, *tables.TABLES["17b"].bounds))
    if name not in RANKED  # Table 17b ranks by the optimum too
)


DIAGNOSTIC = Setting(
    512, 256, ((figure1.POLICIES, ("all",)), (RANKED, tables.TABLES["17b"].metrics), (BOUNDS, BOUNDED))
)


PROMOTION = Setting(
    256,
    1024,
    (
        ((promotion.WITHOUT, promotion.WITH), tables.TABLES["18"].metrics),
        (tables.TABLES["18"].bounds, BOUNDED),
    ),
)


@dataclass(frozen=True)
class Request:
    """What to reproduce: where to put it, on which model, with which continuation, on which texts."""

    out: Path
    model: str = "smollm2-135m"
    continuation: str = "greedy"
    settings: Settings = field(default_factory=Settings)
    revision: str | None = None
    trust_remote_code: bool = False
    accept_terms: Callable[[str], bool] | None = None
    diagnostic: Setting = DIAGNOSTIC
    promotion: Setting = PROMOTION
    sources: tuple[Source, ...] = field(default_factory=built_in)

    def folder(self, setting: Setting) -> Path:
        """Where the traces of a setting lie."""
        return self.out / "traces" / f"{slug(Path(self.model).name)}-{self.continuation}" / setting.name


def record_missing(request: Request, settings: Sequence[Setting], progress: Progress) -> dict[str, list[Trace]]:
    """Record the texts of each setting that have no trace yet, all in one batch, and open all of them.

    Traces that are there are held against the request before anything is recorded, and so is every setting against the
    model: one that cannot be recorded is not found out after the others were.
    """
    from qevict_diag.models.fingerprint import fingerprint

    known = {"id": request.model} | fingerprint(request.model, request.revision)
    missing = {
        setting: [one for one in request.sources if not _path(request, setting, one).exists()] for setting in settings
    }
    for setting in settings:
        for source in set(request.sources) - set(missing[setting]):
            _opened(request, setting, source, known)
    if any(missing.values()):
        _record(request, missing, progress)
        known |= fingerprint(request.model, request.revision)  # of a model that was fetched just now
    opened = {
        setting.name: [_opened(request, setting, source, known) for source in request.sources] for setting in settings
    }
    one_model([trace for traces in opened.values() for trace in traces])
    return opened


def _record(request: Request, missing: Mapping[Setting, Sequence[Source]], progress: Progress) -> None:
    from qevict_diag.models.load import load
    from qevict_diag.record import RecordOptions, check, record

    progress("loading the model", 0, 1)
    loaded = load(
        request.model,
        device=request.settings.device,
        revision=request.revision,
        trust_remote_code=request.trust_remote_code,
        accept_terms=request.accept_terms,
    )
    progress("loading the model", 1, 1)
    jobs = [
        (setting, sources, RecordOptions(setting.prefill, setting.decode, request.continuation))  # type: ignore[arg-type]
        for setting, sources in missing.items()
        if sources
    ]
    for _, sources, options in jobs:
        check(loaded.model, loaded.tokenizer, sources, options)
    for setting, sources, options in jobs:
        record(
            *(loaded.model, loaded.tokenizer, sources, options),
            out=request.folder(setting),
            identity=loaded.identity,
            progress=part_of(progress, f"recording {setting.name}"),
        )


def _path(request: Request, setting: Setting, source: Source) -> Path:
    return request.folder(setting) / source.name / "manifest.json"


def _opened(request: Request, setting: Setting, source: Source, known: Mapping[str, Any]) -> Trace:
    """Open a trace and check that it is the one that would be recorded now; ``known`` is who its model should be."""
    trace = Trace.open(request.folder(setting) / source.name)
    origin = trace.entry("source")
    found = (trace.shape.prefill, trace.shape.decode, origin.get("continuation"), origin.get("text_sha256"))
    wanted = (setting.prefill, setting.decode, request.continuation, source.sha256)
    differs = difference(trace.entry("model"), known)
    if found != wanted or differs:
        told = f"another model ({differs})" if differs else "another text, length or continuation"
        raise InputError(f"{trace.path} was recorded from {told}; give another --out or move that trace away")
    return trace


def _measure(traces: Sequence[Trace], setting: Setting, request: Request, progress: Progress) -> Measurements:
    (policies, metrics), *also = setting.measured
    return measure(
        *(traces, policies, metrics, request.settings),
        also=also,
        min_inactive=request.settings.min_inactive,
        progress=part_of(progress, f"replaying {setting.name}"),
    )


def loops(traces: dict[str, list[Trace]]) -> tuple[str, ...]:
    """Warn of continuations that repeat themselves: small models do, when decoding is greedy."""
    shares = [(trace.manifest.get("source") or {}).get("distinct_4grams") for one in traces.values() for trace in one]
    known = [share for share in shares if share is not None]
    if not known or min(known) >= FEW_DISTINCT:
        return ()
    return (
        f"The model fell into loops: only {min(known):.0%} to {max(known):.0%} of a continuation's 4-grams are "
        "distinct. The numbers describe attention inside such loops; --continuation teacher measures the texts' own "
        "words instead.",
    )
