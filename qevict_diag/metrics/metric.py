"""Each metric of a replay as tidy rows: the thin labelled layer over the pure functions of `qevict_diag.metrics`."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from qevict_diag.replay.result import Replay


def _axes(run: Replay, **more: Sequence[int]) -> dict[str, Sequence[int | None]]:
    """Axes of a tensor [layer, unit, ..]: units are named in ``head``, which is null when the layer is one unit."""
    return {"layer": run.layers, "head": run.unit_numbers, **more}


def _timed(run: Replay, frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(step=pl.col("event") * run.grid.window)


@dataclass(frozen=True)
class Metric:
    """A metric's name, what it measures, its unit and which direction is better for a policy."""

    name: str
    summary: str
    unit: str
    better: str
