"""What a figure of a sweep is: its words, and how it is drawn from the sweep's rows."""

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl
from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Swept:
    """What it is drawn from: the rows of one ``metric`` (and of chance beside FMM), and the byte use.

    ``policy`` is what is shown where there is room for one; ``min_inactive`` is the m at which Global LIR is shown.
    """

    rows: pl.DataFrame
    bytes: pl.DataFrame
    metric: str
    policy: str
    min_inactive: int


@dataclass(frozen=True)
class SweepFigure:
    """One entry of the table of a sweep's figures. ``metric`` is the only one that it shows; any, if empty."""

    name: str
    summary: str
    draw: Callable[[Swept], Figure]
    metric: str = ""
