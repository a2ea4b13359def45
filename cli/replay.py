"""`qevict-diag replay`: the decisions of policies, as a tidy frame."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qevict_diag.cli import options

if TYPE_CHECKING:
    from qevict_diag.replay.settings import Settings


@options.with_settings("budget", "sinks", "recent", "quantized_fraction", "bits", "reading", "device", "dtype")
def replay(
    traces: options.Traces,
    out: Annotated[Path, typer.Option(help="Where the decisions go: .parquet, .csv or .json.")],
    policy: options.Policies = None,
    window: options.Window = None,
    *,
    settings: "Settings",
    quiet: options.Quiet = False,
) -> None:
    """Replay policies and write the tier of every window at every event."""
    from qevict_diag.cli.progress import shown
    from qevict_diag.cli.show import say
    from qevict_diag.frame_files import check_frame_file, write_frame
    from qevict_diag.measure.decisions import all_decisions
    from qevict_diag.policies.catalogue import policies

    check_frame_file(out)
    chosen = policies(policy or ("R3",), window=window)
    opened = options.open_traces(traces)
    with shown(quiet) as progress:
        frame = all_decisions(opened, chosen, settings, progress=progress)
    write_frame(frame, out)
    say(f"{out}: {len(frame)} rows")
