"""The oracles against brute force, an independent linear program, and the laws of definitions.md, section 14."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog

from qevict_diag.errors import InputError
from qevict_diag.policies.oracles.optimum import distortion_aware, free_recall, irreversible, missed

EXAMPLE = np.array([[0.5, 0, 0], [0.4, 0, 0.9], [0.1, 0.2, 0.1]]).T  # [event, unit]
ALL = np.ones((3, 3), bool)


@st.composite
def cases(draw, events=4, units=5):
    """Gains with many ties, births at any event, capacities that change from event to event."""
    shape = draw(st.integers(1, events)), draw(st.integers(1, units))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    gain = rng.integers(0, draw(st.sampled_from([2, 4, 1000])), shape) / 7
    birth = rng.integers(0, draw(st.integers(1, shape[0] + 1)), shape[1])
    return gain, np.arange(shape[0])[:, None] >= birth, rng.integers(0, shape[1] + 2, shape[0])


def total(gain, kept):
    return float(gain[kept].sum())


def greedy(gain, exists, capacity):
    """Drop what is worth least in the next horizon, for ever: the rule that is not optimal."""
    kept, dropped = np.zeros(gain.shape, bool), np.zeros(gain.shape[1], bool)
    for r in range(len(gain)):
        kept[r] = free_recall(gain[r : r + 1], (exists[r] & ~dropped)[None], capacity)[0]
        dropped |= exists[r] & ~kept[r]
    return kept


def brute_force_irreversible(gain, exists, capacity):
    events = len(gain)
    birth = events - exists.sum(0)
    best = 0.0
    for exits in itertools.product(*(range(b, events + 1) for b in birth)):
        kept = exists & (np.arange(events)[:, None] < exits)
        if (kept.sum(1) <= capacity).all():
            best = max(best, total(gain, kept))
    return best


def linear_program(gain, exists, capacity):
    """The same optimum from x[r+1,i] <= x[r,i] and Σ_i x[r,i] <= k_r with HiGHS."""
    events, units = gain.shape
    index = np.arange(events * units).reshape(events, units)
    earlier, later = index[:-1][exists[:-1]], index[1:][exists[:-1]]
    rows = np.arange(earlier.size)
    shape = (earlier.size, gain.size)
    monotone = sparse.csr_array((np.ones(rows.size), (rows, later)), shape) - sparse.csr_array(
        (np.ones(rows.size), (rows, earlier)), shape
    )
    within = sparse.kron(sparse.eye_array(events), np.ones((1, units)))
    limits = np.concatenate((np.zeros(earlier.size), capacity))
    bounds = np.stack((np.zeros(gain.size), exists.ravel()), axis=1)
    return -linprog(-gain.ravel(), sparse.vstack((monotone, within)).tocsr(), limits, bounds=bounds).fun


def never_returns(kept, exists):
    """Kept units are a run from their birth."""
    return not (exists[:-1] & ~kept[:-1] & kept[1:]).any()


def test_example_of_the_irreversible_oracle():
    assert total(EXAMPLE, greedy(EXAMPLE, ALL, 1)) == pytest.approx(0.5)
    assert total(EXAMPLE, irreversible(EXAMPLE, ALL, 1)) == pytest.approx(1.3)
    assert total(EXAMPLE, free_recall(EXAMPLE, ALL, 1)) == pytest.approx(1.6)


def test_missed_is_what_exists_and_is_not_kept():
    exists = np.array([[True, False, True]] * 3)
    kept = free_recall(EXAMPLE, exists, 1)
    np.testing.assert_allclose(missed(EXAMPLE, exists, kept), [0.1, 0.0, 0.0])
    np.testing.assert_allclose(missed(EXAMPLE, exists, exists), 0)


def test_ties_go_to_the_older_unit():
    assert free_recall(np.ones((1, 4)), np.ones((1, 4), bool), 2).tolist() == [[True, True, False, False]]
    assert free_recall([[1, 1, 1]], [[False, True, True]], 1).tolist() == [[False, True, False]]


@given(cases())
@settings(deadline=None)
def test_free_recall_is_the_best_set_of_each_event(case):
    gain, exists, capacity = case
    kept = free_recall(*case)
    assert (kept <= exists).all()
    np.testing.assert_array_equal(kept.sum(1), np.minimum(capacity, exists.sum(1)))
    best = [np.sort(row[there])[::-1][:k].sum() for row, there, k in zip(gain, exists, capacity, strict=True)]
    np.testing.assert_allclose((gain * kept).sum(1), best)


@given(cases())
@settings(max_examples=200, deadline=None)
def test_irreversible_equals_brute_force(case):
    gain, exists, capacity = case
    kept = irreversible(*case)
    assert (kept <= exists).all()
    assert (kept.sum(1) <= capacity).all()
    assert never_returns(kept, exists)
    assert total(gain, kept) == pytest.approx(brute_force_irreversible(*case))


@given(cases(events=12, units=25))
@settings(max_examples=60, deadline=None)
def test_irreversible_equals_the_linear_program(case):
    assert total(case[0], irreversible(*case)) == pytest.approx(linear_program(*case))


@given(cases(events=8, units=12))
@settings(deadline=None)
def test_oracle_is_never_beaten(case):
    """O1 <= O2 <= an irreversible rule, in missed mass over all events; O1 also at each event."""
    gain, exists, capacity = case
    recall, final = free_recall(*case), irreversible(*case)
    rule = greedy(gain, exists, int(capacity.min()))
    o1, o2, other = (missed(gain, exists, kept) for kept in (recall, final, rule))
    assert (o1 <= o2 + 1e-12).all()
    assert o2.sum() <= other.sum() + 1e-9


@given(cases(events=8, units=12))
@settings(deadline=None)
def test_room_for_everything_keeps_everything(case):
    gain, exists, _ = case
    for oracle in (free_recall, irreversible):
        np.testing.assert_array_equal(oracle(gain, exists, exists.shape[1]), exists)


@given(cases(events=8, units=12), st.integers(1, 3))
@settings(deadline=None)
def test_more_capacity_never_hurts(case, more):
    gain, exists, capacity = case
    assert total(gain, irreversible(gain, exists, capacity + more)) >= total(gain, irreversible(*case)) - 1e-9


def test_no_room_keeps_nothing():
    for oracle in (free_recall, irreversible):
        assert not oracle(EXAMPLE, ALL, 0).any()


def test_arguments_are_left_alone():
    gain, exists, capacity = EXAMPLE.copy(), ALL.copy(), np.array([1, 2, 1])
    irreversible(gain, exists, capacity)
    np.testing.assert_array_equal(gain, EXAMPLE)
    np.testing.assert_array_equal(capacity, [1, 2, 1])


def test_real_size_is_feasible_and_at_least_as_good_as_greedy():
    """29 events, 91 windows, 35 places, windows born during decoding."""
    rng = np.random.default_rng(3)
    birth = np.concatenate((np.zeros(59, int), np.arange(1, 33)))
    gain = rng.gamma(0.3, size=(29, 91)) / 91
    exists = np.arange(29)[:, None] >= birth
    kept = irreversible(gain, exists, 35)
    assert never_returns(kept, exists)
    assert (kept.sum(1) == 35).all()
    assert total(gain, greedy(gain, exists, 35)) < total(gain, kept)
    assert total(gain, kept) == pytest.approx(
        linear_program(gain, exists, np.full(29, 35)), rel=1e-7
    )  # HiGHS's tolerance


def brute_force_split(gain, exists, history, full, low, rho):
    best = 0.0
    for tiers in itertools.product((0, 1, 2), repeat=int(exists.sum())):
        cost = sum((0, full, low)[tier] for tier in tiers)
        if cost <= history:
            best = max(best, sum((0, 1, rho)[t] * m for t, m in zip(tiers, gain[exists], strict=True)))
    return best


@given(cases(events=3, units=6), st.integers(0, 40), st.sampled_from([(8, 3), (5, 5), (3, 8)]), st.floats(0, 1.5))
@settings(deadline=None)
def test_distortion_aware_equals_brute_force(case, history, costs, rho):
    gain, exists, _ = case
    split = distortion_aware(gain, exists, history, *costs, rho)
    assert not (split.full & split.quantized).any()
    assert (split.kept <= exists).all()
    assert (split.full.sum(1) * costs[0] + split.quantized.sum(1) * costs[1] <= history).all()
    value = (gain * split.full).sum(1) + rho * (gain * split.quantized).sum(1)
    best = [brute_force_split(row, there, history, *costs, rho) for row, there in zip(gain, exists, strict=True)]
    np.testing.assert_allclose(value, best, atol=1e-12)


def test_attention_mass_alone_puts_everything_into_the_quantized_tier():
    """With ρ = 1 the bytes of 116 tokens hold 56 INT2 windows of 8 tokens, not 35 (definitions.md, section 14)."""
    history, full, low = 59392, 4096, 1056
    gain, exists = np.random.default_rng(0).random((1, 91)), np.ones((1, 91), bool)
    assert distortion_aware(gain, exists, history, full, low, 1.0).kept.sum() == 56
    assert distortion_aware(gain, exists, history, full, low, 0.0).full.sum() == 14
    half = Fraction(1, 2) * history
    assert int(half / full) + int(half / low) == 35


@pytest.mark.parametrize("oracle", [free_recall, irreversible])
@pytest.mark.parametrize(
    ("gain", "exists", "capacity", "message"),
    [
        (np.ones(3), np.ones(3, bool), 1, "event, unit"),
        (np.ones((2, 3)), np.ones((3, 2), bool), 1, "event, unit"),
        (np.full((1, 2), np.nan), np.ones((1, 2), bool), 1, "finite"),
        (-np.ones((1, 2)), np.ones((1, 2), bool), 1, "negative"),
        (np.ones((1, 2)), np.ones((1, 2), bool), -1, "capacity -1"),
    ],
)
def test_bad_arguments_are_refused(oracle, gain, exists, capacity, message):
    with pytest.raises(InputError, match=message):
        oracle(gain, exists, capacity)


def test_units_cannot_cease_to_exist():
    with pytest.raises(InputError, match="later"):
        irreversible(np.ones((2, 1)), np.array([[True], [False]]), 1)


@pytest.mark.parametrize(("full", "low", "rho"), [(0, 1, 1.0), (1, 0, 1.0), (1, 1, -0.5)])
def test_impossible_costs_are_refused(full, low, rho):
    with pytest.raises(InputError, match="bytes"):
        distortion_aware(np.ones((1, 1)), np.ones((1, 1), bool), 10, full, low, rho)
