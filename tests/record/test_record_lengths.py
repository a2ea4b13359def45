"""Rotary frequencies that depend on a pass's length, and lengths at which a model cannot be recorded."""

from dataclasses import replace

import pytest
import torch
from tiny_models import SLIDING_EVERY_OTHER, available, build, transformers_noise

from qevict_diag.errors import InputError
from qevict_diag.models.frequencies import recomputes_cache, steady_length
from qevict_diag.record import RecordOptions, plan, record
from qevict_diag.texts.source import Source
from qevict_diag.trace.trace import Trace

pytestmark = transformers_noise
STEADY = 64
DYNAMIC = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "original_max_position_embeddings": STEADY,
    "short_factor": [1.0] * 8,
    "long_factor": [float(n) for n in range(1, 9)],
}
SCALED = {"dynamic": DYNAMIC, "longrope": LONGROPE}
LENGTHS = [(80, 30), (50, 40), (30, 20)]  # beyond the steady length, across it, and within


def scaled(kind, seed=0):
    return build("llama", seed=seed, max_position_embeddings=STEADY, rope_parameters=SCALED[kind])


def phi3():
    lengths = {"max_position_embeddings": 8 * STEADY, "original_max_position_embeddings": STEADY}
    return build("phi3", partial_rotary_factor=1.0, rope_parameters=LONGROPE, **lengths)


def source(name="one", first=3, length=120):
    ids = torch.randint(3, 128, (length,), generator=torch.Generator().manual_seed(first))
    return Source(name, tokens=tuple(ids.tolist()))


def recorded(model, out, prefill, decode, *sources, **changes):
    options = replace(RecordOptions(prefill=prefill, decode=decode, prompt_queries=4), **changes)
    return [Trace.open(path) for path in record(model, None, sources or (source(),), options, out=out)]


def assert_same_rows(one, other):
    for number in one.layers:
        a, b = one.layer(number), other.layer(number)
        torch.testing.assert_close(a.attention(), b.attention(), atol=1e-5, rtol=0)
        torch.testing.assert_close(a.key, b.key, atol=1e-4, rtol=0)
        torch.testing.assert_close(a.cos, b.cos, atol=0, rtol=0)


def generated(model, prompt, decode):
    """What `generate` itself goes on with."""
    ids = torch.tensor([prompt])
    settings = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0, "attention_mask": torch.ones_like(ids)}
    return model.generate(ids, max_new_tokens=decode, **settings)[0]


@pytest.mark.parametrize("kind", SCALED)
@pytest.mark.parametrize(("prefill", "decode"), LENGTHS)
def test_the_continuation_is_that_of_generate(tmp_path, kind, prefill, decode):
    (trace,) = recorded(scaled(kind), tmp_path, prefill, decode)
    assert torch.equal(generated(scaled(kind), source().tokens[:prefill], decode), trace.tokens)
    trace.verify()


@pytest.mark.parametrize("kind", SCALED)
@pytest.mark.parametrize(("prefill", "decode"), LENGTHS)
def test_teacher_forced_rows_are_those_of_step_by_step(tmp_path, kind, prefill, decode):
    (greedy,) = recorded(scaled(kind), tmp_path / "greedy", prefill, decode)
    same = Source("same", tokens=tuple(greedy.tokens.tolist()))
    (teacher,) = recorded(scaled(kind), tmp_path / "teacher", prefill, decode, same, continuation="teacher")
    assert_same_rows(greedy, teacher)


@pytest.mark.parametrize("kind", SCALED)
def test_a_prompt_in_chunks_is_refused_beyond_the_steady_length(tmp_path, kind):
    options = RecordOptions(80, 30, chunk=60)
    with pytest.raises(InputError, match="beyond 64 tokens, so a prompt in chunks is another one"):
        record(scaled(kind), None, [source()], options, out=tmp_path)
    with pytest.raises(InputError, match="leave --chunk out"):
        plan(scaled(kind), options, 1, tmp_path, timed=False)


