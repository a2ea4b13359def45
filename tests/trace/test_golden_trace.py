"""The stored trace of format version 1 is opened for ever, and answers as it did when it was written."""

from pathlib import Path

import pytest
import torch

from qevict_diag.trace.trace import Trace

GOLDEN = Path(__file__).parents[1] / "golden" / "trace-v1"
COLUMNS = {
    0: [1.29909205, 0.64688361, 0.46599656, 0.74541736, 0.97539622, 0.70119005, 0.72932959, 0.35750997, 0.07918484],
    1: [0.0, 0.0, 0.0, 0.18246344, 0.58754843, 1.74020767, 1.11579931, 0.62364978, 0.81643993],
}


@pytest.fixture
def trace():
    return Trace.open(GOLDEN)


def test_it_verifies(trace):
    trace.verify()
    assert trace.tokens.tolist() == [44, 39, 33, 10, 13, 29, 27, 3, 47]
    assert trace.layers == (0, 1)


@pytest.mark.parametrize("number", COLUMNS)
def test_its_attention_is_what_it_was(trace, number):
    columns = trace.layer(number).attention().sum(dim=(0, 1))
    torch.testing.assert_close(columns, torch.tensor(COLUMNS[number]), atol=1e-6, rtol=0)


def test_its_prompt_mass_is_what_it_was(trace):
    assert trace.layer(0).prompt_mass.sum(-1).tolist() == pytest.approx([6, 6], abs=1e-5)
    assert trace.layer(1).prompt_mass.sum(-1).tolist() == pytest.approx([3.7625067, 5.4303951], abs=1e-5)


def test_its_keys_before_rotary_embedding_are_what_they_were(trace):
    assert float(trace.layer(0).key_pre_rope().sum()) == pytest.approx(-2.5047560, abs=1e-5)
    assert torch.equal(trace.layer(1).key_pre_rope(), trace.layer(1).key)
