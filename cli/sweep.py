"""`qevict-diag sweep`: the full grid of settings over many traces, as one job that can be killed and continued."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qevict_diag.cli import options

if TYPE_CHECKING:
    from qevict_diag.sweep import Engine, Sweep, SweepPlan

Budgets = Annotated[list[str] | None, typer.Option("--budget", help="Share of the FullKV bytes; repeat for several.")]
Windows = Annotated[
    list[int] | None,
    typer.Option(
        "--window", help="Window size; repeat for several. R1 and R4 keep theirs. Default: each policy's own."
    ),
]
Fractions = Annotated[
    list[str] | None, typer.Option("--quantized-fraction", help="Quantized share of the history; repeat for several.")
]
ManyBits = Annotated[list[int] | None, typer.Option("--bits", help="2 or 4; repeat for both.")]
Choices = Annotated[
    list[str] | None,
    typer.Option("--reading", help="NAME=VALUE, one more value of the sweep beside the defaults; repeat for several."),
]


def sweep(
    traces: options.Traces,
    out: Annotated[Path, typer.Option(help="Folder of the sweep; the same sweep continues there.")],
    policy: options.Policies = None,
    metric: Annotated[list[str] | None, typer.Option(help="Repeat for several, or all; see `metrics`.")] = None,
    budget: Budgets = None,
    window: Windows = None,
    quantized_fraction: Fractions = None,
    bits: ManyBits = None,
    reading: Choices = None,
    seed_draws: Annotated[int, typer.Option(help="Draws of every random policy asked for, as R3[random].")] = 3,
    sinks: options.Sinks = 5,
    recent: options.Recent = 32,
    horizon: options.Horizon = 32,
    min_inactive: options.Inactive = 3,
    device: options.Device = "cpu",
    dtype: options.Precision = "float32",
    layers_per_task: Annotated[int, typer.Option(help="Layers that one task computes.")] = 8,
    workers: Annotated[int, typer.Option(help="Processes on this machine.")] = 1,
    engine: Annotated[
        str, typer.Option(help="loky (this machine), dask or ray (a cluster; traces on shared storage).")
    ] = "loky",
    scheduler: Annotated[str | None, typer.Option(help="Address of the cluster's scheduler.")] = None,
    regret: Annotated[
        bool, typer.Option("--regret", help="Replay the optima O2 too, for regret in the table. Slow for R1.")
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print tasks, bytes and an estimate of the time; write nothing.")
    ] = False,
    skip_impossible: Annotated[
        bool, typer.Option("--skip-impossible", help="Leave out settings that fit no history.")
    ] = False,
    mix_models: Annotated[bool, typer.Option("--mix-models", help="Allow traces of different models.")] = False,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure every policy at every combination of budget, window, quantized fraction, bits and reading."""
    from qevict_diag.measure.models import one_model
    from qevict_diag.sweep import Engine, Sweep
    from qevict_diag.sweep import plan as estimate
    from qevict_diag.sweep.grid import Options

    opened = options.open_traces(traces)
    if not mix_models:
        one_model(opened, "--mix-models")
    grid = Sweep(
        traces=tuple(str(trace.path) for trace in opened),
        policies=tuple(policy or ("R1", "R2", "R3", "R4")),
        budgets=tuple(budget or ("1/5",)),
        windows=tuple(window or ()),
        quantized_fractions=tuple(quantized_fraction or ("1/2",)),
        bits=tuple(bits or (2,)),
        readings=("", *(reading or ())),
        draws=seed_draws,
        regret=regret,
        layers_per_task=layers_per_task,
        skip_impossible=skip_impossible,
        options=Options(
            metrics=tuple(metric or ("all",)),
            min_inactive=min_inactive,
            horizon=horizon,
            sinks=sinks,
            recent=recent,
            dtype=dtype,
            device=device,
        ),
    )
    where = Engine(engine, workers, scheduler)
    if plan:
        _print_plan(estimate(grid, out, workers), as_json)
    else:
        _run(grid, out, where, as_json, quiet)


def _run(grid: "Sweep", out: Path, where: "Engine", as_json: bool, quiet: bool) -> None:
    from qevict_diag.cli.progress import shown
    from qevict_diag.cli.show import say, say_json
    from qevict_diag.sweep import misfits, run
    from qevict_diag.trace.trace import Trace

    if grid.skip_impossible and not quiet:
        for misfit in misfits(grid, [Trace.open(path) for path in grid.traces]):
            say(f"skipped: {misfit.setting.words()} on {Path(misfit.trace).name}: {misfit.reason}", err=True)
    with shown(quiet) as progress:
        finished = run(grid, out, where, progress)
    found = {"sweep": str(out), **vars(finished)}
    if as_json:
        say_json(found)
    else:
        say(f"{out}: {finished.parts} parts, {finished.computed} computed now")


def _print_plan(planned: "SweepPlan", as_json: bool) -> None:
    import polars as pl

    from qevict_diag.cli.show import print_frame, say_json

    facts = {name: value for name, value in vars(planned).items() if name != "misfits"}
    rows = [{"setting": m.setting.words(), "trace": Path(m.trace).name, "reason": m.reason} for m in planned.misfits]
    if as_json:
        say_json({**facts, "does_not_fit": rows})
        return
    words = {
        "traces": str(planned.traces),
        "settings": str(planned.settings),
        "tasks": f"{planned.tasks}, {planned.missing} still to compute",
        "parts": f"about {planned.bytes / 2**20:.1f} MiB",
        "time": f"about {_duration(planned.seconds)} on {planned.workers} worker(s), from one timed layer of each kind",
    }
    print_frame(pl.DataFrame({"plan": list(words), "": list(words.values())}), as_json=False)
    if rows:
        print_frame(pl.DataFrame(rows), as_json=False, title="does not fit (refused unless --skip-impossible)")


def _duration(seconds: float) -> str:
    minutes = seconds / 60
    return f"{seconds:.0f} s" if seconds < 120 else f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
