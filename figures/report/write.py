"""Everything of the paper's diagnostics in one go: record, replay, measure, and write figure, tables, claims and page.

Figure and tables are of two articles, as the paper's are: 512+256 for Figure 1 and Tables 14 to 17, 256+1024 for Table
18. The verdicts are of all articles, whose own words are the continuation, at the same lengths: two articles are two.
Traces that are already there are used again when they are of the same model, text and continuation.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from qevict_diag import files
from qevict_diag.analyses.claims import evaluate as claims
from qevict_diag.analyses.claims.verdicts import summary
from qevict_diag.analyses.reproduction import Request, Setting, loops, measure_setting, record_missing, under_readings
from qevict_diag.figures import tables
from qevict_diag.figures.catalogue import FIGURES
from qevict_diag.figures.report import page
from qevict_diag.figures.style import FORMATS as PICTURES
from qevict_diag.figures.style import save
from qevict_diag.figures.tables.claims import checks_table, claims_table
from qevict_diag.figures.tables.formats import FORMATS, SUFFIXES, defined, render
from qevict_diag.figures.tables.sheet import Sheet
from qevict_diag.figures.tables.table import Table
from qevict_diag.frame_files import write_frame
from qevict_diag.measure.traces import Measurements
from qevict_diag.progress import Progress, part_of, silent
from qevict_diag.replay.settings import Settings
from qevict_diag.trace.trace import Trace


@dataclass(frozen=True, eq=False)
class Reproduction:
    """What came out: the checks behind the claims, how they fare under other readings, and the files written."""

    evaluated: pl.DataFrame
    model: str
    files: tuple[Path, ...]
    warnings: tuple[str, ...]
    compared: pl.DataFrame


@dataclass(frozen=True, eq=False)
class Found:
    """What was recorded and measured, by setting; ``apart`` what was measured for a table alone, by its name.

    ``compared`` has the verdicts under every reading.
    """

    traces: Mapping[Setting, Sequence[Trace]]
    measured: Mapping[Setting, Measurements]
    apart: Mapping[str, Measurements]
    compared: pl.DataFrame


def reproduce(request: Request, progress: Progress = silent) -> Reproduction:
    """Record what is missing, measure, and write everything below ``request.out``."""
    files.check_set(request.out)
    traces = record_missing(request, progress)
    measured = {setting: measure_setting(traces[setting], setting, request, progress) for setting in traces}
    apart = {
        name: table.needs.measured(
            *(traces[_setting(table, request)], request.settings),
            progress=part_of(progress, f"replaying for table {name}"),
        )
        for name, table in tables.TABLES.items()
        if table.needs.apart
    }
    return write(request, Found(traces, measured, apart, under_readings(traces, request, progress)), progress)


def write(request: Request, found: Found, progress: Progress) -> Reproduction:
    """Write figures, tables, claims, measurements and the page: all of them, or those of an earlier run stay."""
    progress("writing", 0, 1)
    first, second = request.judged
    model, early = found.traces[request.diagnostic][0].model_id, found.measured[request.diagnostic]
    evaluated = claims.evaluate(found.measured[first].frame, found.measured[second].frame, request.settings)
    judged = [claims_table(evaluated, model, found.compared), checks_table(evaluated, model)]
    made = [_filled(table, request, found) for table in tables.TABLES.values()]
    shown = {figure.file or figure.name: figure for figure in FIGURES.values() if figure.title}
    drawn = {name: figure.draw(early.frame, early.bytes, request.settings) for name, figure in shown.items()}
    with files.replacing_set(request.out) as folder:
        written = [save(figure, folder / f"{name}.{ending}") for name, figure in drawn.items() for ending in PICTURES]
        written += [file for table in [*judged, *made] for file in write_table(table, folder)]
        written += [write_frame(frame, folder / f"{name}.parquet") for name, frame in _frames(request, found).items()]
        svgs = [(figure, (folder / f"{name}.svg").read_text(encoding="utf-8")) for name, figure in shown.items()]
        names = tuple(file.name for file in written)
        report = page.Report(
            *(model, evaluated, svgs, made, found.compared),
            *(_facts(request, found), names, loops(found.traces)),
            judged="; ".join(map(request.of, request.judged)),
            shown="; ".join(map(request.of, (request.diagnostic, request.promotion))),
        )
        files.write_text(folder / "index.html", page.page(report))
    progress("writing", 1, 1)
    listed = tuple(request.out / name for name in (*names, "index.html"))
    return Reproduction(evaluated, model, listed, loops(found.traces), found.compared)


def _filled(table: Table, request: Request, found: Found) -> Sheet:
    setting = _setting(table, request)
    measured = found.apart[table.name] if table.needs.apart else found.measured[setting]
    return tables.build(table.name, measured.frame, measured.bytes, request.settings, setting.lengths)


def _setting(table: Table, request: Request) -> Setting:
    return {"diagnostic": request.diagnostic, "promotion": request.promotion}[table.of]


def write_table(table: Sheet, folder: Path) -> list[Path]:
    """Write a table in every format, ``table14.md`` and so on."""
    return [files.write_text(folder / f"{table.name}.{SUFFIXES[form]}", render(table, form)) for form in FORMATS]


def _frames(request: Request, found: Found) -> dict[str, pl.DataFrame]:
    """Measurements and byte use of the figure and the tables, and what the verdicts rest on, by file name."""
    early, late = (found.measured[setting] for setting in (request.diagnostic, request.promotion))
    lengths = request.promotion.lengths
    judged = {f"verdicts-{setting.lengths}": found.measured[setting].frame for setting in request.judged}
    return {
        **{"measurements": early.frame, "bytes": early.bytes},
        **{f"measurements-{lengths}": late.frame, f"bytes-{lengths}": late.bytes},
        **judged,
        **{f"measurements-{name}": measured.frame for name, measured in found.apart.items()},
        **{f"bytes-{name}": measured.bytes for name, measured in found.apart.items()},
        "readings": found.compared,
    }


def _facts(request: Request, found: Found) -> dict[str, str]:
    """Collect what a reader must know to weigh or repeat the numbers."""
    first = found.traces[request.diagnostic][0].manifest
    model: dict[str, Any] = first.get("model") or {}
    shown, judged = ((request.diagnostic, request.promotion), request.judged)
    return {
        "model": f"{model.get('id')} ({model.get('architecture')}, {model.get('dtype')})",
        "weights, SHA-256": str(model.get("weights_sha256"))[:16],
        "intervals": "95%, t over articles (jackknife), layers a full set",
        "settings": _told(request.settings),
        "software": ", ".join(f"{name} {version}" for name, version in (first.get("software") or {}).items()),
        "recorded": str(first.get("created")),
        "texts of figure and tables, and how many 4-grams of the continuation are distinct": _texts(shown, found),
        "texts of the verdicts": _texts(judged, found),
    }


def _texts(settings: Sequence[Setting], found: Found) -> str:
    return "\n".join(_text(trace) for setting in settings for trace in found.traces[setting])


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
    content = {
        "model": made.model,
        "warnings": made.warnings,
        "claims": defined(summary(made.evaluated, made.compared)).to_dicts(),
        "checks": defined(made.evaluated).to_dicts(),
        "files": [str(file) for file in made.files],
    }
    return json.dumps(content, indent=1)