@pytest.mark.parametrize("kind", SCALED)
@pytest.mark.parametrize("chunk", [7, 60])
@pytest.mark.parametrize(("prefill", "decode"), [(50, 40), (64, 9), (30, 20)])
def test_a_prompt_in_chunks_is_the_same_up_to_it(tmp_path, kind, prefill, decode, chunk):
    (whole,) = recorded(scaled(kind), tmp_path / "whole", prefill, decode)
    (chunked,) = recorded(scaled(kind), tmp_path / "chunked", prefill, decode, chunk=chunk)
    assert_same_rows(whole, chunked)


@pytest.mark.parametrize("kind", SCALED)
def test_a_trace_does_not_depend_on_what_the_model_ran_before(tmp_path, kind):
    """Dynamic scaling remembers the longest pass; a text's frequencies are its own all the same."""
    both = recorded(scaled(kind), tmp_path / "both", 80, 30, source("before", 1), source(), batch=1)
    (alone,) = recorded(scaled(kind), tmp_path / "alone", 80, 30)
    assert torch.equal(both[1].tokens, alone.tokens)
    assert_same_rows(both[1], alone)


def test_phi3_is_refused_where_generate_makes_all_keys_anew(tmp_path):
    for prefill, decode in ((50, 40), (64, 1), (1, 64)):
        with pytest.raises(InputError, match=r"Phi3ForCausalLM makes all keys anew .* 64 tokens .*--prefill above 64"):
            recorded(phi3(), tmp_path, prefill, decode)
    for prefill, decode in ((65, 9), (50, 14)):
        (trace,) = recorded(phi3(), tmp_path / f"{prefill}", prefill, decode)
        assert torch.equal(generated(phi3(), source().tokens[:prefill], decode), trace.tokens)
    with pytest.raises(InputError, match="makes all keys anew"):
        plan(phi3(), RecordOptions(50, 40), 1, tmp_path, timed=False)


def test_steady_lengths():
    found = {kind: steady_length(scaled(kind)) for kind in SCALED}
    assert found == {"dynamic": STEADY, "longrope": STEADY}
    assert steady_length(build("llama")) is steady_length(build("llama_yarn")) is steady_length(build("gpt2")) is None
    assert [recomputes_cache(model) for model in (phi3(), scaled("longrope"), build("phi3"))] == [True, False, False]


@pytest.mark.parametrize("family", available(["gemma3"]))
@pytest.mark.parametrize(("prefill", "decode"), [(80, 10), (60, 10), (30, 10)])
def test_kinds_that_part_beyond_the_dry_run_are_two(tmp_path, family, prefill, decode):
    """Dynamic and plain rotary embedding agree up to the steady length; the keys before them tell which was applied."""
    rope = {"full_attention": DYNAMIC, "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}
    model = build(family, max_position_embeddings=STEADY, rope_parameters=rope, layer_types=SLIDING_EVERY_OTHER)
    caught = {number: [] for number in range(4)}
    for number, layer in enumerate(model.model.layers):
        layer.self_attn.k_norm.register_forward_hook(lambda *a, to=caught[number]: to.append(a[2][0]))
    (trace,) = recorded(model, tmp_path, prefill, decode)
    trace.verify()
    kinds = [trace.specs[number].rope for number in trace.layers]
    assert kinds == (["rope0", "rope1"] * 2 if prefill + decode > STEADY else ["rope0"] * 4)
    for number, parts in caught.items():
        key = torch.cat(parts, dim=1)[:, -trace.shape.length :]
        torch.testing.assert_close(trace.layer(number).key_pre_rope(), key, atol=1e-4, rtol=0)


def test_hybrids_whose_own_cache_drops_keys_are_refused_before_they_run(tmp_path):
    import transformers
    from tiny_models import COMMON

    if not hasattr(transformers, "Lfm3Config"):
        pytest.skip("transformers has no hybrid with sliding windows yet")
    kinds = {"layer_types": ["conv", "sliding_attention"] * 2, "sliding_window": 16}
    model = transformers.AutoModelForCausalLM.from_config(transformers.Lfm3Config(**COMMON | kinds)).eval()
    with pytest.raises(
        InputError, match="layer 1's sliding window of 16; --prefill and --decode of together at most 16"
    ):
        recorded(model, tmp_path, 12, 5)
    with pytest.raises(InputError, match="at most 16 can be recorded"):
        plan(model, RecordOptions(12, 5), 1, tmp_path, timed=False)
    recorded(model, tmp_path, 12, 4)[0].verify()
