"""How many articles it would take to decide (definitions.md, section 12)."""

import numpy as np
import scipy

from qevict_diag.statistics.intervals import CONFIDENCE, UNDEFINED, Statistic

FEWEST = 5  # articles from which their spread says how many it would take
POWER = 0.8


def needed(found: Statistic, null: float = 0.0, power: float = POWER) -> int:
    """Articles with which a two-sided t-test tells a statistic from ``null`` with the given power.

    The smallest n with (t[1-α/2, n-1] + t[power, n-1]) · s / √n <= |θ - null|, where the spread between articles
    s = se · √(articles) is the one that was seen. Needs two articles and an effect; meant for `FEWEST` and more.
    """
    spread, n = found.error * found.n**0.5, 2
    while sum(scipy.stats.t.ppf(((1 + CONFIDENCE) / 2, power), n - 1)) * spread / n**0.5 > abs(found.estimate - null):
        n += 1
    return n


def more_articles(found: Statistic, null: float = 0.0) -> str:
    """Say what it would take to tell a statistic from ``null``: a number only where so many articles bear one out."""
    own = found.alone[~np.isnan(found.alone)] - null
    other = int((own * (found.estimate - null) <= 0).sum())
    if found.n < 2:
        return "one article says nothing about others; record at least one more"
    if np.isnan(found.error):
        return f"{UNDEFINED.removeprefix('none: ')}; record more"
    if found.n < FEWEST:
        return f"{found.n} articles are too few to tell how many it takes; record more"
    if other:
        return f"the articles disagree: {other} of {found.n} point the other way or nowhere"
    more = max(0, needed(found, null) - found.n)
    return f"about {more} more articles needed" if more else "enough articles"
