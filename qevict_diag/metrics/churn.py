"""Selection Churn (definitions.md, section 7; paper I.2): ``1 - |R_r ∩ R_{r+1}| / |R_r ∪ R_{r+1}|``.

One swap in a set of K windows costs 1 - (K-1)/(K+1), so values at different window sizes are not comparable: counts are
returned, from which swaps per event follow (half the symmetric difference).
"""

from collections.abc import Iterator

import polars as pl
from torch import Tensor

from qevict_diag.cache.tier import Tier
from qevict_diag.frames import rows
from qevict_diag.metrics.arithmetic import count, ratio
from qevict_diag.metrics.metric import Metric, axes, timed
from qevict_diag.replay.result import Replay


def churn_counts(selected: Tensor) -> tuple[Tensor, Tensor]:
    """Sizes of the symmetric difference and of the union of consecutive sets, [.., event - 1].

    ``selected`` bool [.., event, window]. Multiply by Ω for tokens.
    """
    now, after = selected[..., :-1, :], selected[..., 1:, :]
    return count(now ^ after), count(now | after)


def jaccard(difference: Tensor, union: Tensor) -> Tensor:
    """Jaccard distance of two sets from the sizes of `churn_counts`; 0 when both are empty."""
    return ratio(difference.double(), union.double()).nan_to_num(0.0)


def churn(selected: Tensor) -> Tensor:
    """Jaccard distance of consecutive sets, [.., event - 1]."""
    return jaccard(*churn_counts(selected))


def churn_rows(run: Replay) -> Iterator[pl.DataFrame]:
    """One row per layer and pair of consecutive events, at the later event; counts in tokens."""
    full_only = run.plan.settings.readings.churn_set == "full"
    selected = run.tier == Tier.FULL if full_only else run.retained
    difference, union = (count.double() * run.grid.window for count in churn_counts(selected))
    value = jaccard(difference, union)
    where = axes(run, event=range(1, run.grid.events))
    yield timed(run, rows(where, value=value, numerator=difference, denominator=union))


METRIC = Metric(
    "churn",
    "Selection Churn: Jaccard distance of consecutive retained sets",
    *("share", "lower", "Selection Churn (%)"),
    rows=churn_rows,
    readings=("churn_set",),
)
