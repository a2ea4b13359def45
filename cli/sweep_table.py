"""`qevict-diag sweep-table`: print a sweep."""

from pathlib import Path
from typing import Annotated

import typer

from qevict_diag.cli import options


def sweep_table(
    sweep: Annotated[Path, typer.Argument(help="Folder of the sweep.")],
    metric: Annotated[str, typer.Option(help="Which metric; see `metrics`.")] = "fmm",
    model: options.OneModel = None,
    partial: options.Partial = False,
    out: Annotated[Path | None, typer.Option(help="Write the table: .parquet, .csv or .json.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Print one metric of every policy at every setting, with the bytes used and, for FMM, chance and regret.

    Chance is a random set of as many windows, in closed form. Regret to the optimum needs a sweep that replayed the
    optima: `sweep --regret`.
    """
    import polars as pl

    from qevict_diag.analyses.summary import interval_in_words
    from qevict_diag.analyses.sweeps import AXES, beside, sweep_table
    from qevict_diag.cli.show import print_frame
    from qevict_diag.frame_files import check_frame_file, write_frame
    from qevict_diag.metrics import metric as find_metric
    from qevict_diag.sweep import read

    if out is not None:
        check_frame_file(out)
    frames = read(sweep, partial=partial).of(model)
    find_metric(metric)
    rows = frames.measurements.filter(pl.col("metric").is_in(beside(metric))).collect()
    table = sweep_table(rows, frames.bytes.collect(), metric, frames.min_inactive)
    if out is not None:
        write_frame(table, out)
    varied = [name for name in AXES if table[name].drop_nulls().n_unique() > 1]
    numbers = ("bytes", "estimate", interval_in_words(), "chance", "regret", "closed", pl.col("count").alias("rows"))
    told = table.select("policy", *varied, "group", "lag", *numbers)
    print_frame(table if as_json else told, as_json=as_json)
