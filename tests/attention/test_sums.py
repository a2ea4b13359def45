"""Blocked products against plain softmax attention, for every shape of block."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qevict_diag.attention.spec import AttentionSpec, visible
from qevict_diag.attention.sums import attention_output, column_sums, row_lse


def plain(query, key, value, spec, positions):
    """Probabilities, log-sum-exp and P·V as one writes them down."""
    key, value = (x.repeat_interleave(query.shape[0] // x.shape[0], dim=0) for x in (key, value))
    logits = query @ key.transpose(1, 2) * spec.scaling
    if spec.softcap:
        logits = torch.tanh(logits / spec.softcap) * spec.softcap
    logits = logits.masked_fill(~visible(positions, key.shape[1], spec.sliding_window), float("-inf"))
    extra = torch.full((query.shape[0], 1), float("-inf"))
    if spec.sink_logits:
        extra = torch.tensor(spec.sink_logits)[:, None]
    lse = torch.logsumexp(torch.cat((logits, extra[:, None].expand(-1, logits.shape[1], -1)), dim=-1), dim=-1)
    p = torch.exp(logits - lse[..., None])
    return p, lse, p @ value


@st.composite
def cases(draw):
    kv_heads, group, width = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 5))
    length = draw(st.integers(1, 40))
    positions = draw(st.sets(st.integers(0, length - 1), min_size=1))
    spec = AttentionSpec(
        0,
        0.7,
        sliding_window=draw(st.none() | st.integers(1, 45)),
        softcap=draw(st.none() | st.just(2.0)),
        sink_logits=draw(st.none() | st.just(tuple(float(h) - 1 for h in range(kv_heads * group)))),
    )
    noise = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    shapes = ((kv_heads * group, len(positions), width), (kv_heads, length, width), (kv_heads, length, 3))
    return *(2 * torch.randn(shape, generator=noise) for shape in shapes), spec, torch.tensor(sorted(positions))


@settings(max_examples=150, deadline=None)
@given(cases(), st.sampled_from([8, 200, 1000, 1 << 20]))
def test_blocks_agree_with_plain_attention(case, block_bytes):
    query, key, value, spec, positions = case
    p, lse, output = plain(query, key, value, spec, positions)
    close = {"atol": 2e-5, "rtol": 1e-5}
    torch.testing.assert_close(column_sums(query, key, spec, positions, block_bytes), p.sum(1), **close)
    torch.testing.assert_close(row_lse(query, key, spec, positions, block_bytes), lse, **close)
    torch.testing.assert_close(attention_output(query, key, value, spec, positions, block_bytes), output, **close)


def test_an_offset_stands_for_neighbours():
    query, key, spec = torch.randn(2, 5, 4), torch.randn(1, 12, 4), AttentionSpec(0, 0.5)
    one, other = column_sums(query, key, spec, 7), column_sums(query, key, spec, torch.arange(7, 12))
    assert torch.equal(one, other)


@pytest.mark.parametrize("length", [500, 2000])
def test_no_array_is_larger_than_a_block(monkeypatch, length):
    """Logits and probabilities take 8 bytes per entry together; the blocked pass never asks for more."""
    import qevict_diag.attention.sums as products

    seen = []
    honest = products._softmax
    monkeypatch.setattr(
        products, "_softmax", lambda block, spec: seen.append(block.logits.numel()) or honest(block, spec)
    )
    column_sums(torch.randn(4, length, 8), torch.randn(2, length, 8), AttentionSpec(0, 0.5), 0, 1 << 20)
    assert max(seen) * 8 <= 1 << 20
    assert len(seen) > 1
