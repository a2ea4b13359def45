"""Future Missed Mass of policies, and how far each lies from another one on the same articles."""

from collections.abc import Mapping, Sequence

import polars as pl

from qevict_diag.analyses.estimates import cells, described, rows_of, sample
from qevict_diag.statistics.intervals import minus


def against(frame: pl.DataFrame, other: Mapping[str, str], by: Sequence[str] = ()) -> pl.DataFrame:
    """One row for each policy of ``other``: FMM with its interval, and less that of the policy it is held against.

    Columns: policy, reading and ``by``, the interval's, then ``difference``, ``difference_low`` and
    ``difference_high``, paired over articles.
    """
    rows = rows_of(frame, "fmm").filter(pl.col("policy").is_in(other))
    over = sample(rows)
    counted = cells(rows, over, ("policy", "reading", *by), "mean")
    place = {policy: at for at, policy in enumerate(counted.keys["policy"])}
    found = [counted.at([at, place[other[policy]]]).statistic(minus).interval() for policy, at in place.items()]
    return described(counted, over).with_columns(
        difference=pl.Series([one.estimate for one in found]),
        difference_low=pl.Series([one.low for one in found]),
        difference_high=pl.Series([one.high for one in found]),
    )
