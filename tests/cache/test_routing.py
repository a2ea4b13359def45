"""Routing: the worked examples, ties, the one-way ablation and forced admission."""

import pytest
import torch

from qevict_diag.cache.budget import Capacity
from qevict_diag.cache.routing import Assignment, best, route
from qevict_diag.cache.tier import Tier
from qevict_diag.policies.catalogue import policy

WORDS = {Tier.FULL: "F", Tier.QUANTIZED: "Q", Tier.EVICTED: "E", Tier.LOCAL: "."}
THREE, ONE_WAY, TWO = policy("R3", grain=1), policy("R3-one-way", grain=1), policy("R2", grain=1)


def place(word):
    tiers = {letter: tier for tier, letter in WORDS.items()}
    tier = torch.tensor([[[int(tiers[letter]) for letter in word]]], dtype=torch.uint8)
    return Assignment(tier, tier == Tier.QUANTIZED)


def after(before, scores, full, quantized, chosen=THREE, *, forced=False):
    score = torch.tensor([[scores]], dtype=torch.float64)
    capacity = Capacity(1, full, quantized, 0, 0, 0)
    found = route(score, place(before), len(scores), capacity, chosen.moves, best, forced=forced)
    return "".join(WORDS[Tier(t)] for t in found.tier.flatten().tolist())


@pytest.mark.parametrize(
    ("before", "scores", "expected"),
    [  # windows 1.. of the worked examples stand at index 0..
        ("....", [0.9, 0.2, 0.5, 0.4], "FEQQ"),
        ("FEQQ.", [0.95, 0.2, 0.55, 1.2, 0.3], "QEQFE"),
        ("QEQFE.", [1.0, 9.0, 2.0, 1.3, 0.3, 0.1], "QEFQEE"),
    ],
)
def test_worked_examples(before, scores, expected):
    assert after(before, scores, 1, 2) == expected


def test_ties_go_to_the_older_window():
    assert after("....", [0.5, 0.5, 0.5, 0.5], 1, 2) == "FQQE"


def test_without_promotion_a_quantized_window_stays_or_goes():
    assert after("FQQ.", [0.1, 0.9, 0.8, 0.2], 1, 2) == "EFQQ"
    assert after("FQQ.", [0.1, 0.9, 0.8, 0.2], 1, 2, ONE_WAY) == "EQQF"


def test_forced_admission_displaces_the_lowest_incumbent():
    assert after("FFF.", [3.0, 2.0, 1.0, 0.1], 3, 0, TWO) == "FFFE"
    assert after("FFF.", [3.0, 2.0, 1.0, 0.1], 3, 0, TWO, forced=True) == "FFEF"
    assert after("FQ..", [3.0, 2.0, 0.1, 0.2], 1, 1, forced=True) == "EEQF"


def test_fewer_candidates_than_capacity_are_all_full():
    assert after("..", [1.0, 2.0], 5, 5) == "FF"


def test_no_full_tier():
    assert after("...", [1.0, 2.0, 3.0], 0, 2) == "EQQ"


def test_windows_that_are_not_historical_stay_local():
    score = torch.tensor([[[1.0, 2.0, 3.0]]])
    found = route(score, place("..."), 2, Capacity(1, 1, 1, 0, 0, 0), THREE.moves, best, forced=False)
    assert found.tier.flatten().tolist() == [Tier.QUANTIZED, Tier.FULL, Tier.LOCAL]


def test_best_takes_only_candidates():
    score = torch.tensor([[5.0, 1.0, 3.0]])
    among = torch.tensor([[False, True, True]])
    assert best(score, among, 2).tolist() == [[False, True, True]]
    assert best(score, among, 1).tolist() == [[False, False, True]]
