"""What a table is: its words, what has to be measured for it, and how measurements fill it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import polars as pl

from qevict_diag.analyses.needs import Need
from qevict_diag.figures.tables.sheet import Sheet
from qevict_diag.replay.settings import Settings

Fill = Callable[[pl.DataFrame, pl.DataFrame, Settings], Sheet]  # of measurements, byte use, and their settings


@dataclass(frozen=True)
class Table:
    """One entry of the table of tables. ``of`` is which of the paper's recordings the report fills it from."""

    name: str
    summary: str
    needs: Need
    fill: Fill
    of: Literal["diagnostic", "promotion"] = "diagnostic"
