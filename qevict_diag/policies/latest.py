"""The latest intervals that an estimator remembers."""

from torch import Tensor

History = tuple[tuple[int, Tensor], ...]  # queries of an interval, and what is remembered of it


def latest(history: History, interval: tuple[int, Tensor], queries: int) -> History:
    """Append an interval and drop leading ones as long as the rest still covers ``queries`` queries."""
    kept = (*history, interval)
    while sum(length for length, _ in kept[1:]) >= queries:
        kept = kept[1:]
    return kept
