"""`qevict-diag readings`: the open questions of the paper, and under which answers its claims hold."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qevict_diag.cli import options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from qevict_diag.analyses.claims.checks import Setting
    from qevict_diag.replay.settings import Settings
    from qevict_diag.trace.layer import Recorded

SIGNS = {"holds": "yes", "does not hold": "NO", "no difference": "=", "undecided": "?", "not measured": "."}
LEGEND = (
    "yes: holds · NO: does not hold · =: no difference · .: not measured · first row: the defaults\n"
    "undecided: (+) estimate on the claimed side, (-) not on it, ? none"
)

Tested = Annotated[
    list[str] | None,
    typer.Option(
        "--reading",
        help="NAME=VALUE to test; with --search NAME to vary, NAME=VALUE to fix. Repeat for several. Default: all.",
    ),
]


@options.with_settings(*(name for name in options.SHARED if name != "reading"))
def readings(
    traces: Annotated[list[Path] | None, typer.Argument(help="Trace folders. Without any: list the readings.")] = None,
    reading: Tested = None,
    window: options.Window = None,
    search: Annotated[
        bool, typer.Option("--search", help="Try combinations; print those nearest to all published numbers at once.")
    ] = False,
    *,
    settings: "Settings",
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """List the readings; with traces, tell under which of them each claim of the paper holds.

    One reading is changed at a time. Traces that decode more than they prefill (256+1024) are for the claims about
    promotion, the others (512+256) for all the rest. With --search all combinations of the readings are tried, but for
    the scope, which is slow and varied only where it is named.
    """
    from qevict_diag.analyses.claims import sensitivity
    from qevict_diag.cli.progress import shown
    from qevict_diag.cli.show import print_frame
    from qevict_diag.errors import InputError
    from qevict_diag.measure.models import one_model
    from qevict_diag.sweep.engine import workers_here

    if not traces:
        print_frame(_catalogue(), as_json=as_json)
        return
    opened = options.open_traces(traces, one_length=False)
    one_model(opened)
    given = sensitivity.by_setting(opened)
    if search:
        if window is not None:
            raise InputError(
                "--search holds R1 to R4 against published numbers, at their own windows; leave --window out"
            )
        _search(given, settings, reading or [], as_json, quiet)
        return
    with shown(quiet) as progress:
        labels = reading or sensitivity.alternatives()
        workers = workers_here(settings.device)
        found = sensitivity.compare(given, settings, labels, window=window, workers=workers, progress=progress)
    if as_json:
        print_frame(found, as_json=True)
        return
    _print(found)


def _search(
    given: "Mapping[Setting, Sequence[Recorded]]", settings: "Settings", words: list[str], as_json: bool, quiet: bool
) -> None:
    """Print the combinations nearest to the published numbers, and how far the nearest is from each."""
    import polars as pl

    from qevict_diag.analyses.claims.search import NOT_IDENTIFIED, ranked, search
    from qevict_diag.analyses.claims.targets import targets
    from qevict_diag.cli.progress import shown
    from qevict_diag.cli.show import print_frame, say
    from qevict_diag.sweep.engine import workers_here

    with shown(quiet) as progress:
        workers = workers_here(settings.device)
        found, tried = search(given, settings, words, targets(settings), workers=workers, progress=progress)
    if as_json:
        print_frame(found, as_json=True)
        return
    told = ranked(found).with_columns(pl.col("readings").replace("", "(nothing varied)"))
    first = found.filter(rank=1).drop("rank", "readings", "distance")
    print_frame(told, as_json=False, title="distance to all published numbers, in units of our intervals")
    print_frame(first, as_json=False, title="the nearest combination")
    say(NOT_IDENTIFIED.format(tried=tried, values=len(first)))


def _print(found: "pl.DataFrame") -> None:
    """Print the verdicts as a matrix, then how each claim fares, then every verdict that is not the default's."""
    from qevict_diag.analyses.claims import sensitivity, verdicts
    from qevict_diag.cli.show import say

    claims = found["claim"].unique(maintain_order=True).to_list()
    lines = ["".join((f"{'reading':<33}", *(f"{claim:>7}" for claim in claims)))]
    for (letter, reading), rows in found.group_by("letter", "reading", maintain_order=True):
        signs = (f"{_sign(row):>7}" for row in rows.iter_rows(named=True))
        lines.append("".join((f"{letter or '':<2}{reading or '(defaults)':<31}", *signs)))
    lines += ["", LEGEND, ""]
    lines += [f"{claim}: {told}" for claim, told in verdicts.standing(found).items() if told]
    changed = sensitivity.changes(found)
    lines += ["", f"{len(changed)} verdicts are not the default's:" if len(changed) else "No verdict changes."]
    for row in changed.iter_rows(named=True):
        lines.append(f"{row['reading']}: {row['claim']} {row['default']} -> {row['verdict']} ({row['numbers']})")
    for line in lines:
        say(line)


def _sign(row: "dict[str, str]") -> str:
    """A verdict in three characters at most; the side of the estimate where it is undecided."""
    return f"({row['sign']})" if row["verdict"] == "undecided" and row["sign"] else SIGNS[row["verdict"]]


def _catalogue() -> "pl.DataFrame":
    import polars as pl

    from qevict_diag.readings import READINGS

    known = [
        {
            "letter": r.letter,
            "name": r.name,
            "default": r.default,
            "also": " ".join(r.values[1:]),
            "question": r.question,
        }
        for r in READINGS
    ]
    return pl.DataFrame(known)
