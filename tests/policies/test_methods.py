"""The published methods: worked examples, a slow reading of each on random traces, and laws over all of them."""

import numpy as np
import pytest
import reference
import torch
from judge import reference_layer

from qevict_diag.cache.budget import Budget, Capacity
from qevict_diag.cache.tier import Tier
from qevict_diag.cache.windows import Grid
from qevict_diag.errors import InputError, MetricError
from qevict_diag.measure.bytes import byte_use
from qevict_diag.metrics.fmm import MISSED
from qevict_diag.policies.allotment import Adaptive, Layers, Pooled, Pyramid
from qevict_diag.policies.catalogue import METHODS, policy
from qevict_diag.policies.methods.h2o import ObservedAttention
from qevict_diag.policies.methods.snapkv import PromptWindow
from qevict_diag.policies.step import Rules, begin, decide, learn
from qevict_diag.policies.view import Interval, Prompt
from qevict_diag.readings import Readings
from qevict_diag.replay.loop import replay
from qevict_diag.replay.settings import Settings
from qevict_diag.testing.traces import random_trace

ONE = Layers((0,), 1)
HALF = Settings(Budget("1/2", sinks=3, recent=6), horizon=8, dtype=torch.float64)


def rows_of(weights, length):
    """Causal rows of attention from integer weights, [query, position]."""
    rows = torch.zeros(len(weights), length, dtype=torch.float64)
    for row, given in zip(rows, weights, strict=True):
        row[: len(given)] = torch.tensor(given, dtype=torch.float64)
    return rows / rows.sum(-1, keepdim=True)


def prompt_of(grid, heads, first=0):
    """A prompt whose queries from position ``first`` on gave these rows: [head, query, position] of one set."""
    stored = heads[:, : grid.prefill - first]
    positions = torch.arange(first, grid.prefill)
    return Prompt(
        grid=grid,
        layers=ONE,
        mass=stored.sum((0, 1))[None, None],
        scored=range(first, grid.prefill),
        reach=torch.tensor([grid.length]),
        rows=lambda: (stored[None, None], positions),
        key_norm=lambda: torch.zeros(1, 1, grid.count),
        value_norm=lambda: torch.zeros(1, 1, grid.count),
    )


def kept_by(name, weights, prefill, recent, full):
    """Tokens alive after each event, played step by step on rows of attention."""
    rows = rows_of(weights, len(weights))
    grid = Grid(prefill, len(weights) - prefill + 1, 1, 0, recent)
    padded = torch.nn.functional.pad(rows, (0, grid.count - rows.shape[1]))[None]
    rules = Rules(policy(name), grid, Capacity(1, full, 0, 1, 1, 1), 1, Readings())
    state, kept = begin(rules, prompt_of(grid, padded)), []
    for event in range(grid.events):
        state = decide(rules, state, event)
        alive = state.assignment.tier[0, 0, : grid.length_at(event)] != Tier.EVICTED
        kept.append(alive.nonzero().flatten().tolist())
        if prefill + event < len(weights):
            state = learn(rules, state, seen(grid, padded[0, prefill + event], event, state.assignment))
    return kept


def seen(grid, row, event, assignment):
    return Interval(
        grid=grid,
        positions=torch.tensor([grid.length_at(event)]),
        full=row[None, None, None, None],
        quantized=None,
        always=torch.zeros(1, 1, 1, 1, dtype=torch.float64),
        accessible=assignment.accessible,
        ledger=assignment.ledger,
        reach=torch.tensor([grid.length]),
        elapsed=1,
    )


# worked examples


def test_h2o_scores_what_is_alive():
    """One heavy hitter, one recent token: scored on the softmax over what is alive, not on FullKV's rows."""
    weights = [[1], [1, 4], [1, 1, 6], [1, 1, 6, 1], [1, 3, 4, 3, 6], [6, 4, 2, 6, 6, 1]]
    assert kept_by("h2o", weights, prefill=3, recent=1, full=1) == [[0, 2], [2, 3], [2, 4], [2, 5]]


def test_h2o_drops_for_good():
    weights = [[8], [1, 9], [1, 1, 8], [1, 1, 8, 1], [1, 1, 1, 9, 8], [1, 1, 1, 8, 1, 1]]
    assert kept_by("h2o", weights, prefill=4, recent=2, full=1)[0] == [0, 2, 3]
    assert kept_by("h2o", weights, prefill=4, recent=2, full=1)[1:] == [[2, 3, 4], [2, 4, 5]]


