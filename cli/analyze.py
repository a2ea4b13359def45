"""`qevict-diag analyze`: replay policies on traces and measure them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qevict_diag.cli import options

if TYPE_CHECKING:
    from qevict_diag.replay.settings import Settings


@options.with_settings()
def analyze(
    traces: options.Traces,
    metric: Annotated[list[str] | None, typer.Option(help="Repeat for several, or all; see `metrics`.")] = None,
    policy: options.Policies = None,
    window: options.Window = None,
    *,
    settings: "Settings",
    out: Annotated[Path | None, typer.Option(help="Write every row: .parquet, .csv or .json.")] = None,
    as_json: options.AsJson = False,
    regret: Annotated[
        bool, typer.Option("--regret", help="Add the optimum O2: regret, and the share of the gap closed. Slow for R1.")
    ] = False,
    mix_models: Annotated[bool, typer.Option("--mix-models", help="Allow traces of different models.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure what each policy throws away, and print one summary row per policy and metric.

    Where Future Missed Mass is measured, a column says what chance would miss: as many windows, kept at random.
    """
    import polars as pl

    from qevict_diag.analyses.summary import readable, summarize
    from qevict_diag.cli.progress import shown
    from qevict_diag.cli.show import print_frame, say
    from qevict_diag.errors import InputError
    from qevict_diag.frame_files import check_frame_file, write_frame
    from qevict_diag.measure.models import one_model
    from qevict_diag.measure.traces import measure, metric_names
    from qevict_diag.policies.arms import BOUNDED, bounds
    from qevict_diag.policies.catalogue import policies

    if out is not None:
        check_frame_file(out)
    chosen = policies(policy or ("R1", "R2", "R3", "R4"), window=window)
    names = metric_names(metric or ["all"])
    also = [(bounds(chosen), BOUNDED)] if regret and "fmm" in names else []
    measured = (*names, "chance") if "fmm" in names and "chance" not in names else names
    opened = options.open_traces(traces)
    if not mix_models:
        one_model(opened, "--mix-models")
    options.say_notes(opened, chosen, settings)
    with shown(quiet) as progress:
        found = measure(opened, chosen, measured, settings, also=also, progress=progress)
    frame = found.frame
    missing = sorted(set(names) - set(frame["metric"].unique()))
    if missing:
        told = f"no rows of {', '.join(missing)} for {', '.join(one.name for one in chosen)}"
        hint = "QSA and R_Q need a quantized tier with room (R3, R4, --quantized-fraction above 0)"
        if len(missing) == len(names):
            raise InputError(f"{told}; {hint}")
        say(f"{told}; {hint}", err=True)
    if out is not None:
        write_frame(frame, out)
    summary = summarize(frame, settings)
    if "chance" not in (metric or ()):  # it stands beside Future Missed Mass
        summary = summary.filter(pl.col("metric") != "chance")
    print_frame(summary if as_json else readable(summary), as_json=as_json)
