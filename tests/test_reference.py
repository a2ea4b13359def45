"""The judge is judged: worked examples, published capacities and laws, on the reference alone."""

import ast
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import reference as ref

SMALL = ref.Budget(ratio=Fraction(1, 2), sinks=2, recent=4)
POLICIES = {
    "R0": ref.Policy(window=3, evicts=False),
    "R1": ref.Policy(window=1),
    "R2": ref.Policy(window=3),
    "R3": ref.Policy(window=4, quantized=True),
    "R3-full-only": ref.Policy(window=4, quantized=True, quantized_readable=False),
    "R3-one-way": ref.Policy(window=4, quantized=True, promotion=False),
}


def random_layer(seed=0, heads=4, kv_heads=2, dim=4, prefill=19, decode=24, **options):
    rng = np.random.default_rng(seed)
    length = prefill + decode
    angle = np.outer(np.arange(length), 1.0 / 10 ** (np.arange(dim // 2) / dim)).astype(np.float32)
    angle = np.repeat(angle, 2, axis=1) if options.get("rope_style") == "interleaved" else np.tile(angle, 2)
    prompt = rng.random((heads, prefill))
    return ref.Layer(
        query=rng.normal(size=(heads, decode, dim)).astype(np.float32) * 2,
        key=rng.normal(size=(kv_heads, length, dim)).astype(np.float32),
        prompt_mass=(prompt / prompt.sum(1, keepdims=True) * prefill).astype(np.float32),
        **{
            "cos": np.cos(angle),
            "sin": np.sin(angle),
            "rope_style": "half",
            "scaling": dim**-0.5,
            **options,
        },
    )


LAYER = random_layer()
RUNS = {name: ref.replay(LAYER, policy, SMALL) for name, policy in POLICIES.items()}
every_policy = pytest.mark.parametrize("name", POLICIES)


def test_nothing_is_imported_from_the_library():
    tree = ast.parse(Path(ref.__file__).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name for node in imports for alias in node.names} | {getattr(n, "module", None) for n in imports}
    assert not any(name and name.startswith("qevict") for name in names)


# --- section 4 ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "prefill", "decode", "dim", "share", "expected"),
    [
        ("R1", 512, 256, 128, "1/2", (116, 0)),
        ("R2", 512, 256, 128, "1/2", (14, 0)),
        ("R3", 512, 256, 128, "1/2", (7, 28)),
        ("R4", 512, 256, 128, "1/2", (1, 11)),
        ("R3", 512, 256, 64, "1/2", (7, 27)),
        ("R4", 512, 256, 64, "1/2", (1, 10)),
        ("R3", 256, 1024, 128, "1/2", (13, 53)),
        ("R3", 512, 256, 128, "7/10", (4, 39)),
    ],
)
def test_published_capacities(condition, prefill, decode, dim, share, expected):
    policy = ref.CONDITIONS[condition]
    budget = ref.Budget(quantized_fraction=Fraction(share))
    capacity = ref.capacities(policy.window, prefill, decode, dim, budget=budget, quantized=policy.quantized)
    assert (capacity.full, capacity.quantized) == expected


def test_history_bytes_of_the_diagnostics():
    assert ref.capacities(8, 512, 256, 128).history_bytes == 59392


def test_budget_without_history_is_refused():
    with pytest.raises(ValueError, match="history"):
        ref.capacities(8, 100, 85, 128)  # a fifth of 185 tokens are exactly the 37 protected ones


# --- sections 1 and 2 -----------------------------------------------------------------------------------------------


def test_events_stop_with_the_queries():
    assert len(ref.event_lengths(512, 256, 8)) == 32
    assert len(ref.event_lengths(512, 256, 32)) == 8
    assert ref.event_lengths(10, 5, 2) == [10, 12, 14]


def test_incomplete_tail_window_stays_local():
    assert len(ref.historical_windows(512, 8, 5, recent=0)) == 63  # 507 = 63·8 + 3
    windows = ref.historical_windows(512, 8, 5, 32)
    regions = ref.partition(512, dict.fromkeys(windows, ref.FULL), 8, 5)
    assert len(regions["local"]) == 32 + (512 - 5 - 32) % 8


@every_policy
def test_partition_is_exact(name):
    for unit in RUNS[name].units:
        for event in unit.events:
            everything = [i for positions in event.positions.values() for i in positions]
            assert sorted(everything) == list(range(event.length))


# --- section 5 ------------------------------------------------------------------------------------------------------


def test_quantize_by_hand():
    codes, scale, zero = ref.quantize([0.0, 1.0, 2.0, 3.0, 0.5, 1.5, 2.5], bits=2)
    assert (scale, zero) == (1, 0)
    assert codes.tolist() == [0, 1, 2, 3, 0, 2, 2]  # halves go to even


def test_stored_scale_serves_both_directions():
    values = np.array([0.1, 0.2, 0.3, 0.7], np.float32)
    codes, scale, zero = ref.quantize(values, bits=2)
    assert scale == np.float16(0.2)
    assert zero == np.float16(0.1)
    np.testing.assert_array_equal(ref.dequantize(codes, scale, zero)[0], np.float32(zero))


@pytest.mark.parametrize("axis", [0, 1])
def test_constant_groups_are_exact(axis):
    constant = np.broadcast_to(np.float32([[0.5, -2.0, 0.0, 7.0]]), (4, 4))
    constant = constant if axis == 0 else constant.T
    np.testing.assert_array_equal(ref.quantize_dequantize(constant, axis, 2), constant)


def test_groups_run_along_the_axis():
    x = np.float32([[0, 100], [1, 101], [2, 102], [3, 103]])
    np.testing.assert_array_equal(ref.quantize_dequantize(x, axis=0, bits=2), x)
    np.testing.assert_array_equal(ref.quantize_dequantize(x.T, axis=1, bits=2), x.T)
    assert (ref.quantize_dequantize(x[:, :1] * [0, 1, 1.4], axis=1, bits=2)[:, 1] != x[:, 0])[1:].all()


def test_four_bits_are_closer_than_two():
    x = np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32)
    error = {bits: np.abs(ref.quantize_dequantize(x, 0, bits) - x).max() for bits in (2, 4)}
    assert error[4] < error[2] / 3
    assert error[2] <= (x.max(0) - x.min(0)).max() / 3 / 2 * 1.01


@pytest.mark.parametrize("style", ["half", "interleaved"])
def test_turning_keys_back_and_forth(style):
    layer = random_layer(rope_style=style, dim=6)
    assert np.abs(ref.turn_keys(layer, layer.key[0], backwards=True) - layer.key[0])[1:].max(1).min() > 0.1
    there = ref.turn_keys(layer, layer.key[0], backwards=False)
    np.testing.assert_allclose(ref.turn_keys(layer, there, backwards=True), layer.key[0], atol=1e-5)


def test_partial_rotary_leaves_the_other_channels():
    cos, sin = np.full((43, 2), 0.6, np.float32), np.full((43, 2), 0.8, np.float32)
    layer = random_layer(cos=cos, sin=sin, rope_style="interleaved", rope_start=1)
    key = np.float32([[1, 2, 3, 4]] * 43)
    np.testing.assert_allclose(ref.turn_keys(layer, key, backwards=False)[0], [1, 2 * 0.6 - 3 * 0.8, 3.4, 4], rtol=1e-6)


def test_only_complete_windows_are_reconstructed():
    keys = ref.reconstructed_keys(LAYER, 4, 2, 2)
    changed = np.abs(keys - LAYER.key).max(axis=(0, 2)) > 0
    assert not changed[:2].any()
    assert changed[2:42].all()
    assert not changed[42:].any()  # 43 - 2 = 10·4 + 1


# --- attention and scores -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"softcap": 3.0}, {"sliding_window": 7}, {"cos": None}], ids=str)
def test_rows_add_up_to_one(options):
    layer = random_layer(**options)
    attention = ref.full_attention(layer)
    np.testing.assert_allclose(attention.sum(-1), 1)
    for t in range(layer.decode):
        assert (attention[:, t, layer.prefill + t + 1 :] == 0).all()
        assert (attention[:, t, layer.prefill + t] > 0).all()
        if "sliding_window" in options:
            assert (attention[:, t, : layer.prefill + t - 6] == 0).all()


def test_sink_logit_takes_its_share():
    layer = random_layer(sink_logits=(0.0, 1.0, -1.0, 5.0))
    row = ref.logits(layer, layer.key)[1, 3]
    expected = 1 - np.exp(1.0) / (np.exp(1.0) + np.exp(row).sum())
    assert ref.full_attention(layer)[1, 3].sum() == pytest.approx(expected)


def test_policy_attention_without_ledger_is_fullkv_renormalized():
    attention, event = ref.full_attention(LAYER), RUNS["R2"].units[0].events[3]
    rows = ref.logits(LAYER, LAYER.key)
    alive = np.ones(LAYER.length, bool)
    alive[event.positions["evicted"]] = False
    seen = ref.policy_attention(LAYER, 1, 10, event, rows, rows * np.nan, 3, 2)
    assert event.positions["evicted"]
    np.testing.assert_allclose(seen, np.where(alive, attention[1, 10], 0) / attention[1, 10, alive].sum())


def test_restricted_scores_are_the_reference_scores():
    run = ref.replay(LAYER, POLICIES["R2"], SMALL, {"policy_score": "restricted"})
    attention = ref.full_attention(LAYER)
    for event in run.units[0].events:
        reference = ref.reference_scores(LAYER, attention, range(4), event.number, 3, SMALL)
        assert event.scores == pytest.approx({w: reference[w] for w in event.scores})


def test_fullkv_policy_scores_are_the_reference_scores():
    attention = ref.full_attention(LAYER)
    for event in RUNS["R0"].units[0].events:
        assert event.scores == pytest.approx(ref.reference_scores(LAYER, attention, range(4), event.number, 3, SMALL))


def test_ledger_changes_what_later_queries_see():
    low, plain = RUNS["R3"].units[0], ref.replay(LAYER, POLICIES["R3"], SMALL, {"policy_score": "restricted"}).units[0]
    assert low.events[0].scores == plain.events[0].scores
    assert low.events[1].scores != plain.events[1].scores


def test_event_query_reading_takes_one_row_per_event():
    run = ref.replay(LAYER, POLICIES["R2"], SMALL, {"policy_score": "restricted", "score_queries": "event"})
    attention, event = ref.full_attention(LAYER), run.units[0].events[2]
    mass = np.zeros(LAYER.length)
    mass[: LAYER.prefill] = LAYER.prompt_mass.sum(0)
    mass += attention[:, [2, 5]].sum((0, 1))  # the queries just before events 1 and 2
    expected = {w: mass[ref.window_positions(w, 3, 2)].sum() for w in event.scores}
    assert event.scores == pytest.approx(expected)


# --- section 6 ------------------------------------------------------------------------------------------------------


def tiers_of(full, quantized, evicted=()):
    return {**dict.fromkeys(full, "full"), **dict.fromkeys(quantized, "quantized"), **dict.fromkeys(evicted, "evicted")}


def test_routing_example():
    first = ref.route({}, [1, 2, 3, 4], {1: 0.9, 2: 0.2, 3: 0.5, 4: 0.4}, 1, 2)
    assert first == tiers_of([1], [3, 4], [2])
    second = ref.route(first, [5], {1: 0.95, 3: 0.55, 4: 1.2, 5: 0.3}, 1, 2)
    assert second == tiers_of([4], [1, 3], [2, 5])  # 4 promoted, 1 demoted
    third = ref.route(second, [6], {1: 1, 3: 2, 4: 1.3, 6: 0.1, 2: 9}, 1, 2)
    assert third == tiers_of([3], [1, 4], [2, 5, 6])
    retained = [{w for w, tier in step.items() if tier != "evicted"} for step in (first, second, third)]
    assert ref.jaccard_distance(*retained[:2]) == ref.jaccard_distance(*retained[1:]) == 0


def test_ties_go_to_the_older_window():
    assert ref.route({}, [0, 1, 2], {0: 1.0, 1: 1.0, 2: 1.0}, 1, 1) == tiers_of([0], [1], [2])


def test_fewer_candidates_than_capacity_are_all_full():
    assert ref.route({}, [0, 1], {0: 1.0, 1: 2.0}, 3, 2) == tiers_of([0, 1], [])


def test_one_way_never_promotes():
    before = tiers_of([1], [3, 4])
    after = ref.route(before, [5], {1: 0.5, 3: 2.0, 4: 3.0, 5: 1.0}, 1, 2, promotion=False)
    assert after == tiers_of([5], [3, 4], [1])


def test_forced_newcomers_displace_the_lowest():
    before, scores = tiers_of([1], [3, 4]), {1: 3.0, 3: 2.0, 4: 1.0, 5: 0.0, 6: 0.5, 7: 0.2, 8: 0.1}
    assert ref.route(before, [5], scores, 1, 2, forced=True) == tiers_of([1], [3, 5], [4])
    assert ref.route(before, [5, 6, 7, 8], scores, 1, 2, forced=True) == tiers_of([6], [7, 8], [1, 3, 4, 5])
    assert ref.route({}, [5, 6], scores, 1, 0, forced=True) == tiers_of([6], [], [5])


def test_forced_admission_swaps_one_token_at_every_event():
    run = ref.replay(LAYER, POLICIES["R1"], SMALL, {"admission": "forced"})
    size = run.capacities.full
    settled = ref.churn(run)[0][1:]
    assert settled[-5:] == pytest.approx([1 - (size - 1) / (size + 1)] * 5)


@pytest.mark.parametrize("policy", ["R1", "R3"])
def test_newcomer_without_history_scores_zero(policy):
    run = ref.replay(LAYER, POLICIES[policy], SMALL, {"newcomer_history": "local_exit"})
    events = run.units[0].events
    assert all(event.scores[w] == 0 for event in events[1:] for w in event.newcomers)
    assert all(events[0].scores[w] > 0 for w in events[0].newcomers)
    assert sum(len(event.newcomers) for event in events[1:]) > 0


@pytest.mark.parametrize(("scope", "groups"), [("layer", [[0, 1, 2, 3]]), ("kv_head", [[0, 1], [2, 3]]), ("head", 4)])
def test_scope_groups_heads(scope, groups):
    run = ref.replay(LAYER, POLICIES["R3"], SMALL, {"scope": scope})
    assert [unit.heads for unit in run.units] == (groups if scope != "head" else [[0], [1], [2], [3]])


def test_scope_head_is_a_layer_of_one_head():
    run = ref.replay(LAYER, POLICIES["R3"], SMALL, {"scope": "head"})
    alone = ref.Layer(
        LAYER.query[2:3],
        LAYER.key[1:2],
        LAYER.prompt_mass[2:3],
        LAYER.cos,
        LAYER.sin,
        LAYER.rope_style,
        scaling=LAYER.scaling,
    )
    assert run.unit_of(2).events == ref.replay(alone, POLICIES["R3"], SMALL).units[0].events


@every_policy
def test_capacities_hold_and_the_evicted_stay_evicted(name):
    run = RUNS[name]
    for unit in run.units:
        gone, written = set(), set()
        for event in unit.events:
            counts = [len(ref.windows_in(event.tiers, tier)) for tier in ref.TIERS[:2]]
            assert counts[0] <= run.capacities.full
            assert counts[1] <= run.capacities.quantized
            now = set(ref.windows_in(event.tiers, "evicted"))
            assert gone <= now
            assert written <= event.ledger
            gone, written = now, event.ledger


def test_short_prompt_has_no_candidates_at_event_0():
    layer = random_layer(prefill=8, decode=24)
    run = ref.replay(layer, POLICIES["R3"], SMALL)
    assert run.units[0].events[0].tiers == {}
    assert np.isnan(ref.fmm(layer, run, horizon=8).value[:, 0]).all()


# --- section 7: Future Missed Mass, churn, shares, agreement -------------------------------------------------------


def test_fmm_example():
    rows = [[0.2, 0.1, 0.3, 0.1, 0.3], [0.1, 0.1, 0.2, 0.2, 0.1, 0.3]]
    missed, existing = ref.mass_on(rows, [1, 2]), ref.mass_on(rows, range(4))
    assert missed / existing == pytest.approx(0.5385, abs=5e-5)
    assert missed / ref.mass_on(rows, range(6)) == pytest.approx(0.35)
    assert ref.mass_on(rows[:1], [1, 2]) / ref.mass_on(rows[:1], range(4)) == pytest.approx(0.5714, abs=5e-5)


def test_fmm_is_a_plain_double_sum():
    run, attention = RUNS["R2"], ref.full_attention(LAYER)
    event = run.units[0].events[2]
    rows = attention[3, 6:14]
    expected = rows[:, event.positions["evicted"]].sum() / rows[:, 2 : 19 + 6].sum()
    assert ref.fmm(LAYER, run, horizon=8).value[3, 2] == pytest.approx(expected)


def test_events_without_a_full_horizon_are_not_eligible():
    values = ref.fmm(LAYER, RUNS["R2"], horizon=8).value  # 24 queries, events at 0, 3, .., 21
    assert np.isfinite(values).all(0).tolist() == [True] * 6 + [False] * 2
    assert np.isfinite(ref.fmm(LAYER, RUNS["R2"], horizon=8, truncate=True).value).all()


def test_fmm_of_fullkv_is_zero():
    assert np.nanmax(ref.fmm(LAYER, RUNS["R0"], horizon=8).value) == 0


def test_fmm_of_readings_are_ordered():
    values = {name: ref.fmm(LAYER, RUNS["R2"], 8, name).value for name in ("historical", "existing", "sinks", "all")}
    in_order = [np.nanmean(value) for value in values.values()]
    assert in_order == sorted(in_order, reverse=True)
    assert 0 < in_order[-1] <= in_order[0] <= 1


def test_quantized_tier_only_lowers_fmm():
    kept, ablated = (ref.fmm(LAYER, RUNS[name], horizon=8).value for name in ("R3", "R3-full-only"))
    assert (kept <= ablated).sum() == np.isfinite(kept).sum()
    assert RUNS["R3"].units[0].events == RUNS["R3-full-only"].units[0].events


def test_churn_example():
    assert ref.jaccard_distance({0, 1, 2, 3}, {0, 1, 4, 5}) == pytest.approx(0.6667, abs=5e-5)
    assert ref.jaccard_distance({1, 2}, {1, 2}) == 0
    assert ref.jaccard_distance(set(), set()) == 0
    assert ref.jaccard_distance(set(), {1}) == 1


@every_policy
def test_first_assignment_has_no_churn(name):
    for churn_set in ("retained", "full"):
        values = ref.churn(RUNS[name], churn_set)
        assert np.isnan(values[:, 0]).all()
        assert ((values[:, 1:] >= 0) & (values[:, 1:] <= 1)).all()


@every_policy
@pytest.mark.parametrize("reading", ["cumulative", "instantaneous"])
def test_shares_add_up_to_one(name, reading):
    shares = ref.mass_share(LAYER, RUNS[name], reading)
    assert np.isfinite(shares).all()
    np.testing.assert_allclose(shares.sum(-1), 1)


def test_shares_with_sinks_leave_the_sinks_out():
    with_sinks, without = (ref.mass_share(LAYER, RUNS["R3"], reading)[0, 0] for reading in ("sinks", "cumulative"))
    mass = LAYER.prompt_mass.sum(0)
    assert with_sinks.sum() == pytest.approx(1 - mass[:2].sum() / mass.sum(), abs=1e-6)
    np.testing.assert_allclose(with_sinks / with_sinks.sum(), without)


def test_instantaneous_share_needs_a_full_interval():
    layer = random_layer(decode=22)
    run = ref.replay(layer, POLICIES["R3"], SMALL)
    assert np.isnan(ref.mass_share(layer, run, "instantaneous")[0, :, 0]).tolist() == [False] * 5 + [True]
    assert np.isnan(ref.qsa(layer, run)[0]).tolist()[-1]


def test_agreement_example():
    low, full = [0.3, 0.12, 0.05], [0.32, 0.15, 0.04]
    assert ref.cosine(low, full) == pytest.approx(0.9975, abs=5e-5)
    assert ref.ratio(np.array([sum(low)]), np.array([sum(full)])).value[0] == pytest.approx(0.9216, abs=5e-5)


@pytest.mark.parametrize("vectors", [([], []), ([1.0], [2.0]), ([0.0, 0.0], [1.0, 2.0])], ids=str)
def test_agreement_is_undefined_without_two_windows_and_mass(vectors):
    assert np.isnan(ref.cosine(*vectors))


def test_agreement_of_two_tiers_is_undefined():
    assert np.isnan(ref.qsa(LAYER, RUNS["R2"])).all()
    assert np.isnan(ref.mass_ratio(LAYER, RUNS["R2"]).value).all()


def test_agreement_is_high_and_higher_with_more_bits():
    agreement = {}
    for bits in (2, 4):
        budget = ref.Budget(Fraction(1, 2), bits=bits, sinks=2, recent=4)
        agreement[bits] = np.nanmean(ref.qsa(LAYER, ref.replay(LAYER, POLICIES["R3"], budget)))
    assert 0.8 < agreement[2] < agreement[4] <= 1


def test_accessible_support_raises_the_mass_ratio():
    plain, accessible = (ref.mass_ratio(LAYER, RUNS["R3"], support).value for support in ("fullkv", "accessible"))
    assert np.nanmean(accessible) > np.nanmean(plain)


# --- section 7: Global LIR, transitions -----------------------------------------------------------------------------

EXAMPLE = ["100010", "000000", "001001", "--0001", "111111", "----00"]


def selection_of(windows):
    return [[None if w[r] == "-" else int(w[r]) for w in windows] for r in range(len(windows[0]))]


@pytest.mark.parametrize(("m", "counts"), [(1, (4, 7)), (2, (4, 6)), (3, (2, 3)), (4, (0, 1))])
def test_lir_example(m, counts):
    result = ref.lir(selection_of(EXAMPLE), m)
    assert (result.rescued, result.eligible) == counts
    assert result.value == pytest.approx(counts[0] / counts[1])


def test_return_times_count_from_eligibility():
    assert ref.lir(selection_of(EXAMPLE), 3).return_times == [1, 1]
    assert sorted(ref.lir(selection_of(EXAMPLE), 1).return_times) == [2, 2, 3, 3]
    assert ref.lir(selection_of(["0000001"]), 2).return_times == [5]


def test_lir_after_exit_drops_runs_from_birth():
    assert ref.lir(selection_of(EXAMPLE), 1, "after_exit")[:2] == (2, 3)


def test_lir_without_episodes_is_undefined():
    assert ref.lir(selection_of(["111"]), 1)[:2] == (0, 0)
    assert np.isnan(ref.lir(selection_of(["111"]), 1).value)


@pytest.mark.parametrize(
    ("lag", "start", "counts"), [(1, 0, (4, 16)), (1, 1, (3, 8)), (2, 0, (4, 12)), (2, 1, (2, 6)), (6, 0, (0, 0))]
)
def test_transitions_example(lag, start, counts):
    result = ref.transitions(selection_of(EXAMPLE), lag, start)
    assert result[:2] == counts
    assert np.isnan(result.value) == (counts[1] == 0)


def test_first_passage_sees_what_the_endpoint_misses():
    there_and_back = selection_of(["010"])
    assert ref.transitions(there_and_back, 2, 0)[:2] == (0, 1)
    assert ref.transitions(there_and_back, 2, 0, "first_passage")[:2] == (1, 1)
    assert ref.transitions(there_and_back, 1, 0, "first_passage") == ref.transitions(there_and_back, 1, 0)


def test_lir_is_zero_without_promotion():
    run = RUNS["R3-one-way"]
    assert sum(ref.promotions(run.units[0])) == 0
    selection = ref.policy_selection(run, run.units[0])
    assert ref.lir(selection, 1).rescued == 0
    assert ref.lir(selection, 1).eligible > 0


def test_promotions_are_returns_from_the_quantized_tier():
    for name in ("R3", "R3-full-only"):
        assert sum(ref.promotions(RUNS[name].units[0])) > 0


def test_accessible_universe_ends_with_eviction():
    run = RUNS["R3"]
    selection = ref.policy_selection(run, run.units[0], "accessible")
    for row, event in zip(selection, run.units[0].events, strict=True):
        assert [w for w, state in enumerate(row) if state is not None] == [
            w for w in sorted(event.tiers) if event.tiers[w] != "evicted"
        ]


@pytest.mark.parametrize("universe", ["historical", "accessible"])
def test_oracle_selects_as_many_as_the_policy(universe):
    run = RUNS["R3"]
    oracle = ref.oracle_selection(LAYER, run, run.units[0], universe)
    policy = ref.policy_selection(run, run.units[0], universe)
    for mine, theirs in zip(oracle, policy, strict=True):
        assert [state is None for state in mine] == [state is None for state in theirs]
        assert sum(filter(None, mine)) == sum(filter(None, theirs))


def test_oracle_of_fullkv_is_the_policy():
    run = RUNS["R0"]
    assert ref.oracle_selection(LAYER, run, run.units[0]) == ref.policy_selection(run, run.units[0])


def test_no_full_tier_has_no_lir():
    budget = ref.Budget(Fraction(1, 2), quantized_fraction=Fraction(1), sinks=2, recent=4)
    run = ref.replay(LAYER, POLICIES["R3"], budget)
    assert run.capacities.full == 0
    assert np.isnan(ref.lir(ref.policy_selection(run, run.units[0]), 1).value)
