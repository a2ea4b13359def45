"""The survival curve against numbers computed by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qevict_diag.errors import InputError
from qevict_diag.statistics.survival import kaplan_meier

DURATION = [1, 2, 2, 3, 5, 5, 8]
RETURNED = [True, True, False, True, True, False, False]


def test_curve_by_hand():
    """At risk 7, 6, 4, 3, 1: S = 6/7, 6/7·5/6, ·3/4, ·2/3, ·1."""
    curve = kaplan_meier(DURATION, RETURNED)
    np.testing.assert_array_equal(curve.time, [1, 2, 3, 5, 8])
    np.testing.assert_array_equal(curve.at_risk, [7, 6, 4, 3, 1])
    np.testing.assert_array_equal(curve.returned, [1, 1, 1, 1, 0])
    np.testing.assert_allclose(curve.survival, [6 / 7, 5 / 7, 15 / 28, 5 / 14, 5 / 14])
    assert curve.median == 5


def test_interval_by_hand():
    """Greenwood in the log-log scale: S ** exp(±z·sqrt(Σ d/(n(n-d))) / ln S), at t = 2."""
    curve = kaplan_meier(DURATION, RETURNED)
    spread = 1.959964 * np.sqrt(1 / (7 * 6) + 1 / (6 * 5)) / np.log(5 / 7)
    assert curve.low[1] == pytest.approx((5 / 7) ** np.exp(-spread), rel=1e-5)
    assert curve.high[1] == pytest.approx((5 / 7) ** np.exp(spread), rel=1e-5)
    assert (curve.low < curve.survival).all()
    assert (curve.survival < curve.high).all()


def test_values_between_and_beyond_the_steps():
    curve = kaplan_meier(DURATION, RETURNED)
    np.testing.assert_allclose(curve.at([0, 1, 4.5, 8]), [1, 6 / 7, 15 / 28, 5 / 14])
    assert np.isnan(curve.at(9))
    assert kaplan_meier([1, 2], [True, True]).at(9) == 0


def test_without_censoring_it_is_the_empirical_share():
    curve = kaplan_meier([4, 1, 2, 2], [True] * 4)
    np.testing.assert_allclose(curve.survival, [0.75, 0.25, 0])
    assert np.isnan([curve.low[-1], curve.high[-1]]).all()
    assert curve.median == 2


def test_nobody_returned():
    curve = kaplan_meier([3, 0, 3], [False] * 3)
    np.testing.assert_array_equal(curve.survival, [1, 1])
    assert np.isnan(curve.low).all()
    assert np.isnan(curve.median)


def test_no_episodes_give_an_empty_curve():
    curve = kaplan_meier([], [])
    assert curve.time.size == curve.survival.size == curve.low.size == curve.at_risk.size == 0
    assert np.isnan(curve.median)


def test_censoring_is_not_failure():
    """Counting open episodes as never returned gives 3/4 not returned; half of them were watched for one event only."""
    returned = np.array([True, False, False, False])
    assert kaplan_meier([2, 1, 1, 3], returned).survival[-1] == 0.5
    assert 1 - returned.mean() == 0.75


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=30))
@settings(deadline=None)
def test_curve_is_the_product_over_times(episodes):
    duration, returned = (np.array(column) for column in zip(*episodes, strict=True))
    curve = kaplan_meier(duration, returned)
    expected, share = [], 1.0
    for time in curve.time:
        share *= 1 - (returned & (duration == time)).sum() / (duration >= time).sum()
        expected.append(share)
    np.testing.assert_allclose(curve.survival, expected, atol=1e-12)
    defined = np.isfinite(curve.low)
    np.testing.assert_array_equal(defined, (curve.survival > 0) & (curve.survival < 1))
    assert ((curve.low >= 0) & (curve.high <= 1))[defined].all()


@pytest.mark.parametrize(
    ("duration", "returned", "message"),
    [
        ([1, 2], [True], "episode"),
        ([[1]], [[True]], "episode"),
        ([-1], [True], "negative"),
        ([np.nan], [True], "finite"),
    ],
)
def test_bad_arguments_are_refused(duration, returned, message):
    with pytest.raises(InputError, match=message):
        kaplan_meier(duration, returned)