def test_streaming_llm_slides_behind_its_sinks():
    grid = Grid(2, 5, 1, 1, 1)
    rules = Rules(policy("streaming_llm(sinks=1)"), grid, Capacity(1, 1, 0, 1, 1, 1), 1, Readings())
    rows = torch.full((1, 6, grid.count), 0.1, dtype=torch.float64)
    state, kept = begin(rules, prompt_of(grid, rows)), []
    for event in range(4):
        state = decide(rules, state, event)
        alive = state.assignment.tier[0, 0, : grid.length_at(event) - 1] != Tier.EVICTED
        kept.append([0, *(1 + alive.nonzero().flatten()).tolist()])
        state = learn(rules, state, seen(grid, rows[0, 0], event, state.assignment))
    assert kept == [[0, 1], [0, 1, 2], [0, 2, 3], [0, 3, 4]]


@pytest.mark.parametrize(("rows", "kept"), [([[1, 5, 1, 3], [4, 1, 3, 2]], [0, 1, 3]), ([[4, 3, 2, 1]] * 2, [0, 1, 2])])
def test_tova_takes_the_mean_of_the_last_rows_and_may_drop_the_newest(rows, kept):
    heads = torch.tensor(rows, dtype=torch.float64)[:, None] / 10
    grid = Grid(4, 1, 1, 0, 0)
    heads = torch.nn.functional.pad(heads, (0, 1))
    rules = Rules(policy("tova"), grid, Capacity(1, 3, 0, 1, 1, 1), 1, Readings())
    state = decide(rules, begin(rules, prompt_of(grid, heads, first=3)), 0)
    assert (state.assignment.tier[0, 0, :4] == Tier.FULL).nonzero().flatten().tolist() == kept


def test_scissorhands_counts_what_fell_below_uniform():
    """Rows of the queries at 3 and 4, which see 4 and 5 tokens: counts 0, 2, 1, 1, 0; 1 and 2 are dropped."""
    rows = torch.tensor([[0.4, 0.1, 0.1, 0.4, 0.0], [0.3, 0.05, 0.3, 0.05, 0.3]], dtype=torch.float64)
    grid = Grid(5, 1, 1, 0, 1)
    heads = torch.nn.functional.pad(rows, (0, 1))[None]
    rules = Rules(policy("scissorhands(history=2,recent=1,drop=2)"), grid, Capacity(1, 2, 0, 1, 1, 1), 1, Readings())
    before = begin(rules, prompt_of(grid, heads, first=3))
    assert policy("scissorhands(history=2)").ranking.score(before.importance)[0, 0, :5].tolist() == [0, -2, -1, -1, 0]
    # 2 and 3 tie at one; 3 is dropped by the rule that the earlier token stays
    assert (decide(rules, before, 0).assignment.tier[0, 0, :4] == Tier.FULL).nonzero().flatten().tolist() == [0, 2]


A = [[1, 1, 8, 1, 1], [1, 1, 6, 2, 1, 1]]
B = [[6, 1, 1, 1, 1], [5, 1, 1, 2, 1, 2]]


@pytest.mark.parametrize(
    ("heads", "pool", "expected", "kept"),
    [
        ([A], "avg", [0.1111, 0.5, 0.5278, 0.4722], [1, 2, 4, 5]),
        ([B], "avg", [0.4, 0.4611, 0.2111, 0.15], [0, 1, 4, 5]),
        ([A, B], "avg", [0.1278 * 2, 0.2403 * 2, 0.1847 * 2, 0.1556 * 2], [1, 2, 4, 5]),
        ([A], "max", [0.1667, 1.1667, 1.1667, 1.1667], [1, 2, 4, 5]),
    ],
)
def test_snapkv_pools_the_prompts_last_rows(heads, pool, expected, kept):
    rows = torch.stack([rows_of(one, 6) for one in heads])
    grid = Grid(6, 1, 1, 0, 2)
    stored = torch.nn.functional.pad(rows, (0, 1))
    name = f"snapkv(window=2,kernel=3,pool={pool})"
    rules = Rules(policy(name), grid, Capacity(1, 2, 0, 1, 1, 1), 1, Readings())
    state = begin(rules, prompt_of(grid, stored, first=4))
    assert state.importance[0, 0, :4].tolist() == pytest.approx(expected, abs=1e-4)
    after = decide(rules, state, 0).assignment
    assert after.accessible[0, 0, :6].nonzero().flatten().tolist() == kept


def test_max_pooling_comes_after_the_heads_are_reduced():
    rows = torch.stack([rows_of(one, 6) for one in (A, B)])
    prompt = prompt_of(Grid(6, 1, 1, 0, 2), torch.nn.functional.pad(rows, (0, 1)), first=4)
    for reduce, heads in (("mean", rows.sum(1).mean(0)), ("max", rows.sum(1).amax(0))):
        wanted = torch.nn.functional.max_pool1d(heads[None, :4], 3, stride=1, padding=1)[0]
        assert torch.equal(PromptWindow(2, 3, "max", reduce).init(prompt)[0, 0, :4], wanted)


