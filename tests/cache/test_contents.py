"""The tiers as bytes in memory: measured == formula, for every policy at every event, and the contents that are due."""

from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from qevict_diag.cache.budget import Budget, Geometry, capacity
from qevict_diag.cache.contents import Layout, TierStore
from qevict_diag.cache.tier import Tier
from qevict_diag.errors import InputError
from qevict_diag.measure.bytes import byte_use, resident_bytes
from qevict_diag.policies.catalogue import ESTIMATORS, POLICIES, policy
from qevict_diag.quantizers.minmax import CHANNEL_AXIS, TOKEN_AXIS, dequantize, quantize
from qevict_diag.quantizers.qevict import WindowMinMax
from qevict_diag.readings import Readings
from qevict_diag.replay.loop import replay
from qevict_diag.replay.settings import Settings
from qevict_diag.testing.traces import random_trace
from qevict_diag.trace.trace import Trace

F, Q, E, L = Tier.FULL, Tier.QUANTIZED, Tier.EVICTED, Tier.LOCAL
WINDOW, SINKS, LANES = 4, 2, 3
LAYOUT = Layout(WINDOW, SINKS, WindowMinMax(2))
BYTES_OF = {torch.float16: 2, torch.float32: 4}
TRACE = random_trace(2, layers=2, heads=4, kv_heads=2, prefill=80, decode=72)
SETTINGS = Settings(budget=Budget("1/2", sinks=SINKS, recent=6), horizon=8)
RECALLING = ("free_recall", "split")  # oracles whose evicted windows come back: no cache can
CHOICES = (
    *(f"R3(window={window})" for window in (1, 2, 4, 16, 32)),
    *(f"R3(scope={scope},allotment={how})" for scope in ("kv_head", "head") for how in ("equal", "pooled")),
    *(
        "R3(schedule=prompt)",
        "R2(schedule=prompt,scope=head)",
        "R1(scope=head)",
        "R1(prompt_tail=8)",
        "R3(prompt_tail=8)",
    ),
    *("R3-one-way(window=4,scope=head)", "R4(window=4,scope=kv_head,allotment=pooled)"),
)
RANKED = [f"R3(window=4)[{ranking}]" for ranking in ESTIMATORS if ranking not in RECALLING]


def tokens(count, width=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    key = torch.randn(LANES, count, width, generator=generator) * 3 + 1
    return key, torch.randn(LANES, count, width, generator=generator)


def windows(tensor, count):
    return tensor[:, SINKS : SINKS + count * WINDOW].unflatten(1, (count, WINDOW))


def one_set(*tiers):
    return torch.tensor(tiers, dtype=torch.uint8).expand(LANES, 1, -1)


def by_lane(run, at, tensor):
    """What was decided in a layer, for each key-value head and its sets: [lane, set, event, window]."""
    lanes = len(run.kv_heads)
    shared = tensor[at][None].expand(lanes, -1, -1, -1)
    return shared if run.plan.scope == "layer" else tensor[at].unflatten(0, (lanes, -1))


def fed(layer, run, layout, lanes=slice(None)):
    """A store fed with a recorded layer as a cache is: the prompt, then token after token and event after event."""
    key, value = (x[lanes].to(layout.dtype) for x in (layer.key_pre_rope(), layer.value))
    tiers, grid = by_lane(run, run.layers.index(layer.spec.layer), run.tier)[lanes], run.grid
    store = TierStore.begin(layout, key[:, : grid.prefill], value[:, : grid.prefill])
    for event in range(grid.events):
        store = store.step(tiers[:, :, event])
        yield event, 0, store
        start = grid.length_at(event)
        for born in range(start, min(start + grid.every, grid.length)):
            store = store.append(key[:, born : born + 1], value[:, born : born + 1])
            yield event, born + 1 - start, store


def layout_of(run, dtype, **choices):
    return Layout(run.grid.window, run.grid.sinks, run.plan.quantizer, dtype, **choices)


def expected_bytes(run, at, event, since, lanes):
    """By the formula: F, Q, the codes behind promoted windows, and sinks with local tokens; of all lanes together."""
    part, grid = resident_bytes(run), run.grid
    times = lanes if run.plan.scope == "layer" else 1
    full, quantized, ledger = (
        int(sum(x[at, :, event] for x in of).sum()) * times
        for of in ((part.original, part.copies), (part.quantized,), (part.ledger,))
    )
    token = run.capacity.full_window_bytes // grid.window
    return full, quantized, ledger, lanes * token * (grid.sinks + grid.local(event) + since)


def measured_bytes(store):
    return store.bytes.full, store.bytes.quantized, store.bytes.ledger, store.bytes.outside


def replayed(trace, name, settings=SETTINGS, **readings):
    return replay(trace, [policy(name)], replace(settings, readings=Readings(**readings)))[0]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, torch.float16) for name in (*POLICIES, *CHOICES, *RANKED)),
        *((name, torch.float32) for name in POLICIES),
    ],
)
def test_measured_bytes_are_those_of_the_formula_at_every_event_and_query(name, dtype):
    run = replayed(TRACE, name, replace(SETTINGS, element_size=BYTES_OF[dtype]))
    for layer in TRACE.parts:
        for event, since, store in fed(layer, run, layout_of(run, dtype)):
            expected = expected_bytes(run, layer.spec.layer, event, since, len(layer.key))
            assert measured_bytes(store) == expected, (event, since)


