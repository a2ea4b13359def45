"""Intervals over articles, proportions, and multiplicity: how sure a number is (definitions.md, section 12).

Articles are the sample. Layers and heads are all there are, so they are summed over and never drawn; how much a number
varies over layers is a result of its own. Every statistic is a function g of ratios of sums over articles, a mean being
Σ values / Σ 1, so one rule serves means, pooled rates and paired comparisons alike, the jackknife with Student's t:

    θ = g(Σ_a),    θ_(a) = g without article a,    se² = (n-1)/n · Σ_a (θ_(a) - mean θ_(.))²,    θ ± t[n-1] · se

For a mean over articles that count alike this is the t interval. Source: Tukey 1958; Efron and Tibshirani 1993, chapter
11. An interval of few articles may reach beyond what the statistic can be (below 0, say): they cannot rule it out.

One article gives no interval: `Interval.low` and `high` are NaN and `method` says so.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from qevict_diag.errors import InputError

Floats = NDArray[np.float64]
Combine = Callable[[Floats], Floats]  # [..., quantity] -> [...]

CONFIDENCE = 0.95
OVER_ARTICLES = "t over articles"
ONE_ARTICLE = "none: one article gives no interval"
NOTHING = "none: nothing was counted"
UNDEFINED = "none: undefined without one of the articles"


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


@dataclass(frozen=True, eq=False)
class Statistic:
    """A number from several articles: of all, of all but one, and of each alone."""

    estimate: float
    without: Floats  # [article that counted] the number when this one is left out
    alone: Floats  # [article] the article's own number; NaN where it counted nothing

    @property
    def n(self) -> int:
        """How many articles counted something."""
        return self.without.size

    @property
    def error(self) -> float:
        """The jackknife's standard error; NaN with fewer than two articles."""
        if self.n < 2:
            return math.nan
        return float(np.sqrt((self.n - 1) * self.without.var()))

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """Student's t interval with n - 1 degrees of freedom; no limits where there is no standard error."""
        if math.isnan(self.error):
            why = NOTHING if self.n == 0 else ONE_ARTICLE if self.n == 1 else UNDEFINED
            return Interval(self.estimate, math.nan, math.nan, why, self.n)
        half = _quantile(self.n - 1, confidence) * self.error
        return Interval(self.estimate, self.estimate - half, self.estimate + half, OVER_ARTICLES, self.n)

    def p_value(self, null: float = 0.0) -> float:
        """Two-sided p-value of Student's t that the statistic is ``null``; NaN with fewer than two articles.

        Articles that agree exactly give 1 on ``null`` and 0 off it.
        """
        away = abs(self.estimate - null)
        if not self.error > 0:
            return math.nan if math.isnan(self.error) else float(away == 0)
        return float(2 * scipy.stats.t.sf(away / self.error, self.n - 1))


def itself(values: Floats) -> Floats:
    """The first quantity, [..., quantity] -> [...]: the `Combine` of a statistic that is one ratio."""
    return values[..., 0]


def minus(values: Floats) -> Floats:
    """The first quantity less the second: the `Combine` of a paired difference."""
    return values[..., 0] - values[..., 1]


def over_articles(numerator: ArrayLike, denominator: ArrayLike, combine: Combine = itself) -> Statistic:
    """``combine`` of the ratios Σ numerator / Σ denominator, both [quantity, article], jackknifed over articles.

    Only articles in which every quantity counted something (denominator above 0) take part, so that quantities are
    compared on the same ones. InputError for unlike shapes.
    """
    num, den = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    if num.shape != den.shape or num.ndim != 2:
        raise InputError(f"numerator {num.shape} and denominator {den.shape} must have one shape, [quantity, article]")
    counted = (den > 0).all(axis=0)
    num, den = num[:, counted], den[:, counted]
    others = 1 - np.eye(num.shape[1])
    alone = np.full(counted.shape, math.nan)
    alone[counted] = combine(ratios(num, den).T)
    return Statistic(
        estimate=float(combine(ratios(num.sum(axis=1), den.sum(axis=1)))),
        without=combine(ratios(num @ others, den @ others).T),
        alone=alone,
    )


def about(estimate: float, alone: ArrayLike) -> Statistic:
    """A statistic that has no smooth jackknife (a median): ``estimate`` with the spread of the articles' own numbers.

    Its standard error is sd / √n of ``alone`` [article], NaN left out.
    """
    own = np.asarray(alone, dtype=np.float64)
    known = own[~np.isnan(own)]
    return Statistic(estimate, (known.sum() - known) / max(known.size - 1, 1), own)


def wilson(successes: int, trials: int, confidence: float = CONFIDENCE) -> Interval:
    """Wilson score interval of a pooled proportion; NaN throughout when there were no trials.

    It treats all trials as independent, which windows of one article are not: read it beside the one over articles.
    Raises InputError unless ``0 <= successes <= trials``. Source: Wilson 1927, by way of scipy.
    """
    if not 0 <= successes <= trials:
        raise InputError(f"{successes} successes in {trials} trials: successes must lie in 0..trials")
    if trials == 0:
        return Interval(math.nan, math.nan, math.nan, "none: no trial", 0)
    limits = scipy.stats.binomtest(successes, trials).proportion_ci(confidence, method="wilson")
    return Interval(successes / trials, float(limits.low), float(limits.high), "Wilson", trials)


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


def ratios(numerator: Floats, denominator: Floats) -> Floats:
    """``numerator / denominator``, NaN where the denominator is 0."""
    empty = denominator == 0
    return np.where(empty, np.nan, numerator / np.where(empty, 1, denominator))


@cache
def _quantile(freedom: int, confidence: float) -> float:
    return float(scipy.stats.t.ppf((1 + confidence) / 2, freedom))
