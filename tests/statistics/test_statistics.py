"""Intervals against scipy's t-tests and numbers worked by hand; corrections against worked examples."""

import math

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from qevict_diag.errors import InputError
from qevict_diag.statistics import intervals, power


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def test_wilson_matches_the_closed_form():
    interval = intervals.wilson(3, 100)
    z, p, n = 1.959964, 0.03, 100
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    assert (interval.low, interval.high) == pytest.approx((centre - half, centre + half), abs=1e-6)
    assert (interval.estimate, interval.n) == (0.03, 100)


def test_wilson_of_no_trial_is_undefined_and_never_zero():
    interval = intervals.wilson(0, 0)
    assert math.isnan(interval.estimate)
    assert not interval.bounded


def test_wilson_of_zero_successes_has_a_positive_upper_limit():
    interval = intervals.wilson(0, 50)
    assert interval.low == pytest.approx(0, abs=1e-12)
    assert 0.05 < interval.high < 0.09


@pytest.mark.parametrize(("successes", "trials"), [(-1, 3), (4, 3)])
def test_wilson_refuses_impossible_counts(successes, trials):
    with pytest.raises(InputError, match=r"must lie in 0\.\.trials"):
        intervals.wilson(successes, trials)


def mean_of(values):
    return intervals.over_articles([values], [np.ones(len(values))])


articles = st.lists(st.floats(-3, 3), min_size=2, max_size=9).filter(lambda values: np.ptp(values) > 1e-3)


@given(articles)
def test_a_mean_over_articles_has_students_interval(values):
    found = mean_of(values)
    expected = scipy.stats.ttest_1samp(values, 0.25)
    limits = expected.confidence_interval(0.95)
    interval = found.interval()
    assert interval.estimate == pytest.approx(np.mean(values))
    assert (interval.low, interval.high) == pytest.approx((limits.low, limits.high))
    assert found.p_value(0.25) == pytest.approx(expected.pvalue)
    assert (interval.method, interval.n) == (intervals.OVER_ARTICLES, len(values))


@given(articles, st.integers(0, 99))
def test_a_paired_difference_is_the_paired_t_test(first, seed):
    second = np.random.default_rng(seed).normal(0, 1, len(first))
    found = intervals.over_articles([first, second], np.ones((2, len(first))), intervals.minus)
    expected = scipy.stats.ttest_rel(first, second)
    limits = expected.confidence_interval(0.95)
    interval = found.interval()
    assert (interval.low, interval.high) == pytest.approx((limits.low, limits.high))
    assert found.p_value() == pytest.approx(expected.pvalue)


def test_a_ratio_of_sums_is_jackknifed():
    """Worked by hand: 10/20 of all; 9/18, 6/12 and 5/10 without one would agree, so the last one is off."""
    found = intervals.over_articles([[1.0, 4.0, 7.0]], [[2.0, 8.0, 10.0]])
    without = np.array([11 / 18, 8 / 12, 5 / 10])
    error = math.sqrt(2 / 3 * ((without - without.mean()) ** 2).sum())
    half = 4.302653 * error  # t at .975 with two degrees of freedom
    interval = found.interval()
    assert interval.estimate == pytest.approx(12 / 20)
    assert (interval.low, interval.high) == pytest.approx((0.6 - half, 0.6 + half), rel=1e-6)
    assert found.alone == pytest.approx([0.5, 0.5, 0.7])


def test_a_ratio_of_many_articles_agrees_with_the_linearized_one(rng):
    den = rng.uniform(50, 150, 400)
    num = den * rng.normal(0.3, 0.05, 400)
    found = intervals.over_articles([num], [den])
    rest = num - num.sum() / den.sum() * den
    assert found.error == pytest.approx(rest.std(ddof=1) / math.sqrt(400) / den.mean(), rel=0.01)


def test_one_article_gives_no_interval_and_says_so():
    for found in (mean_of([3.0]), intervals.over_articles([[1.0], [2.0]], [[4.0], [4.0]], intervals.minus)):
        interval = found.interval()
        assert not interval.bounded
        assert not math.isnan(interval.estimate)
        assert interval.method == intervals.ONE_ARTICLE
        assert math.isnan(found.p_value())


def test_what_counted_nothing_is_undefined():
    found = intervals.over_articles([[0.0, 0.0]], [[0.0, 0.0]])
    assert math.isnan(found.estimate)
    assert found.interval().method == intervals.NOTHING


