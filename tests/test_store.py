"""The tiers as bytes in memory: write-once codes for every origin of a window, and measured sizes."""

import pytest
import torch

from qevict_diag.cache.budget import Budget, Geometry, capacity
from qevict_diag.cache.contents import TierStore
from qevict_diag.cache.tier import Tier
from qevict_diag.cache.windows import Grid
from qevict_diag.policies.catalogue import policy
from qevict_diag.quantizers.minmax import CHANNEL_AXIS, TOKEN_AXIS, dequantize, quantize
from qevict_diag.quantizers.qevict import WindowMinMax
from qevict_diag.replay.loop import replay
from qevict_diag.replay.settings import Settings
from qevict_diag.testing.traces import random_trace

GRID = Grid(prefill=40, decode=24, window=4, sinks=2, recent=6)
F, Q, E, L = Tier.FULL, Tier.QUANTIZED, Tier.EVICTED, Tier.LOCAL

# window -> its tier at each of four events; every way into the quantized tier, and back
ORIGINS = {
    "prefill": (Q, Q, Q, Q),
    "full to quantized": (F, Q, Q, Q),
    "local to quantized": (L, Q, Q, Q),
    "promoted and demoted again": (Q, F, F, Q),
    "demoted, promoted, demoted": (F, Q, F, Q),
}


def random_windows(lanes=3, width=8):
    generator = torch.Generator().manual_seed(0)
    key = torch.randn(lanes, GRID.length, width, generator=generator) * 3 + 1
    return key, torch.randn(lanes, GRID.length, width, generator=generator)


@pytest.mark.parametrize("bits", [2, 4])
@pytest.mark.parametrize("origin", ORIGINS)
def test_codes_are_the_same_bits_whatever_the_origin_of_a_window(origin, bits):
    key, value = random_windows()
    store = TierStore.empty(key, value, GRID, WindowMinMax(bits))
    for tier in ORIGINS[origin]:
        tiers = torch.full_like(store.tier, Tier.EVICTED)
        tiers[:, 3] = tier
        store = store.step(tiers)
    entries = store.ledger.entry[:, 3]
    positions = slice(2 + 3 * 4, 2 + 4 * 4)
    for codes, source, axis in (
        (store.ledger.key, key, TOKEN_AXIS),
        (store.ledger.value, value, CHANNEL_AXIS),
    ):
        expected = quantize(source[:, positions], axis, bits)
        assert torch.equal(codes[entries].packed, expected.packed)
        assert torch.equal(codes[entries].scale, expected.scale)
        assert torch.equal(codes[entries].zero, expected.zero)
        assert expected.packed.any()  # a window of zeros would be the known fault of a predecessor


def test_promotion_restores_the_dtype_not_the_precision():
    key, value = random_windows()
    store = TierStore.empty(key, value, GRID, WindowMinMax(2))
    for tier in (Q, F):
        store = store.step(torch.full_like(store.tier, tier))
    recovered = dequantize(quantize(store.original_key, TOKEN_AXIS, 2)).half()
    assert torch.equal(store.full_key, recovered.flatten(0, 1))
    assert not torch.equal(recovered, store.original_key.half())


@pytest.mark.parametrize("name", ["R2", "R3", "R3-one-way"])
def test_measured_bytes_are_those_of_the_budget_at_every_event(name):
    trace = random_trace(2, layers=2)
    run = replay(trace, [policy(name, grain=4)], Settings(budget=Budget("1/2", sinks=2, recent=6)))[0]
    layer = trace.layer(1)
    store = TierStore.empty(layer.key_pre_rope(), layer.value, run.grid, WindowMinMax())
    lanes, windows = store.tier.shape
    for event in range(run.grid.events):
        tier = run.tier[1, 0, event, :windows].expand(lanes, -1)
        store = store.step(tier)
        full, quantized = (int((tier[0] == z).sum()) for z in (F, Q))
        assert store.full_bytes + store.quantized_bytes == lanes * run.capacity.bytes_of(full, quantized)
        assert store.full_bytes + store.quantized_bytes <= lanes * run.capacity.history_bytes
        promoted = int((run.ledger[1, 0, event] & (run.tier[1, 0, event] == F)).sum())
        assert store.ledger_bytes == lanes * promoted * run.capacity.quantized_window_bytes


@pytest.mark.parametrize(
    ("width", "value_width", "window", "bits"), [(64, 64, 8, 2), (128, 128, 32, 2), (8, 4, 4, 4), (24, 16, 8, 2)]
)
def test_a_packed_window_has_the_bytes_of_the_formula(width, value_width, window, bits):
    key, value = torch.randn(1, window, width), torch.randn(1, window, value_width)
    measured = quantize(key, TOKEN_AXIS, bits).nbytes + quantize(value, CHANNEL_AXIS, bits).nbytes
    room = capacity(Budget(bits=bits), Geometry(512, 256, width, value_width), window, WindowMinMax(bits))
    assert (
        measured == room.quantized_window_bytes == window * (width + value_width) * bits // 8 + 4 * width + 4 * window
    )
