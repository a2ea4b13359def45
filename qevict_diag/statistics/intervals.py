"""Intervals, paired differences and multiplicity: how sure a number is, and what would make it surer.

The unit of replication is the article (one trace each); the layers of an article are measured together and hang
together, so they are resampled *within* their article. Every statistic is a function of sums over the cells
(article, layer): a mean is Σ values / Σ 1, a pooled rate Σ events / Σ trials, and cells that were resampled together
serve every policy, which is what makes a difference between policies paired.

One article gives no interval: `Interval.low` and `high` are NaN and `method` says so.
"""

import math
import warnings
from dataclasses import dataclass, replace

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from qevict_diag.errors import InputError

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
RESAMPLES = 2000
ONE_ARTICLE = "none: one article gives no interval"
NOTHING = "none: nothing was counted"
MOST_ARTICLES = 10_000


@dataclass(frozen=True)
class Interval:
    """An estimate, its confidence limits (NaN when there are none), how they were made, and the number of units."""

    estimate: float
    low: float
    high: float
    method: str
    n: int

    @property
    def bounded(self) -> bool:
        """Whether there are limits at all."""
        return not (math.isnan(self.low) or math.isnan(self.high))


@dataclass(frozen=True)
class Difference:
    """A paired difference ``first - second`` on the same cells, with its two-sided bootstrap p-value (NaN if none)."""

    interval: Interval
    p_value: float


@dataclass(frozen=True)
class Detectable:
    """The smallest true effect that ``n`` articles would show, and how many would show the one that was seen."""

    effect: float
    n: int
    needed: int | None  # None: unknown (one article, no effect, or more than MOST_ARTICLES)

    def words(self) -> str:
        """Say what to do about it."""
        if math.isnan(self.effect):
            return "one article says nothing about others; record at least one more"
        if self.needed is None:
            return f"the effect is too small to be worth chasing: more than {MOST_ARTICLES} articles"
        more = max(0, self.needed - self.n)
        return f"about {more} more articles needed" if more else "enough articles"


def wilson(successes: int, trials: int, confidence: float = CONFIDENCE) -> Interval:
    """Wilson score interval of a pooled proportion; NaN throughout when there were no trials.

    It treats all trials as independent, which windows of one article are not: read it beside a bootstrap.
    Raises InputError unless ``0 <= successes <= trials``. Source: Wilson 1927, by way of scipy.
    """
    if not 0 <= successes <= trials:
        raise InputError(f"{successes} successes in {trials} trials: successes must lie in 0..trials")
    if trials == 0:
        return Interval(math.nan, math.nan, math.nan, "none: no trial", 0)
    limits = scipy.stats.binomtest(successes, trials).proportion_ci(confidence, method="wilson")
    return Interval(successes / trials, float(limits.low), float(limits.high), "Wilson", trials)


def trace_bootstrap(
    numerator: ArrayLike,
    denominator: ArrayLike,
    rng: np.random.Generator,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
) -> Interval:
    """Percentile interval of ``Σ numerator / Σ denominator`` when whole traces are resampled; both are [trace]."""
    num, den = _same_shape(numerator, denominator)
    interval = Interval(_ratio(num.sum(), den.sum()), math.nan, math.nan, ONE_ARTICLE, num.size)
    if num.size < 2:
        return interval
    with warnings.catch_warnings():  # a resample without any trial is NaN, left out of the limits below
        warnings.simplefilter("ignore", scipy.stats.DegenerateDataWarning)
        result = scipy.stats.bootstrap(
            (num, den),
            lambda top, bottom, axis: ratios(top.sum(axis), bottom.sum(axis)),
            paired=True,
            vectorized=True,
            method="percentile",
            confidence_level=confidence,
            n_resamples=resamples,
            rng=rng,
        )
    limits = _limits(result.bootstrap_distribution, confidence)
    return replace(interval, low=limits[0], high=limits[1], method="trace bootstrap")


def two_level_weights(articles: int, layers: int, rng: np.random.Generator, resamples: int = RESAMPLES) -> Floats:
    """How often each cell is drawn, [resample, article, layer]: articles with replacement, then layers within each.

    An article drawn c times has its layers drawn c·layers times in all, independently each time.
    """
    times = rng.multinomial(articles, np.full(articles, 1 / articles), size=resamples)
    return rng.multinomial(times * layers, np.full(layers, 1 / layers)).astype(np.float64)


def resampled_sums(cells: ArrayLike, weights: Floats) -> Floats:
    """Sum over the drawn cells, [resample, ...], of ``cells`` [..., article, layer]."""
    values = np.asarray(cells, dtype=np.float64)
    flat = values.reshape(*values.shape[:-2], -1)
    return np.moveaxis(flat @ weights.reshape(len(weights), -1).T, -1, 0)


def articles_of(*denominators: Floats) -> int:
    """In how many articles every one of these counted something; each is [.., article, layer]."""
    counted = [part.sum(-1).reshape(-1, part.shape[-2]) > 0 for part in denominators]
    return int(np.concatenate(counted).all(axis=0).sum())


