"""Everything of the paper's diagnostics in one go: record, replay, measure, and write figure, tables, claims and page.

Two settings on the same texts: 512+256 for Figure 1 and Tables 14 to 17, 256+1024 for Table 18. Traces that are
already there are used again when they are of the same model, text and continuation.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from qevict_diag import files
from qevict_diag.analyses import importance, promotion, regret
from qevict_diag.analyses.claims import evaluate as claims
from qevict_diag.errors import InputError, within
from qevict_diag.figures import figure1, tables
from qevict_diag.figures.report import page
from qevict_diag.figures.style import FORMATS as PICTURES
from qevict_diag.figures.style import save
from qevict_diag.figures.tables.claims import checks_table, claims_table
from qevict_diag.figures.tables.table import FORMATS, SUFFIXES, Table, render
from qevict_diag.measure.traces import Measurements, measure
from qevict_diag.replay.plan import Settings
from qevict_diag.statistics import intervals
from qevict_diag.texts.source import Source, built_in, slug
from qevict_diag.trace.trace import Trace

Progress = Callable[[str, int, int], None]  # stage, done, of how many


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
    512, 256, ((figure1.POLICIES, ("all",)), (RANKED, tables.TABLES["17b"].metrics), (BOUNDS, regret.BOUNDED))
)
PROMOTION = Setting(
    256,
    1024,
    (
        ((promotion.WITHOUT, promotion.WITH), tables.TABLES["18"].metrics),
        (tables.TABLES["18"].bounds, regret.BOUNDED),
    ),
)


@dataclass(frozen=True)
class Request:
    """What to reproduce: where to put it, on which model, with which continuation, on which texts."""

    out: Path
    model: str = "smollm2-135m"
    continuation: str = "greedy"
    device: str = "cpu"
    diagnostic: Setting = DIAGNOSTIC
    promotion: Setting = PROMOTION
    sources: tuple[Source, ...] = field(default_factory=built_in)
    min_inactive: int = 3

    def __post_init__(self) -> None:
        within("min-inactive", self.min_inactive, 1)

    def folder(self, setting: Setting) -> Path:
        """Where the traces of a setting lie."""
        return self.out / "traces" / f"{slug(Path(self.model).name)}-{self.continuation}" / setting.name


@dataclass(frozen=True, eq=False)
class Reproduction:
    """What came out: the checks behind the claims, and the files that were written."""

    evaluated: pl.DataFrame
    model: str
    files: tuple[Path, ...]
    warnings: tuple[str, ...] = ()


def reproduce(request: Request, progress: Progress = lambda stage, done, total: None) -> Reproduction:
    """Record what is missing, measure, and write everything below ``request.out``."""
    settings = (request.diagnostic, request.promotion)
    traces = record_missing(request, settings, progress)
    diagnostic, late = (_measure(traces[setting.name], setting, request, progress) for setting in settings)
    return write(request, traces, diagnostic, late, progress)


def record_missing(request: Request, settings: Sequence[Setting], progress: Progress) -> dict[str, list[Trace]]:
    """Record the texts of each setting that have no trace yet, all in one batch, and open all of them."""
    from qevict_diag.models.load import load
    from qevict_diag.record import RecordOptions, record

    loaded = None
    for setting in settings:
        folder = request.folder(setting)
        missing = [source for source in request.sources if not (folder / source.name / "manifest.json").exists()]
        if not missing:
            continue
        if loaded is None:
            progress("loading the model", 0, 1)
            loaded = load(request.model, device=request.device)
            progress("loading the model", 1, 1)
        options = RecordOptions(setting.prefill, setting.decode, request.continuation)  # type: ignore[arg-type]
        record(
            *(loaded.model, loaded.tokenizer, missing, options),
            out=folder,
            identity=loaded.identity,
            progress=partial(progress, f"recording {setting.name}"),
        )
    return {setting.name: [_opened(request, setting, source) for source in request.sources] for setting in settings}


def _opened(request: Request, setting: Setting, source: Source) -> Trace:
    """Open a trace and check that it is the one that would be recorded now."""
    trace = Trace.open(request.folder(setting) / source.name)
    origin = trace.manifest.get("source") or {}
    found = (trace.model_id, trace.shape.prefill, trace.shape.decode, origin.get("continuation"))
    wanted = (request.model, setting.prefill, setting.decode, request.continuation)
    if found != wanted or origin.get("text_sha256") != source.sha256:
        here, asked = (", ".join(map(str, what)) for what in (found, wanted))
        raise InputError(
            f"{trace.path} is a trace of {here}, or of another text, and {asked} is asked for; "
            "give another --out or move that trace away"
        )
    return trace


def _measure(traces: Sequence[Trace], setting: Setting, request: Request, progress: Progress) -> Measurements:
    stage, done = f"replaying {setting.name}", 0
    total = sum(len(trace.layers) for trace in traces)

    def count(layers: int) -> None:
        nonlocal done
        done += layers
        progress(stage, done, total)

    (policies, metrics), *also = setting.measured
    return measure(
        *(traces, policies, metrics, Settings(device=request.device)),
        also=also,
        min_inactive=request.min_inactive,
        progress=count,
    )


def write(
    request: Request, traces: dict[str, list[Trace]], diagnostic: Measurements, late: Measurements, progress: Progress
) -> Reproduction:
    """Write figure, tables, claims, measurements and the page."""
    progress("writing", 0, 1)
    out, model = request.out, traces[request.diagnostic.name][0].model_id
    evaluated = claims.evaluate(diagnostic.frame, late.frame, request.min_inactive)
    found = [
        tables.build(
            *(name, *_frames(late if name == "18" else diagnostic), request.min_inactive, Settings()),
            (request.promotion if name == "18" else request.diagnostic).name,
        )
        for name in tables.TABLES
    ]
    figure = figure1.plot_figure1(diagnostic.frame)
    written = [save(figure, out / f"figure1.{ending}") for ending in PICTURES]
    judged = [claims_table(evaluated, model), checks_table(evaluated, model)]
    written += [file for table in [*judged, *found] for file in write_table(table, out)]
    written += [
        _parquet(frame, out / f"{name}.parquet") for name, frame in _measured(request, diagnostic, late).items()
    ]
    names = tuple(file.name for file in written)
    drawing = (out / "figure1.svg").read_text(encoding="utf-8")
    report = page.Report(model, drawing, evaluated, found, _facts(request, traces), names, loops(traces))
    written.append(files.write_text(out / "index.html", page.page(report)))
    progress("writing", 1, 1)
    return Reproduction(evaluated, model, tuple(written), loops(traces))


def write_table(table: Table, folder: Path) -> list[Path]:
    """Write a table in every format, ``table14.md`` and so on."""
    return [files.write_text(folder / f"{table.name}.{SUFFIXES[form]}", render(table, form)) for form in FORMATS]


def _frames(measured: Measurements) -> tuple[pl.DataFrame, pl.DataFrame]:
    return measured.frame, measured.bytes


def _measured(request: Request, diagnostic: Measurements, late: Measurements) -> dict[str, pl.DataFrame]:
    return {
        "measurements": diagnostic.frame,
        "bytes": diagnostic.bytes,
        f"measurements-{request.promotion.name}": late.frame,
        f"bytes-{request.promotion.name}": late.bytes,
    }


def _parquet(frame: pl.DataFrame, path: Path) -> Path:
    with files.replacing(path) as scratch:
        frame.write_parquet(scratch)
    return path


def _facts(request: Request, traces: dict[str, list[Trace]]) -> dict[str, str]:
    """Collect what a reader must know to weigh or repeat the numbers."""
    first = traces[request.diagnostic.name][0].manifest
    model: dict[str, Any] = first.get("model") or {}
    texts = [_text(trace) for setting in traces.values() for trace in setting]
    return {
        "model": f"{model.get('id')} ({model.get('architecture')}, {model.get('dtype')})",
        "weights, SHA-256": str(model.get("weights_sha256"))[:16],
        "continuation": request.continuation,
        "intervals": f"95%, two-level bootstrap, {intervals.RESAMPLES} resamples",
        "settings": _told(Settings(), request.min_inactive),
        "software": ", ".join(f"{name} {version}" for name, version in (first.get("software") or {}).items()),
        "recorded": str(first.get("created")),
        "texts, and how many 4-grams of the continuation are distinct": "\n".join(texts),
    }


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


def _told(settings: Settings, min_inactive: int) -> str:
    budget = settings.budget
    return (
        f"budget {budget.ratio}, {budget.sinks} sinks, {budget.recent} recent, q = {budget.quantized_fraction}, "
        f"{budget.bits} bits, horizon {settings.horizon}, m = {min_inactive}"
    )


def _text(trace: Trace) -> str:
    share = (trace.manifest.get("source") or {}).get("distinct_4grams")
    told = "" if share is None else f" {share:.0%}"
    return f"{trace.name} ({trace.shape.prefill}+{trace.shape.decode}){told}"


def as_json_text(made: Reproduction) -> str:
    """Claims and files as JSON, for programs."""
    summary = claims.summary(made.evaluated).fill_nan(None).to_dicts()
    checks = made.evaluated.fill_nan(None).to_dicts()
    content = {
        "model": made.model,
        "warnings": made.warnings,
        "claims": summary,
        "checks": checks,
        "files": [str(file) for file in made.files],
    }
    return json.dumps(content, ensure_ascii=False, indent=1)
