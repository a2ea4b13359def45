"""`qevict-diag reproduce`: record, replay, measure, and write everything of the paper's diagnostics."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qevict_diag.cli import options

if TYPE_CHECKING:
    from qevict_diag.figures.report.write import Reproduction
    from qevict_diag.replay.settings import Settings


@options.with_settings("min_inactive", "device")
def reproduce(
    out: Annotated[Path, typer.Option(help="Folder for traces, figure, tables, claims and the page.")],
    model: Annotated[str, typer.Option(help="Alias, local folder, .gguf file or hub id.")] = "smollm2-135m",
    continuation: Annotated[
        str, typer.Option(help="greedy (the paper's) or teacher (the text's own next tokens; quicker).")
    ] = "greedy",
    *,
    settings: "Settings",
    revision: options.Revision = None,
    trust_remote_code: options.RemoteCode = False,
    accept_terms: options.Terms = False,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Record the built-in articles and write Figure 1, Tables 14-18, the claims and a one-page report."""
    from qevict_diag.analyses.reproduction import Request
    from qevict_diag.cli.progress import shown
    from qevict_diag.cli.show import say_json
    from qevict_diag.figures.report.write import as_json_text
    from qevict_diag.figures.report.write import reproduce as make

    terms = options.show_terms(accept_terms)
    request = Request(out, model, continuation, settings, revision, trust_remote_code, terms)
    with shown(quiet or as_json, keep=True) as progress:
        made = make(request, progress)
    if as_json:
        say_json(as_json_text(made))
    else:
        _print(made, out)


def _print(made: "Reproduction", out: Path) -> None:
    """Print each claim with its verdict, n and intervals, and what the readings make of it; then warnings and files."""
    from qevict_diag.analyses.claims.verdicts import summary
    from qevict_diag.cli.show import say

    for row in summary(made.evaluated, made.compared).iter_rows(named=True):
        say(f"{row['claim']:<6} {row['verdict']:<13} n = {row['n']}  {row['text']}")
        beside = [row[name] for name in ("readings", "remark") if row[name]]
        for told in (*(row["evidence"] or row["numbers"]).split("; "), *beside):
            say(f"       {told}")
    for warning in made.warnings:
        say()
        say(warning)
    say()
    say(f"{len(made.files)} files in {out}; open {out / 'index.html'}")
