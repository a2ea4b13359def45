"""Intervals against hand-made numbers and simulated coverage; corrections against worked examples."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qevict_diag.errors import InputError
from qevict_diag.statistics import intervals


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


def test_one_article_gives_no_interval_and_says_so(rng):
    cells = np.ones((1, 30))
    weights = intervals.two_level_weights(1, 30, rng, 50)
    for interval in (
        intervals.two_level(cells, cells, weights),
        intervals.trace_bootstrap([3.0], [4.0], rng),
        intervals.paired_difference((cells, cells), (cells, cells), weights).interval,
    ):
        assert not interval.bounded
        assert not math.isnan(interval.estimate)
        assert "one article" in interval.method
    assert math.isnan(intervals.paired_difference((cells, cells), (cells, cells), weights).p_value)


def test_weights_draw_articles_first_then_layers_within(rng):
    weights = intervals.two_level_weights(3, 5, rng, 400)
    assert weights.shape == (400, 3, 5)
    per_article = weights.sum(2)
    assert np.all(per_article % 5 == 0)  # an article drawn c times contributes 5c layers
    assert np.all(weights.sum((1, 2)) == 15)
    assert np.any(per_article == 0)


def test_the_same_seed_gives_the_same_interval():
    cells = np.random.default_rng(0).random((4, 6))
    drawn = [
        intervals.two_level(cells, np.ones_like(cells), intervals.two_level_weights(4, 6, np.random.default_rng(3)))
        for _ in range(2)
    ]
    assert drawn[0] == drawn[1]


def test_two_level_pools_sums_and_not_ratios(rng):
    num, den = np.array([[1.0, 0.0], [9.0, 0.0]]), np.array([[1.0, 0.0], [99.0, 0.0]])
    interval = intervals.two_level(num, den, intervals.two_level_weights(2, 2, rng))
    assert interval.estimate == pytest.approx(0.1)


def test_an_empty_denominator_is_undefined(rng):
    zero = np.zeros((2, 3))
    interval = intervals.two_level(zero, zero, intervals.two_level_weights(2, 3, rng))
    assert math.isnan(interval.estimate)
    assert not interval.bounded


def test_two_level_covers_the_mean_of_many_articles():
    rng = np.random.default_rng(11)
    hits = 0
    for _ in range(200):
        cells = rng.normal(0.3, 0.1, (20, 1)) + rng.normal(0, 0.05, (20, 8))
        weights = intervals.two_level_weights(20, 8, rng, 400)
        interval = intervals.two_level(cells, np.ones_like(cells), weights)
        hits += interval.low <= 0.3 <= interval.high
    assert 178 <= hits <= 200  # about 95%, a little below for 20 articles


def test_trace_bootstrap_resamples_whole_traces(rng):
    interval = intervals.trace_bootstrap([1.0, 3.0], [10.0, 10.0], rng)
    assert interval.estimate == pytest.approx(0.2)
    assert (interval.low, interval.high) == pytest.approx((0.1, 0.3))
    assert interval.n == 2


def test_a_trace_without_trials_does_not_spoil_the_interval(rng):
    interval = intervals.trace_bootstrap([0.0, 3.0, 1.0], [0.0, 10.0, 10.0], rng)
    assert interval.estimate == pytest.approx(0.2)
    assert (interval.low, interval.high) == pytest.approx((0.1, 0.3))


def test_pairing_removes_what_the_articles_share(rng):
    article = rng.normal(0, 5, (10, 1))
    first = article + rng.normal(1.0, 0.01, (10, 4))
    second = article + rng.normal(0.0, 0.01, (10, 4))
    ones, weights = np.ones((10, 4)), intervals.two_level_weights(10, 4, rng)
    paired = intervals.paired_difference((first, ones), (second, ones), weights)
    alone = intervals.two_level(first, ones, weights)
    assert paired.interval.low > 0.9
    assert paired.p_value < 0.01
    assert alone.high - alone.low > 1.0


def test_paired_difference_is_antisymmetric(rng):
    ones, weights = np.ones((3, 4)), intervals.two_level_weights(3, 4, rng)
    a, b = rng.random((3, 4)), rng.random((3, 4))
    there = intervals.paired_difference((a, ones), (b, ones), weights)
    back = intervals.paired_difference((b, ones), (a, ones), weights)
    assert there.interval.estimate == pytest.approx(-back.interval.estimate)
    assert there.interval.low == pytest.approx(-back.interval.high)
    assert there.p_value == pytest.approx(back.p_value)


def test_shapes_must_agree(rng):
    with pytest.raises(InputError, match="must have one shape"):
        intervals.two_level(np.ones((2, 3)), np.ones((2, 4)), intervals.two_level_weights(2, 3, rng))


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
    spread = np.array([-1.0, 0.0, 1.0])
    large, small = intervals.detectable(spread + 3), intervals.detectable(spread + 0.5)
    assert large.effect == pytest.approx(small.effect)
    assert large.needed < small.needed
    assert f"about {small.needed - 3} more articles" in small.words()


def test_detectable_at_the_needed_number_is_the_effect_seen():
    result = intervals.detectable(np.array([-1.0, 0.0, 1.0]) + 0.5)
    rng_free = np.tile([-1.0, 1.0], result.needed // 2 + 1)[: result.needed]
    again = intervals.detectable(rng_free / rng_free.std(ddof=1) + 0.5)
    assert again.effect <= 0.52


def test_one_article_detects_nothing():
    result = intervals.detectable([0.4])
    assert math.isnan(result.effect)
    assert "at least one more" in result.words()


def test_no_effect_is_not_worth_chasing():
    assert "too small" in intervals.detectable([-1.0, 1.0]).words()


def test_bootstrap_p_is_never_zero():
    assert intervals.bootstrap_p(np.ones(99)) == pytest.approx(2 / 100)
    assert math.isnan(intervals.bootstrap_p(np.array([math.nan])))
