"""Quantization: worked examples, the round trip's bounds, packing, and degenerate groups in every dtype."""

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from qevict_diag.quantizers.codes import pack, unpack
from qevict_diag.quantizers.minmax import CHANNEL_AXIS, TOKEN_AXIS, dequantize, quantize


def codes_of(quantized):
    count = quantized.tail[0] * quantized.tail[1]
    return unpack(quantized.packed, quantized.bits, count).unflatten(-1, quantized.tail)


def test_worked_examples_per_channel():
    channels = torch.tensor([[0.0, -1.0], [1.0, 0.0], [2.0, 0.5], [3.0, 2.0]])
    quantized = quantize(channels, TOKEN_AXIS, 2)
    assert codes_of(quantized).T.tolist() == [[0, 1, 2, 3], [0, 1, 2, 3]]  # 1.5 rounds to 2
    assert dequantize(quantized).T.tolist() == [[0, 1, 2, 3], [-1, 0, 1, 2]]


def test_worked_example_per_token():
    quantized = dequantize(quantize(torch.tensor([[0.0, 0.3, 0.6, 1.0]]), CHANNEL_AXIS, 2))
    np.testing.assert_allclose(quantized[0], [0, 1 / 3, 2 / 3, 1], atol=5e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("constant", [0.0, 0.5, -3.0])
def test_a_constant_group_reconstructs_exactly(dtype, constant):
    window = torch.full((2, 4, 8), constant, dtype=dtype)
    for axis in (TOKEN_AXIS, CHANNEL_AXIS):
        assert torch.equal(dequantize(quantize(window, axis, 2)).to(dtype), window)


@pytest.mark.parametrize("extreme", [1e30, -1e30, 1e-30])
def test_values_beyond_fp16_stay_finite(extreme):
    window = torch.randn(4, 8)
    window[1, 3] = extreme
    assert torch.isfinite(dequantize(quantize(window, TOKEN_AXIS, 2))).all()


@given(
    hnp.arrays(np.float32, (3, 5, 8), elements=st.floats(-50, 50, width=32)),
    st.sampled_from([2, 4]),
    st.sampled_from([TOKEN_AXIS, CHANNEL_AXIS]),
)
@settings(max_examples=60, deadline=None)
def test_round_trip_is_that_of_the_reference(x, bits, axis):
    ours = dequantize(quantize(torch.from_numpy(x), axis, bits)).numpy()
    theirs = np.stack([reference.quantize_dequantize(window, axis + 2, bits) for window in x])
    np.testing.assert_array_equal(ours, theirs)


@given(hnp.arrays(np.uint8, st.tuples(st.integers(1, 3), st.integers(1, 19)), elements=st.integers(0, 15)))
@settings(deadline=None)
def test_unpack_inverts_pack(codes):
    for bits in (2, 4):
        levels = torch.from_numpy(codes % 2**bits)
        packed = pack(levels, bits)
        assert packed.shape[-1] == -(-codes.shape[-1] * bits // 8)
        assert torch.equal(unpack(packed, bits, codes.shape[-1]), levels)