def test_quantities_are_compared_on_the_articles_that_all_of_them_have():
    num, den = [[0.5, 0.4, 9.0], [0.3, 0.1, 0.0]], [[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]]
    found = intervals.over_articles(num, den, intervals.minus)
    assert (found.n, found.estimate) == (2, pytest.approx(0.25))
    assert found.alone[:2] == pytest.approx([0.2, 0.3])
    assert math.isnan(found.alone[2])


def test_articles_that_agree_exactly_leave_no_doubt():
    found = mean_of([0.5, 0.5, 0.5])
    assert (found.interval().low, found.interval().high) == (0.5, 0.5)
    assert (found.p_value(0.5), found.p_value(0.4)) == (1, 0)


def test_a_ratio_that_hangs_on_one_article_has_no_limits():
    found = intervals.over_articles(
        [[1.0, 1.0], [1.0, 0.0]],
        [[1.0, 1.0], [1.0, 1.0]],
        lambda values: intervals.ratios(values[..., 0], values[..., 1]),
    )
    assert found.estimate == pytest.approx(2)
    assert found.interval().method == intervals.UNDEFINED


def test_a_median_takes_the_spread_of_the_articles_own():
    own = [2.0, 5.0, math.nan, 8.0]
    interval = intervals.about(4.0, own).interval()
    half = 4.302653 * np.std([2.0, 5.0, 8.0], ddof=1) / math.sqrt(3)
    assert (interval.low, interval.high) == pytest.approx((4 - half, 4 + half), rel=1e-6)
    assert interval.n == 3
    assert intervals.about(4.0, [4.0]).interval().method == intervals.ONE_ARTICLE


def test_shapes_must_agree():
    with pytest.raises(InputError, match="must have one shape"):
        intervals.over_articles(np.ones((1, 3)), np.ones((1, 4)))
    with pytest.raises(InputError, match="must have one shape"):
        intervals.over_articles(np.ones(3), np.ones(3))


def test_holm_worked_example():
    corrected = intervals.holm([0.01, 0.04, math.nan, 0.03])
    assert corrected[[0, 1, 3]] == pytest.approx([0.03, 0.06, 0.06])
    assert math.isnan(corrected[2])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_never_lowers_a_p_value_and_keeps_their_order(p_values):
    corrected = intervals.holm(p_values)
    assert np.all(corrected >= np.array(p_values) - 1e-12)
    assert np.all(corrected <= 1)
    assert np.all(np.diff(corrected[np.argsort(p_values, kind="stable")]) >= -1e-12)


def test_more_articles_are_needed_for_a_smaller_effect():
    spread = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
    large, small = mean_of(spread + 3), mean_of(spread + 1.1)
    assert power.needed(large) < power.needed(small)
    assert power.needed(large) == power.needed(mean_of(spread + 4), 1.0)
    assert power.more_articles(large) == "enough articles"


def test_the_needed_number_has_the_power_asked_for():
    """Against the noncentral t distribution."""
    found = mean_of([0.2, 0.4, 1.0, 1.4, 2.0])
    n, size = power.needed(found), np.mean([0.2, 0.4, 1.0, 1.4, 2.0]) / np.std([0.2, 0.4, 1.0, 1.4, 2.0], ddof=1)
    reached = scipy.stats.nct.sf(scipy.stats.t.ppf(0.975, n - 1), n - 1, size * math.sqrt(n))
    assert reached == pytest.approx(0.8, abs=0.06)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([0.4], "one article says nothing about others; record at least one more"),
        ([0.4, 0.1, 0.3, 0.2], "4 articles are too few to tell how many it takes; record more"),
        ([0.4, -0.1, 0.3, 0.2, 0.0], "the articles disagree: 2 of 5 point the other way or nowhere"),
        (
            [0.01, 0.01, 0.01, 0.01, 1.0],
            "about 33 more articles needed",
        ),
        ([0.5, 0.5, 0.5, 0.5, 0.5], "enough articles"),
    ],
)
def test_how_many_more_is_said_from_five_articles_that_agree(values, told):
    """The last but one: mean / sd = 0.4698, and (1.960 + 0.842)² / 0.4698² + 1.96² / 2 = 37.5, so 38 in all."""
    assert power.more_articles(mean_of(values)) == told
