"""One HTML page with everything that `reproduce` found: self-contained, no script, nothing fetched.

Claims first, then Figure 1, then the layers, then the tables with the published values beside ours, then what the
numbers do not mean.
"""

import html as markup
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from qevict_diag.analyses.claims import evaluate as claims
from qevict_diag.analyses.claims.verdicts import summary, told
from qevict_diag.figures.figure import Figure
from qevict_diag.figures.report.strip import strip
from qevict_diag.figures.tables.claims import claimed
from qevict_diag.figures.tables.formats import html
from qevict_diag.figures.tables.sheet import Sheet
from qevict_diag.plain import plain

MARKS = {
    claims.HOLDS: ("✓", "holds"),
    claims.FAILS: ("✗", "fails"),
    claims.SAME: ("=", "open"),
    claims.UNDECIDED: ("?", "open"),
    claims.UNMEASURED: ("·", "open"),
}
MEANING = """
<p>The numbers say which attention mass a policy gives up, on these texts, for this model, under teacher forcing:
the queries are those of the uncompressed run. They do not say whether an answer would have been wrong. Attention mass
is not task accuracy, and a policy that misses less of it is not thereby the better cache.</p>
<p>The published values are from Llama-3.1-8B-Instruct on two other texts. They stand beside ours for comparison; a
difference between the two is a difference between models and texts as much as between programs.</p>
<p>Articles are the sample; a model's layers and heads are all there are. Intervals are t intervals over articles, and
the spread over layers is a result of its own, not an error bar. With two articles an interval is wide, as it must be:
two texts know little about a third. Record more to decide more.</p>
<p>Every verdict hangs on how the paper is read where it can be read in several ways. What becomes of it under the
other readings stands beside it; one that other readings change is a statement about a reading.</p>
"""
STYLE = """
:root { --ink: #1d2329; --muted: #667079; --line: #dfe3e6; --blue: #0b4f8a; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1180px; padding: 40px 28px 80px; color: var(--ink); background: #fff;
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 27px; line-height: 1.2; margin: 0 0 6px; letter-spacing: -.01em; }
h2 { font-size: 19px; margin: 44px 0 12px; padding-top: 14px; border-top: 1px solid var(--line); }
.lead { color: var(--muted); margin: 0 0 18px; max-width: 78ch; }
dl.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(200px, 1fr)); gap: 10px 24px; margin: 18px 0; }
dl.facts .wide { grid-column: span 2; }
dl.facts dt { color: var(--muted); font-size: 12.5px; } dl.facts dd { margin: 0; overflow-wrap: anywhere; }
.warning { border-left: 3px solid #c26a1a; background: #fdf3e8; padding: 9px 14px; margin: 0 0 10px; }
.tally { display: flex; gap: 10px; flex-wrap: wrap; margin: 0 0 16px; }
.tally span, .mark { border-radius: 4px; padding: 2px 9px; font-size: 13px; white-space: nowrap; font-weight: 600; }
.holds { background: #dcefe6; color: #0b5d3f; } .fails { background: #fbe0d2; color: #8f3200; }
.open { background: #eceff1; color: #4a545c; }
table.claims { border-collapse: collapse; width: 100%; font-size: 14px; }
table.claims td { border-top: 1px solid var(--line); padding: 9px 12px 9px 0; vertical-align: top; }
table.claims td:first-child { font-weight: 600; width: 54px; } table.claims td:nth-child(2) { width: 130px; }
.checks { color: var(--muted); font-size: 13px; margin: 4px 0 0; padding: 0; list-style: none;
  font-variant-numeric: tabular-nums; }
.strip { vertical-align: -3px; margin-left: 8px; }
.place { color: var(--muted); font-size: 12.5px; }
figure { margin: 0; } figure svg { width: 100%; height: auto; display: block; }
figcaption, .small { color: var(--muted); font-size: 13px; max-width: 92ch; margin-top: 10px; }
.table { overflow-x: auto; margin: 22px 0 30px; padding-bottom: 4px; }
.table tbody td { white-space: nowrap; } .table td.gt_sourcenote { white-space: normal; }
.table table { width: auto !important; margin-left: 0 !important; }
a { color: var(--blue); } p { max-width: 82ch; }
@media print { body { max-width: none; padding: 0; } h2 { break-after: avoid; } .table { break-inside: avoid; } }
"""


@dataclass(frozen=True, eq=False)
class Report:
    """What the page shows; ``compared`` has the verdicts under every reading, where they were computed."""

    model: str
    evaluated: pl.DataFrame
    drawn: Sequence[tuple[Figure, str]]  # and its SVG
    tables: Sequence[Sheet]
    compared: pl.DataFrame | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    files: Sequence[str] = ()
    warnings: Sequence[str] = ()
    judged: str = ""  # what the verdicts rest on
    shown: str = ""  # what figure and tables are of


