"""One progress bar on stderr for work that counts its steps."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qevict_diag.trace.layer import Recorded


@contextmanager
def progress_bar(what: str, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A function (done, total) that moves the bar; it does nothing when quiet."""
    if quiet:
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def layers_bar(what: str, traces: "Sequence[Recorded]", quiet: bool) -> Iterator[Callable[[int], None]]:
    """A function that is told how many layers were just finished, of all recorded layers of the traces."""
    total = sum(len(trace.layers) for trace in traces)
    done = 0
    with progress_bar(what, quiet) as move:

        def finished(layers: int) -> None:
            nonlocal done
            done += layers
            move(done, total)

        yield finished