@pytest.mark.parametrize("scope", ["layer", "kv_head", "head"])
def test_measured_bytes_are_those_of_the_formula_under_reading_a(scope):
    """Sets that each have the whole budget of a key-value head: what stays is their union."""
    run = replayed(TRACE, "R3(window=4)", scope=scope)
    for event, since, store in fed(TRACE.layer(1), run, layout_of(run, torch.float16)):
        assert measured_bytes(store) == expected_bytes(run, 1, event, since, 2)


@pytest.mark.parametrize("name", ["R1", "R2(window=1)", "R3(window=1)", "R3(window=2,scope=head)"])
def test_measured_bytes_are_those_of_the_formula_on_the_golden_trace(name):
    trace = Trace.open(Path(__file__).parents[1] / "golden" / "trace-v1")
    settings = Settings(budget=Budget("9/10", sinks=1, recent=1), horizon=1)
    for number in trace.layers:
        run, layer = replay(trace, [policy(name)], settings, layers=[number])[0], trace.layer(number)
        for event, since, store in fed(layer, run, layout_of(run, torch.float16)):
            assert measured_bytes(store) == expected_bytes(run, 0, event, since, len(layer.key))


@pytest.mark.parametrize("name", ["R2", "R3", "R3(window=4,scope=kv_head)", "R3(window=4,scope=head)"])
def test_a_frame_tells_the_mean_of_the_heads_at_its_peak(name):
    """With copies beside the ledger, and read from codes: one store for each head."""
    run = replayed(TRACE, name)
    frame, everything = byte_use(run, "t"), run.grid.length * run.capacity.full_window_bytes // run.grid.window
    for copies, column in ((True, "share_peak_with_ledger"), (False, "share_peak_from_codes")):
        layout = layout_of(run, torch.float16, copies=copies)
        for layer in TRACE.parts:
            heads = (fed(layer, run, layout, slice(head, head + 1)) for head in range(2))
            totals = [[store.bytes.total for _, _, store in stores] for stores in heads]
            assert frame[column][layer.spec.layer] == np.mean(totals, axis=0).max() / everything


@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize("name", ["R2", "R3(window=4)", "R3(window=4,scope=head)", "R4(window=16,scope=kv_head)"])
def test_contents_are_the_originals_or_what_their_codes_give_back(name, copies):
    run, layer, quantizer = replayed(TRACE, name), TRACE.layer(0), WindowMinMax(2)
    whole = (run.grid.length - SINKS) // run.grid.window
    shape = (whole, run.grid.window)
    behind = slice(SINKS, SINKS + whole * run.grid.window)
    original = [x.half()[:, behind].unflatten(1, shape) for x in (layer.key_pre_rope(), layer.value)]
    restored = [
        quantizer.restore(codes).half() for codes in (quantizer.keys(original[0]), quantizer.values(original[1]))
    ]
    tiers, ledgers = (by_lane(run, 0, x) for x in (run.tier, run.ledger))
    for event, since, store in fed(layer, run, layout_of(run, torch.float16, copies=copies)):
        for number in range(tiers.shape[1] if since == 0 else 0):
            kept = torch.isin(tiers[:, number, event], torch.tensor([F, Q]))
            coded = ledgers[:, number, event][kept][:, None, None]
            held = store.seen(number)
            assert torch.equal(held.mask, kept)
            for found, exact, back in zip((held.key, held.value), original, restored, strict=True):
                assert torch.equal(found.data, torch.where(coded, back[kept[:, :whole]], exact[kept[:, :whole]]))


def tensors(thing):
    if isinstance(thing, torch.Tensor):
        return [thing]
    if isinstance(thing, tuple):
        return [tensor for one in thing for tensor in tensors(one)]
    if is_dataclass(thing):
        return [tensor for field in fields(thing) for tensor in tensors(getattr(thing, field.name))]
    return []


