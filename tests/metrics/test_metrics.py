"""The worked examples of the metrics, on the library's own functions."""

import math

import pytest
import torch

from qevict_diag.cache.tier import Tier
from qevict_diag.metrics.agreement import agreement, replaced_normalizer
from qevict_diag.metrics.arithmetic import ratio
from qevict_diag.metrics.churn import churn, churn_counts
from qevict_diag.metrics.lir import inactive_runs
from qevict_diag.metrics.mass_share import tier_mass
from qevict_diag.metrics.transitions import promotion_counts, transition_counts
from qevict_diag.replay.horizon import at_events, band, by_event, in_horizon
from qevict_diag.replay.stream import _born_before

ROWS = torch.tensor([[0.2, 0.1, 0.3, 0.1, 0.3, 0.0], [0.1, 0.1, 0.2, 0.2, 0.1, 0.3]])
HISTORY = ["100010", "000000", "001001", "--0001", "111111", "----00"]


def sets(*members):
    mask = torch.zeros(len(members), 6, dtype=torch.bool)
    for row, chosen in enumerate(members):
        mask[row, list(chosen)] = True
    return mask


def fmm_of(rows, denominator):
    """Event 0 over four existing positions with {1, 2} evicted; each position is a window of one token."""
    within = torch.ones(len(rows), 1, dtype=torch.bool)
    evicted = sets({1, 2})[None, None]
    missed = in_horizon(by_event(rows[None, None], evicted), within)
    counted = sets(set(denominator))[None, None]
    return float(ratio(missed, in_horizon(by_event(rows[None, None], counted), within)))


def test_fmm_over_existing_positions_and_over_all_mass():
    assert fmm_of(ROWS, range(4)) == pytest.approx(0.5385, abs=5e-5)
    assert fmm_of(ROWS, range(6)) == pytest.approx(0.35)
    assert fmm_of(ROWS[:1], range(4)) == pytest.approx(0.5714, abs=5e-5)


def test_fmm_with_nothing_evicted_is_zero_and_undefined_without_mass():
    zero = torch.zeros(1)
    assert float(ratio(zero, torch.ones(1))) == 0
    assert math.isnan(float(ratio(zero, zero)))


def test_the_horizon_of_an_event_starts_with_the_query_after_it():
    within = band(range(4, 8), range(0, 4), every=2, horizon=4, device=torch.device("cpu"))
    assert within.int().tolist() == [[0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 1, 1], [0, 0, 1, 1]]


def test_positions_born_before_an_event():
    born = torch.tensor([[1.0, 2.0, 4.0, 8.0]])
    before = _born_before(born)
    assert before.tolist() == [[0.0, 1.0, 3.0, 7.0, 15.0]]
    assert at_events(before, range(0, 3), every=2).tolist() == [[0.0, 3.0, 15.0]]
    assert at_events(before, range(1, 2), every=2).tolist() == [[3.0]]


def test_churn_worked_example_and_counts():
    selected = sets({0, 1, 2, 3}, {0, 1, 4, 5})
    assert float(churn(selected)) == pytest.approx(0.6667, abs=5e-5)
    assert [int(count) for count in churn_counts(selected)] == [4, 6]


@pytest.mark.parametrize(("before", "after", "expected"), [((), (), 0.0), ((), (1,), 1.0), ((2,), (2,), 0.0)])
def test_churn_of_empty_sets(before, after, expected):
    assert float(churn(sets(before, after))) == expected


@pytest.mark.parametrize(("size", "cost"), [(116, 0.0171), (35, 0.0556), (12, 0.154)])
def test_one_swap_costs_more_in_a_smaller_set(size, cost):
    selected = torch.zeros(2, size + 1, dtype=torch.bool)
    selected[0, :size] = True
    selected[1, 1:] = True
    assert float(churn(selected)) == pytest.approx(cost, abs=5e-4)


