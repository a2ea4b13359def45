"""The latest intervals that an estimator remembers."""

from torch import Tensor


def latest(history: tuple, interval: tuple[int, Tensor], queries: int) -> tuple:
    """Append an interval and drop leading ones as long as the rest still covers ``queries`` queries."""
    kept = (*history, interval)
    while sum(length for length, _ in kept[1:]) >= queries:
        kept = kept[1:]
    return kept