def page(report: Report) -> str:
    """Write the whole page."""
    claimed_ = summary(report.evaluated, report.compared)
    title = f"What KV-cache policies discard on {report.model}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="lead">{LEAD}</p>',
        _facts(report.facts),
        *(f'<p class="warning">{escape(warning)}</p>' for warning in report.warnings),
        "<h2>The paper's twelve claims</h2>",
        _small(f"Verdicts rest on {report.judged}: the texts' own words." if report.judged else ""),
        _tally(claimed_),
        _claims(claimed_, report.evaluated),
        *(_figure(figure, svg) for figure, svg in report.drawn),
        "<h2>Tables 14 to 18, and the worst heads</h2>",
        _small(f"Figures and tables are of {report.shown}." if report.shown else ""),
        *(f'<div class="table">{html(table)}</div>' for table in report.tables),
        f"<h2>What the numbers mean, and what they do not</h2>{MEANING}",
        _files(report.files),
    ]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n'
    )


LEAD = (
    "One uncompressed run was recorded for each text, the cache policies R1 to R4 were replayed against it, and what "
    "they made inaccessible was weighed with the attention that the uncompressed run went on to pay."
)


def escape(text: str) -> str:
    """Text that may be others' as HTML: `plain`, and no markup."""
    return markup.escape(plain(text))


def _facts(facts: Mapping[str, str]) -> str:
    items = [_fact(name, value.split("\n")) for name, value in facts.items()]
    return f'<dl class="facts">{"".join(items)}</dl>'


def _fact(name: str, lines: Sequence[str]) -> str:
    wide = ' class="wide"' if len(lines) > 1 else ""
    return f"<div{wide}><dt>{escape(name)}</dt><dd>{'<br>'.join(map(escape, lines))}</dd></div>"


def _figure(figure: Figure, svg: str) -> str:
    return f"<h2>{figure.title}</h2><figure>{_inline(svg)}<figcaption>{figure.caption}</figcaption></figure>"


def _small(told: str) -> str:
    return f'<p class="small">{escape(told)}</p>' if told else ""


def _tally(summary: pl.DataFrame) -> str:
    counts = dict(summary["verdict"].value_counts().rows())
    spans = [
        f'<span class="{style}">{mark} {counts[verdict]} {verdict}</span>'
        for verdict, (mark, style) in MARKS.items()
        if verdict in counts
    ]
    return f'<div class="tally">{"".join(spans)}</div>'


def _claims(claims_: pl.DataFrame, evaluated: pl.DataFrame) -> str:
    rows = [_claim(claim, evaluated.filter(claim=claim["claim"])) for claim in claims_.iter_rows(named=True)]
    return f'<table class="claims">{"".join(rows)}</table>'


def _claim(claim: Mapping[str, Any], checks: pl.DataFrame) -> str:
    """One claim: its verdict with n, the paper's words, its checks, and what has to be read beside them."""
    items = "".join(f"<li>{_check(check)}</li>" for check in checks.iter_rows(named=True))
    mark, style = MARKS[claim["verdict"]]
    beside = [f'<div class="place">{escape(claim[x])}</div>' for x in ("readings", "remark", "more") if claim[x]]
    n = f'<div class="place">n = {claim["n"]}</div>' if claim["n"] else ""
    return (
        f'<tr><td>{claim["claim"]}</td><td><span class="mark {style}">{mark} {claim["verdict"]}</span>{n}</td>'
        f'<td>{escape(claim["text"])} <span class="place">({escape(claim["place"])})</span>'
        f'<ul class="checks">{items}</ul>{"".join(beside)}</td></tr>'
    )


def _check(check: Mapping[str, Any]) -> str:
    """Write a check on one line: statistic, estimate, interval, threshold and its own verdict, with its drawing."""
    if check["verdict"] == claims.UNMEASURED:
        return escape(f"{check['statistic']}: {check['verdict']}; {check['numbers']}")
    side = claimed(check["side"], check["threshold"], check["word"], check["margin"])
    verdict = f": {check['verdict']}" if check["counts"] else ""
    return escape(f"{told(check)}, {side}{verdict}. {check['numbers']}") + strip(check)


def _inline(svg: str) -> str:
    """Take the XML prolog off, so that the drawing can stand inside a page."""
    return svg[svg.index("<svg") :]


def _files(files: Sequence[str]) -> str:
    links = ", ".join(f'<a href="{escape(name)}">{escape(name)}</a>' for name in files)
    return f'<h2>Files</h2><p class="small">{links}</p>' if files else ""
