"""Everything of the paper's diagnostics in one go: record, replay, measure, and write figure, tables, claims and page.

Two settings on the same texts: 512+256 for Figure 1 and Tables 14 to 17, 256+1024 for Table 18. Traces that are
already there are used again when they are of the same model, text and continuation.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from qevict_diag import files
from qevict_diag.analyses.claims import evaluate as claims
from qevict_diag.analyses.reproduction import Request, _measure, loops, record_missing
from qevict_diag.figures import figure1, tables
from qevict_diag.figures.report import page
from qevict_diag.figures.style import FORMATS as PICTURES
from qevict_diag.figures.style import save
from qevict_diag.figures.tables.claims import checks_table, claims_table
from qevict_diag.figures.tables.formats import FORMATS, SUFFIXES, render
from qevict_diag.figures.tables.table import Table
from qevict_diag.measure.traces import Measurements
from qevict_diag.progress import Progress, silent
from qevict_diag.replay.settings import Settings
from qevict_diag.statistics import intervals
from qevict_diag.trace.trace import Trace


@dataclass(frozen=True, eq=False)
class Reproduction:
    """What came out: the checks behind the claims, and the files that were written."""

    evaluated: pl.DataFrame
    model: str
    files: tuple[Path, ...]
    warnings: tuple[str, ...] = ()


def reproduce(request: Request, progress: Progress = silent) -> Reproduction:
    """Record what is missing, measure, and write everything below ``request.out``."""
    files.check_set(request.out)
    settings = (request.diagnostic, request.promotion)
    traces = record_missing(request, settings, progress)
    diagnostic, late = (_measure(traces[setting.name], setting, request, progress) for setting in settings)
    return write(request, traces, diagnostic, late, progress)


def write(
    request: Request, traces: dict[str, list[Trace]], diagnostic: Measurements, late: Measurements, progress: Progress
) -> Reproduction:
    """Write figure, tables, claims, measurements and the page: all of them, or those of an earlier run stay."""
    progress("writing", 0, 1)
    out, model = request.out, traces[request.diagnostic.name][0].model_id
    evaluated = claims.evaluate(diagnostic.frame, late.frame, request.settings)
    found = [
        tables.build(
            *(name, *_frames(late if name == "18" else diagnostic), request.settings),
            (request.promotion if name == "18" else request.diagnostic).name,
        )
        for name in tables.TABLES
    ]
    with files.replacing_set(out) as folder:
        figure = figure1.plot_figure1(diagnostic.frame)
        written = [save(figure, folder / f"figure1.{ending}") for ending in PICTURES]
        judged = [claims_table(evaluated, model), checks_table(evaluated, model)]
        written += [file for table in [*judged, *found] for file in write_table(table, folder)]
        frames = _measured(request, diagnostic, late).items()
        written += [_parquet(frame, folder / f"{name}.parquet") for name, frame in frames]
        names = tuple(file.name for file in written)
        drawing = (folder / "figure1.svg").read_text(encoding="utf-8")
        report = page.Report(model, drawing, evaluated, found, _facts(request, traces), names, loops(traces))
        files.write_text(folder / "index.html", page.page(report))
    progress("writing", 1, 1)
    return Reproduction(evaluated, model, tuple(out / name for name in (*names, "index.html")), loops(traces))


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
        "settings": _told(request.settings),
        "software": ", ".join(f"{name} {version}" for name, version in (first.get("software") or {}).items()),
        "recorded": str(first.get("created")),
        "texts, and how many 4-grams of the continuation are distinct": "\n".join(texts),
    }


def _told(settings: Settings) -> str:
    budget = settings.budget
    return (
        f"budget {budget.ratio}, {budget.sinks} sinks, {budget.recent} recent, q = {budget.quantized_fraction}, "
        f"{budget.bits} bits, horizon {settings.horizon}, m = {settings.min_inactive}"
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
