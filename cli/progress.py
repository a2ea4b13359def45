"""Progress on stderr: one bar for each stage that work tells of."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from qevict_diag.cli.show import console
from qevict_diag.plain import plain
from qevict_diag.progress import Progress, silent

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID


@contextmanager
def shown(quiet: bool, *, keep: bool = False) -> Iterator[Progress]:
    """A `Progress` that draws on stderr, or one that says nothing when quiet; ``keep`` leaves finished bars there."""
    if quiet:
        yield silent
        return
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    time = TimeElapsedColumn() if keep else TimeRemainingColumn()
    columns = (TextColumn("{task.description:<24}", markup=False), BarColumn(), TaskProgressColumn(), time)
    drawn = _Drawn(Progress(*columns, console=console(err=True), transient=not keep))
    try:
        yield drawn
    finally:
        drawn.end()


class _Drawn:
    """One bar for each stage, added when it is first told of; nothing is drawn before the first."""

    def __init__(self, bars: "Bars") -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        if not self._tasks:
            self._bars.start()
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(plain(stage), total=total)
        self._bars.update(self._tasks[stage], completed=done, total=total)

    def end(self) -> None:
        if self._tasks:
            self._bars.stop()
