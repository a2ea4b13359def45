"""What a figure is: its words, what has to be measured for it, and how it is drawn from measurements."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import polars as pl
from matplotlib.figure import Figure as Drawing

from qevict_diag.analyses.needs import Need
from qevict_diag.errors import InputError
from qevict_diag.metrics import metric as find_metric
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
    free: bool = False  # whether it can be drawn of other policies and of another metric than those of ``needs``

    def of(self, policies: Sequence[str], metric: str | None) -> Need:
        """What it needs of these policies and this metric, its own where none are given.

        InputError where it can show no others, and for a metric that there is not.
        """
        if not self.free and (policies or metric):
            raise InputError(
                f"figure {self.name} is of {', '.join(self.needs.policies)} by {', '.join(self.needs.metrics)}; leave "
                "--policy and --metric out"
            )
        named = self.needs.metrics if metric is None else (find_metric(metric).name,)
        return replace(self.needs, policies=tuple(policies) or self.needs.policies, metrics=named)
