"""What a figure is: its words, what has to be measured for it, and how it is drawn from measurements."""

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl
from matplotlib.figure import Figure as Drawing

from qevict_diag.analyses.needs import Need
from qevict_diag.replay.settings import Settings

Draw = Callable[[pl.DataFrame, pl.DataFrame, Settings], Drawing]  # of measurements, byte use, and their settings


@dataclass(frozen=True)
class Figure:
    """One entry of the table of figures. The report shows those that have a ``title`` for it."""

    name: str
    summary: str
    needs: Need
    draw: Draw
    file: str = ""  # what the report calls its files; the name, if empty
    title: str = ""
    caption: str = ""  # HTML
