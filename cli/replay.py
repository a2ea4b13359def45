"""`qevict-diag replay`: the decisions of policies, as a tidy frame."""

from pathlib import Path
from typing import Annotated

import typer

from qevict_diag.cli import options


def replay(
    traces: options.Traces,
    out: Annotated[Path, typer.Option(help="Where the decisions go: .parquet, .csv or .json.")],
    policy: options.Policies = None,
    budget: options.Ratio = "1/5",
    sinks: options.Sinks = 5,
    recent: options.Recent = 32,
    window: options.Window = None,
    quantized_fraction: options.Fraction = "1/2",
    bits: options.Bits = 2,
    reading: options.ReadingChoices = None,
    device: options.Device = "cpu",
    dtype: options.Precision = "float32",
    quiet: options.Quiet = False,
) -> None:
    """Replay policies and write the tier of every window at every event."""
    from qevict_diag.cli.progress import layers_bar
    from qevict_diag.cli.show import check_suffix, write_frame
    from qevict_diag.measure.decisions import all_decisions
    from qevict_diag.policies.catalogue import policies

    check_suffix(out)
    settings = options.settings(budget, sinks, recent, quantized_fraction, bits, 32, reading, device, dtype)
    chosen = policies(policy or ("R3",), window=window)
    opened = options.open_traces(traces)
    with layers_bar("replaying", opened, quiet) as progress:
        frame = all_decisions(opened, chosen, settings, progress=progress)
    write_frame(frame, out)
    typer.echo(f"{out}: {len(frame)} rows")