def test_agreement_worked_example():
    quantized, full = torch.tensor([0.3, 0.12, 0.05]), torch.tensor([0.32, 0.15, 0.04])
    found = agreement(quantized, full, torch.ones(3, dtype=torch.bool))
    assert float(found.qsa()) == pytest.approx(0.9975, abs=5e-5)
    assert float(found.mass_ratio()) == pytest.approx(0.9216, abs=5e-5)


def test_agreement_is_undefined_for_too_few_windows_or_no_mass():
    scores = torch.tensor([0.3, 0.2])
    one = agreement(scores, scores, torch.tensor([True, False]))
    assert math.isnan(float(one.qsa()))
    assert float(one.mass_ratio()) == 1
    none = agreement(scores, torch.zeros(2), torch.tensor([True, True]))
    assert math.isnan(float(none.qsa()))
    assert math.isnan(float(none.mass_ratio()))


def test_replacing_keys_moves_the_normalizer():
    full, quantized = torch.tensor([0.2, 0.3]), torch.tensor([0.5, 0.1])
    assert float(replaced_normalizer(full, quantized, torch.tensor([True, False]))) == pytest.approx(1.3)


def test_tier_mass_adds_up():
    mass, tier = torch.tensor([1.0, 2.0, 4.0, 8.0]), torch.tensor([0, 1, 2, 3])
    assert {z: float(part) for z, part in tier_mass(mass, tier).items()} == {
        Tier.LOCAL: 1,
        Tier.FULL: 2,
        Tier.QUANTIZED: 4,
        Tier.EVICTED: 8,
    }


def lanes():
    selected = torch.tensor([[[c == "1"] for c in row] for row in HISTORY])  # one window a lane: [lane, event, 1]
    exists = torch.tensor([[[c != "-"] for c in row] for row in HISTORY])
    return selected, exists


@pytest.mark.parametrize(("m", "expected"), [(1, (4, 7)), (2, (4, 6)), (3, (2, 3)), (4, (0, 1)), (7, (0, 0))])
def test_lir_worked_example(m, expected):
    rescued, eligible = inactive_runs(*lanes()).eligible(m).counts(len(HISTORY))
    assert (int(rescued.sum()), int(eligible.sum())) == expected


def test_time_to_return_is_at_least_one_and_counts_from_eligibility():
    found = inactive_runs(*lanes()).eligible(2)
    waited = found.waited(2)[found.rescued].tolist()
    assert sorted(waited) == [1, 1, 2, 2]  # runs of 2, 2, 3, 3 events


def test_only_runs_after_an_exit():
    rescued, eligible = inactive_runs(*lanes()).eligible(1, after_exit=True).counts(len(HISTORY))
    assert (int(rescued.sum()), int(eligible.sum())) == (2, 3)


@pytest.mark.parametrize(
    ("lag", "group", "expected"),
    [(1, "01", (4, 16)), (1, "10", (3, 8)), (2, "01", (4, 12)), (2, "10", (2, 6)), (6, "01", (0, 0))],
)
def test_transitions_worked_example(lag, group, expected):
    moved, pairs = transition_counts(*lanes(), lag)[group]
    assert (int(moved.sum()), int(pairs.sum())) == expected


@pytest.mark.parametrize("lag", [6, 8, 100])
def test_a_lag_beyond_the_last_event_has_no_pairs(lag):
    for first_passage in (False, True):
        for moved, pairs in transition_counts(*lanes(), lag, first_passage=first_passage).values():
            assert (int(moved.sum()), int(pairs.sum())) == (0, 0)


def test_first_passage_counts_a_change_at_any_event_up_to_the_lag():
    moved, pairs = transition_counts(*lanes(), 2, first_passage=True)["01"]
    assert (int(moved.sum()), int(pairs.sum())) == (6, 12)


def test_promotions_are_moves_from_quantized_to_full():
    tier = torch.tensor([[Tier.QUANTIZED, Tier.FULL, Tier.LOCAL], [Tier.FULL, Tier.QUANTIZED, Tier.FULL]])
    assert promotion_counts(tier).tolist() == [1]