def two_level(
    numerator: ArrayLike, denominator: ArrayLike, weights: Floats, confidence: float = CONFIDENCE
) -> Interval:
    """Two-level bootstrap percentile interval of ``Σ numerator / Σ denominator``; both are [article, layer]."""
    num, den = _same_shape(numerator, denominator)
    draws = ratios(resampled_sums(num, weights), resampled_sums(den, weights))
    return interval_of(_ratio(num.sum(), den.sum()), draws, articles_of(den), confidence)


def interval_of(estimate: float, draws: Floats, articles: int, confidence: float = CONFIDENCE) -> Interval:
    """Wrap bootstrap ``draws`` [resample] of any statistic up; no limits for one article or none."""
    if articles < 2:
        return Interval(estimate, math.nan, math.nan, ONE_ARTICLE if articles else NOTHING, articles)
    low, high = _limits(draws, confidence)
    return Interval(estimate, low, high, "two-level bootstrap", articles)


def paired_difference(
    first: tuple[ArrayLike, ArrayLike],
    second: tuple[ArrayLike, ArrayLike],
    weights: Floats,
    confidence: float = CONFIDENCE,
) -> Difference:
    """Difference of two pooled ratios on the same cells, each a pair (numerator, denominator) of [article, layer]."""
    pairs = [_same_shape(*first), _same_shape(*second)]
    estimates = [_ratio(num.sum(), den.sum()) for num, den in pairs]
    draws = [ratios(resampled_sums(num, weights), resampled_sums(den, weights)) for num, den in pairs]
    spread = draws[0] - draws[1]
    articles = articles_of(*(den for _, den in pairs))
    interval = interval_of(estimates[0] - estimates[1], spread, articles, confidence)
    return Difference(interval, bootstrap_p(spread) if interval.bounded else math.nan)


def bootstrap_p(draws: Floats, null: float = 0.0) -> float:
    """Two-sided p-value that the statistic equals ``null``: twice the smaller tail, never below 2 / (draws + 1)."""
    known = draws[~np.isnan(draws)]
    if not known.size:
        return math.nan
    tail = min(int((known <= null).sum()), int((known >= null).sum()))
    return min(1.0, 2 * (tail + 1) / (known.size + 1))


def holm(p_values: ArrayLike) -> Floats:
    """Holm's step-down correction of a family of p-values; NaN entries stay NaN and are not in the family.

    The i-th smallest of k becomes the running maximum of (k - i)·p, i from 0, capped at 1. Source: Holm 1979.
    """
    values = np.asarray(p_values, dtype=np.float64)
    known = np.flatnonzero(~np.isnan(values))
    order = known[np.argsort(values[known], kind="stable")]
    corrected = np.full(values.shape, math.nan)
    corrected[order] = np.minimum(1, np.maximum.accumulate(values[order] * np.arange(len(order), 0, -1)))
    return corrected


def detectable(effects: ArrayLike, power: float = 0.8, confidence: float = CONFIDENCE) -> Detectable:
    """Minimum detectable mean of per-article effects [article] by a two-sided t-test, and the articles needed.

    MDE(n) = (t[1-α/2, n-1] + t[power, n-1]) · s / √n with the effects' own standard deviation s.
    """
    values = np.asarray(effects, dtype=np.float64)
    if values.size < 2:
        return Detectable(math.nan, values.size, None)
    spread = float(values.std(ddof=1))
    counts = np.unique(np.concatenate((np.arange(2, 200), np.geomspace(200, MOST_ARTICLES, 200).round()))).astype(int)
    enough = counts[_smallest_effect(spread, counts, power, confidence) <= abs(values.mean())]
    return Detectable(
        effect=float(_smallest_effect(spread, np.array([values.size]), power, confidence)[0]),
        n=values.size,
        needed=int(enough[0]) if enough.size else None,
    )


def _smallest_effect(spread: float, counts: NDArray[np.int_], power: float, confidence: float) -> Floats:
    quantiles = scipy.stats.t.ppf(1 - (1 - confidence) / 2, counts - 1) + scipy.stats.t.ppf(power, counts - 1)
    return quantiles * spread / np.sqrt(counts)


def _limits(draws: Floats, confidence: float) -> tuple[float, float]:
    known = draws[~np.isnan(draws)]
    if not known.size:
        return math.nan, math.nan
    low, high = np.quantile(known, ((1 - confidence) / 2, (1 + confidence) / 2))
    return float(low), float(high)


def _ratio(numerator: float, denominator: float) -> float:
    return float(numerator / denominator) if denominator else math.nan


def ratios(numerator: Floats, denominator: Floats) -> Floats:
    """``numerator / denominator``, NaN where the denominator is 0."""
    empty = denominator == 0
    return np.where(empty, np.nan, numerator / np.where(empty, 1, denominator))


def _same_shape(numerator: ArrayLike, denominator: ArrayLike) -> tuple[Floats, Floats]:
    num, den = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    if num.shape != den.shape:
        raise InputError(f"numerator {num.shape} and denominator {den.shape} must have one shape")
    return num, den