def test_an_observation_window_longer_than_what_is_stored_is_refused():
    prompt = prompt_of(Grid(6, 1, 1, 0, 2), torch.zeros(1, 6, 7, dtype=torch.float64), first=4)
    with pytest.raises(MetricError, match="record again with --prompt-queries 3"):
        PromptWindow(3, 3).init(prompt)


@pytest.mark.parametrize(
    ("allotment", "kept"),
    [
        (Adaptive(0.0), [[0, 1, 2], [0]]),
        (Adaptive(0.2), [[0, 1], [0]]),
        (Adaptive(0.5), [[0, 1], [0, 1]]),
        (Pooled(0.0), [[0, 1, 2], [0]]),
        (Pooled(0.2), [[0, 1, 2], [0]]),
        (Pooled(0.5), [[0, 1, 2], [0]]),
    ],
)
def test_adakv_divides_a_layers_budget_over_its_heads(allotment, kept):
    score = torch.tensor([[[0.4, 0.3, 0.2, 0.05], [0.15, 0.1, 0.05, 0.05]]], dtype=torch.float64)
    chosen = allotment.choose(score, torch.ones_like(score, dtype=torch.bool), 2, ONE)
    assert [head.nonzero().flatten().tolist() for head in chosen[0]] == kept


def test_pyramidkv_keeps_less_from_layer_to_layer():
    pyramid = Pyramid(4, exact=False)
    assert [pyramid.of_layer(layer, 4, 16, 96) for layer in range(4)] == [28, 20, 12, 4]
    assert [pyramid.of_layer(layer, 4, 16, 16) for layer in range(4)] == [16] * 4
    original = [Pyramid(20, exact=False).of_layer(layer, 32, 504, 3992) for layer in range(32)]
    assert (original[0], original[-1], sum(original)) == (983, 53, 16576)
    assert sum(Pyramid(20).of_layer(layer, 32, 504, 3992) for layer in range(32)) <= 32 * 504
    score = torch.rand(2, 1, 96, dtype=torch.float64)
    chosen = pyramid.choose(score, torch.ones_like(score, dtype=torch.bool), 16, Layers((0, 3), 4))
    assert chosen.sum(-1).flatten().tolist() == [28, 4]


def test_observed_attention_divides_by_the_queries_that_could_see():
    rows = rows_of([[1], [1, 1], [2, 1, 1]], 3)
    prompt = prompt_of(Grid(3, 1, 1, 0, 0), torch.nn.functional.pad(rows, (0, 1))[None])
    assert ObservedAttention().init(prompt)[0, 0, :3].tolist() == pytest.approx([2 / 3, 0.75 / 2, 0.25])


# a slow reading of each method, on random traces


def alive_after_prompt(layer, score, keep, recent):
    """The ``keep`` best tokens before the ``recent`` ones, lower positions first on ties, and the recent ones."""
    before = layer.prefill - recent
    order = sorted(range(before), key=lambda i: (-score[i], i))[:keep]
    return sorted(order) + list(range(before, layer.prefill))


def stored_rows(layer, head):
    """Attention of the stored prompt queries [query, prompt position], from the definition."""
    stored, count = [], layer.prompt_query.shape[1]
    key = layer.key[layer.kv_head_of(head)].astype(np.float64)
    for index in range(count):
        position = layer.prefill - count + index
        row = key[: position + 1] @ layer.prompt_query[head, index].astype(np.float64) * layer.scaling
        row = np.exp(row - row.max())
        stored.append(np.pad(row / row.sum(), (0, layer.prefill - position - 1)))
    return np.array(stored)


@pytest.fixture(scope="module")
def trace():
    return random_trace(11, layers=2, heads=4, kv_heads=2, prefill=64, decode=24)


def run_of(trace, name, settings=HALF):
    return replay(trace, [policy(name)], settings, folds=[MISSED])[0]


def alive(run, layer, unit, event):
    grid = run.grid
    tokens = run.tier[layer, unit, event, : grid.length_at(event) - grid.sinks] != Tier.EVICTED
    return [*range(grid.sinks), *(grid.sinks + tokens.nonzero().flatten()).tolist()]


