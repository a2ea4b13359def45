"""What a metric is: its words, how it is averaged, what a replay keeps for it, and its tidy rows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from qevict_diag.replay.fold import Fold
from qevict_diag.replay.result import Replay

How = Literal["mean", "pooled"]  # over values, or a ratio of the sums of numerators and denominators


@dataclass(frozen=True)
class Metric:
    """One entry of the table of metrics. ``rows`` gives frames with the columns of a measurement that it has."""

    name: str
    summary: str
    unit: str
    better: str
    label: str  # on an axis
    rows: Callable[[Replay], Iterator[pl.DataFrame]]
    how: How = "mean"
    folds: tuple[Fold, ...] = ()
    group: str | None = None  # the one of several groups that is shown where there is room for one
    lag: int | None = None  # likewise of several lags
    readings: tuple[str, ...] = ()  # that change the measurement but no decision
    by_name: bool = False  # measured only where its name is given; not among `all`

    @property
    def scale(self) -> int:
        """What a value is multiplied by on an axis: shares are shown in percent."""
        return 100 if self.unit == "share" else 1


def axes(run: Replay, **more: Sequence[int]) -> dict[str, Sequence[int | None]]:
    """Axes of a tensor [layer, unit, ..]: units are named in ``head``, which is null when the layer is one unit."""
    return {"layer": run.layers, "head": run.unit_numbers, **more}


def timed(run: Replay, frame: pl.DataFrame) -> pl.DataFrame:
    """Add the decode queries before each row's event."""
    return frame.with_columns(step=pl.col("event") * run.grid.every)