@pytest.mark.parametrize("name", ["R1", "R2", "R3", "R3(window=4,scope=head)", "R3(schedule=prompt)"])
def test_nothing_of_an_evicted_window_is_kept_alive(name):
    """Everything a store refers to: the contents of the formula, and small tables."""
    run, layer = replayed(TRACE, name), TRACE.layer(0)
    for event, since, store in fed(layer, run, layout_of(run, torch.float16)):
        alive = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors(store)}
        entries = 2 * store.tier.numel() + 3 * store.codes.mask.numel()
        assert sum(alive.values()) <= sum(expected_bytes(run, 0, event, since, 2)) + entries


# window -> its tier at each of four events; every way into the quantized tier, and back
ORIGINS = {
    "prefill": (Q, Q, Q, Q),
    "full to quantized": (F, Q, Q, Q),
    "promoted": (Q, Q, Q, F),
    "promoted and demoted again": (Q, F, F, Q),
    "demoted, promoted, demoted": (F, Q, F, Q),
}


@pytest.mark.parametrize("bits", [2, 4])
@pytest.mark.parametrize("origin", ORIGINS)
def test_codes_are_the_same_bits_whatever_the_origin_of_a_window(origin, bits):
    key, value = tokens(40)
    store = TierStore.begin(replace(LAYOUT, quantizer=WindowMinMax(bits), dtype=torch.float32), key, value)
    for tier in ORIGINS[origin]:
        store = store.step(one_set(E, E, E, tier, E))
    for codes, source, axis in ((store.codes.key, key, TOKEN_AXIS), (store.codes.value, value, CHANNEL_AXIS)):
        expected = quantize(windows(source, 5)[:, 3], axis, bits)
        assert torch.equal(codes.packed, expected.packed)
        assert torch.equal(codes.scale, expected.scale)
        assert torch.equal(codes.zero, expected.zero)
        assert expected.packed.any()  # a window of zeros would be the known fault of a predecessor


def test_a_window_that_was_local_is_quantized_as_one_of_the_prompt():
    key, value = tokens(40)
    early = TierStore.begin(LAYOUT, key, value).step(one_set(E, Q, E))
    late = TierStore.begin(LAYOUT, key[:, :5], value[:, :5]).step(one_set()).append(key[:, 5:9], value[:, 5:9])
    late = late.step(one_set(E, L, L)).append(key[:, 9:], value[:, 9:]).step(one_set(E, Q, E))
    assert torch.equal(early.codes.key.packed, late.codes.key.packed)
    assert torch.equal(early.outside[0].data, late.outside[0].data)


def test_promotion_restores_the_dtype_not_the_precision():
    key, value = tokens(40)
    store = TierStore.begin(LAYOUT, key, value).step(one_set(Q, Q, F)).step(one_set(F, Q, F))
    original = windows(key.half(), 3)
    recovered = dequantize(quantize(original[:, 0], TOKEN_AXIS, 2)).half()
    assert torch.equal(store.copies.key.data, recovered)
    assert not torch.equal(recovered, original[:, 0])
    assert torch.equal(store.original.key.data, original[:, 2])


def test_sets_that_share_a_lane_hold_a_window_once():
    """One set promoted a window that another never demoted: its original, its copy and its codes stay, each once."""
    key, value = tokens(40)
    store = TierStore.begin(LAYOUT, key, value)
    for first, second in ((F, Q), (F, F)):
        store = store.step(torch.tensor([[[first], [second]]], dtype=torch.uint8).expand(LANES, -1, -1))
    window = WINDOW * 16 * 2
    codes = WindowMinMax(2).window_bytes(WINDOW, 8, 8)
    assert measured_bytes(store)[:3] == (LANES * 2 * window, 0, LANES * codes)
    exact, restored = (store.seen(number).key.data for number in (0, 1))
    assert torch.equal(exact, windows(key.half(), 1)[:, 0])
    assert not torch.equal(exact, restored)


@pytest.mark.parametrize(
    ("tiers", "words"),
    [
        ([[E, F], [Q, F]], "cannot|nothing left"),
        ([[F, L, F]], "in order"),
        ([[F, F], [F, L]], "1 windows were routed after 2"),
        ([[F] * 10], "10 windows were routed after 0; the local tokens make 9 whole ones"),
    ],
)
def test_what_no_cache_can_do_is_refused(tiers, words):
    store = TierStore.begin(LAYOUT, *tokens(40))
    for tier in tiers[:-1]:
        store = store.step(one_set(*tier))
    with pytest.raises(InputError, match=words):
        store.step(one_set(*tiers[-1]))


def test_two_tiers_have_no_codes():
    store = TierStore.begin(replace(LAYOUT, quantizer=None), *tokens(40))
    assert store.step(one_set(F, E)).bytes.quantized == 0
    with pytest.raises(InputError, match="without a quantizer"):
        store.step(one_set(F, Q))


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
