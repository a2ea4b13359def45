"""How far a long piece of work is: one way of telling it, whoever works and whoever shows it.

Work tells a stage by name, how many of its steps are done and how many there are, as often as it likes; the last call
of a stage has ``done == total``. What a step is, a layer or a part, is the work's own affair.
"""

from collections.abc import Callable
from dataclasses import dataclass

Progress = Callable[[str, int, int], None]  # stage, steps done, of how many


def silent(stage: str, done: int, total: int) -> None:
    """Tell nobody."""


def part_of(progress: Progress, stage: str, before: int = 0, total: int | None = None) -> Progress:
    """Progress of a part, told as ``stage``: after ``before`` steps, of ``total`` or as many as the part has."""
    return lambda _, done, own: progress(stage, before + done, own if total is None else total)


@dataclass
class Steps:
    """Count the steps of a stage; each call adds some and tells."""

    progress: Progress
    stage: str
    total: int
    done: int = 0

    def __call__(self, count: int = 1) -> None:
        """So many more steps are done."""
        self.done += count
        self.progress(self.stage, self.done, self.total)