@pytest.mark.parametrize("name", ["snapkv(window=8,kernel=5)", "snapkv(window=8,kernel=7,pool=max)"])
def test_snapkv_is_the_slow_one(trace, name):
    run, estimator = run_of(trace, name), policy(name).ranking
    for number in range(2):
        layer = reference_layer(trace.layer(number))
        for unit, heads in enumerate(((0, 1), (2, 3))):
            total = np.mean([stored_rows(layer, head)[-8:].sum(0) for head in heads], axis=0)[: layer.prefill - 8]
            half = estimator.kernel // 2
            near = [total[max(0, i - half) : i + half + 1] for i in range(len(total))]
            pooled = [x.sum() / estimator.kernel if estimator.pool == "avg" else x.max() for x in near]
            wanted = alive_after_prompt(layer, pooled, run.capacity.full, 8)
            assert alive(run, number, unit, 0) == wanted
            assert alive(run, number, unit, 20) == [*wanted, *range(64, 84)]  # what comes later stays


def test_l2norm_keeps_the_lowest_norms(trace):
    run = run_of(trace, "l2norm")
    for unit in range(2):
        norms = trace.layer(1).key[unit, :64].double().norm(dim=-1).numpy()
        wanted = sorted(np.argsort(norms, kind="stable")[: run.capacity.full].tolist())
        assert alive(run, 1, unit, 0) == wanted


@pytest.mark.parametrize("name", ["h2o", "tova", "streaming_llm"])
def test_token_by_token_methods_are_the_slow_ones(trace, name):
    """Append, attend among what is alive, score, evict one: from the definition, token by token."""
    run = run_of(trace, name)
    recent, keep = run.grid.recent, run.capacity.full
    for number in range(2):
        layer = reference_layer(trace.layer(number))
        full = reference.full_attention(layer)
        units = [(0, 1, 2, 3)] if run.plan.units == 1 else [(0, 1), (2, 3)]
        for unit, heads in enumerate(units):
            score = {i: sum(layer.prompt_mass[head][i] for head in heads) for i in range(layer.prefill)}
            if name == "tova":
                score = {i: sum(stored_rows(layer, head)[-1][i] for head in heads) for i in range(layer.prefill)}
            living = list(range(layer.prefill))
            for t in range(layer.decode):
                length = layer.prefill + t
                safe = [i for i in living if i < run.grid.sinks or i >= length - recent]
                rest = [i for i in living if i not in safe]
                best = sorted((-i if name == "streaming_llm" else -score[i], i) for i in rest)[:keep]
                living = sorted(safe + [i for _, i in best])
                assert alive(run, number, unit, t) == living
                living.append(length)
                share = {i: 0.0 for i in living}
                for head in heads:
                    row = full[head, t, living]
                    for i, p in zip(living, row / row.sum(), strict=True):
                        share[i] += p
                score = share if name == "tova" else {i: score.get(i, 0.0) + share[i] for i in living}


# laws over all of them

NAMES = (
    *METHODS,
    *("h2o(variant=kvpress)", "h2o(recent=0.2)", "tova(variant=kvpress)", "snapkv(window=8,sets=head)"),
    *("adakv(floor=0.5)", "pyramidkv(beta=4)", "scissorhands(history=8,drop=4)", "snapkv(window=8,kernel=1,pool=max)"),
)


@pytest.mark.parametrize("name", NAMES)
def test_a_budget_of_everything_is_the_identity(trace, name):
    whole = Settings(Budget("1", sinks=3, recent=6), horizon=8, dtype=torch.float64)
    if "sets=head" in name or "pyramid" in name:
        pytest.skip("its sets or layers divide the bytes unequally by design")
    assert not (run_of(trace, name, whole).tier == Tier.EVICTED).any()


@pytest.mark.parametrize("name", NAMES)
def test_nobody_keeps_more_than_the_budget(trace, name):
    run = run_of(trace, name)
    used = byte_use(run, "t")
    assert used["used_bytes"].mean() <= run.capacity.history_bytes + 1e-9
    assert used["resident_bytes"].mean() <= run.capacity.history_bytes + 1e-9


@pytest.mark.parametrize("name", NAMES)
def test_what_is_evicted_stays_evicted(trace, name):
    gone = run_of(trace, name).tier == Tier.EVICTED
    assert not (gone[:, :, :-1] & ~gone[:, :, 1:]).any()


@pytest.mark.parametrize("name", NAMES)
def test_two_runs_are_equal(trace, name):
    assert torch.equal(run_of(trace, name).tier, run_of(trace, name).tier)


@pytest.mark.parametrize(
    "name",
    ["h2o(variant=mine)", "tova(variant=1)", "snapkv(pool=sum)", "snapkv(sets=layer)", "adakv(quirks=no)"],
)
def test_unknown_choices_are_refused(name):
    with pytest.raises(InputError, match=r"there are|pool is"):
        policy(name)
