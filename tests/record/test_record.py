"""Recording a tiny Llama: continuations, batches, chunks, what is stored, and what is refused."""

import json
from dataclasses import replace

import pytest
import torch
from tiny_models import available, build, transformers_noise

from qevict_diag.cache.budget import Budget
from qevict_diag.errors import InputError, ModelError, RecordError
from qevict_diag.measure.traces import measure
from qevict_diag.models.intercept import intercept
from qevict_diag.readings import Readings
from qevict_diag.record import RecordOptions, parse_numbers, parse_probes, record, recorder
from qevict_diag.record.decode import distinct_ngrams
from qevict_diag.replay.settings import Settings
from qevict_diag.texts.source import Source
from qevict_diag.trace.trace import Trace

pytestmark = transformers_noise
OPTIONS = RecordOptions(prefill=40, decode=9, prompt_queries=6)


def source(name="one", seed=1, length=60):
    ids = torch.randint(3, 128, (length,), generator=torch.Generator().manual_seed(seed))
    return Source(name, tokens=tuple(ids.tolist()))


def traces(out, *sources, model=None, **changes):
    model = build("llama") if model is None else model
    paths = record(model, None, sources or (source(),), replace(OPTIONS, **changes), out=out)
    return [Trace.open(path) for path in paths]


def assert_same_layers(one, other, tolerance=1e-5):
    assert one.layers == other.layers
    for number in one.layers:
        a, b = one.layer(number), other.layer(number)
        torch.testing.assert_close(a.attention(), b.attention(), atol=tolerance, rtol=0)
        for name in ("key", "value", "query", "prompt_mass", "prompt_query", "lse"):
            torch.testing.assert_close(getattr(a, name), getattr(b, name), atol=10 * tolerance, rtol=0)


def test_greedy_tokens_are_those_of_generate(tmp_path):
    model = build("llama")
    model.generation_config.eos_token_id = None
    (trace,) = traces(tmp_path, model=model)
    prompt = trace.tokens[None, : OPTIONS.prefill]
    own = model.generate(prompt, do_sample=False, max_new_tokens=OPTIONS.decode, attention_mask=torch.ones_like(prompt))
    assert torch.equal(trace.tokens, own[0])


def test_batch_gives_the_traces_of_single_runs(tmp_path):
    sources = [source(f"s{i}", seed=i) for i in range(3)]
    batched = traces(tmp_path / "batch", *sources)
    for one, trace in zip(sources, batched, strict=True):
        (single,) = traces(tmp_path / "single", one)
        assert torch.equal(single.tokens, trace.tokens)
        assert_same_layers(single, trace)


def test_batches_of_two_give_the_traces_of_one_batch(tmp_path):
    sources = [source(f"s{i}", seed=i) for i in range(3)]
    for one, other in zip(traces(tmp_path / "a", *sources), traces(tmp_path / "b", *sources, batch=2), strict=True):
        assert torch.equal(one.tokens, other.tokens)
        assert_same_layers(one, other)


@pytest.mark.parametrize("family", available(["llama", "gemma3", "gemma4_shared", "gpt_oss", "deepseek_v3"]))
@pytest.mark.parametrize("chunk", [1, 7, 39])
def test_prompt_in_chunks_gives_the_trace_of_one_pass(tmp_path, family, chunk):
    (whole,) = traces(tmp_path / "whole", model=build(family))
    (chunked,) = traces(tmp_path / "chunked", model=build(family), chunk=chunk)
    assert torch.equal(whole.tokens, chunked.tokens)
    assert_same_layers(whole, chunked)


@pytest.mark.parametrize(
    ("family", "heads", "kv_heads"), [("llama", (0, 1), (0,)), ("llama", (0, 3), (0, 1)), ("gpt_oss", (1, 2), (0, 1))]
)
def test_some_heads_are_those_of_the_whole_trace(tmp_path, family, heads, kv_heads):
    (whole,) = traces(tmp_path / "whole", model=build(family))
    (some,) = traces(tmp_path / "some", model=build(family), heads=heads, store_attention=True)
    some.verify()
    assert (some.shape.heads, some.shape.kv_heads) == (len(heads), len(kv_heads))
    for number in whole.layers:
        all_heads, own = whole.layer(number), some.layer(number)
        assert (own.head_numbers, own.kv_head_numbers) == (heads, kv_heads)
        for name in ("query", "prompt_query", "prompt_mass", "lse"):
            torch.testing.assert_close(getattr(own, name), getattr(all_heads, name)[list(heads)])
        for name in ("key", "value"):
            assert torch.equal(getattr(own, name), getattr(all_heads, name)[list(kv_heads)])
        torch.testing.assert_close(own.attention(), all_heads.attention()[list(heads)])
    assert set(some.to_polars(whole.layers[0])["head"]) == set(heads)


def test_what_is_measured_of_some_heads_names_them_as_the_model_does(tmp_path):
    (some,) = traces(tmp_path, heads=(2, 3))
    settings = Settings(Budget("1/2", sinks=2, recent=6), Readings(scope="kv_head"), horizon=4)
    frame = measure([some], ["R2"], ["fmm", "churn"], settings).frame
    assert set(frame.filter(metric="fmm")["head"]) == {2, 3}
    assert set(frame.filter(metric="churn")["head"]) == {1}


@pytest.mark.parametrize(
    ("heads", "told"), [((0, 4), "head 4 is not there"), ((0, 1, 2), "2 of key-value head 0, 1 of key-value head 1")]
)
def test_heads_that_cannot_be_recorded_alone_are_refused(tmp_path, heads, told):
    with pytest.raises(InputError, match=told):
        traces(tmp_path, heads=heads)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("family", ["qwen3_next", "lfm2"])
def test_prompt_in_chunks_is_refused_where_layers_carry_other_states(tmp_path, family):
    with pytest.raises(InputError, match="has layers that do not attend"):
        traces(tmp_path, model=build(family), chunk=7)


def test_block_size_does_not_change_column_sums(tmp_path):
    (small,) = traces(tmp_path / "small", source(length=200), block_bytes=1 << 16, prefill=180)
    (large,) = traces(tmp_path / "large", source(length=200), prefill=180)
    assert_same_layers(small, large)


@pytest.mark.parametrize("chunk", [None, 11])
def test_probes_estimate_the_column_sums_and_say_how_well(tmp_path, chunk):
    text = source(length=200)
    (exact,) = traces(tmp_path / "exact", text, prefill=180)
    (half,) = traces(tmp_path / "half", text, prefill=180, probes=0.5, chunk=chunk)
    (few,) = traces(tmp_path / "few", text, prefill=180, probes=0.05, chunk=chunk)
    half.verify()
    measured = [trace.entry("recorder")["column_sums"] for trace in (half, few)]
    for trace, said in zip((half, few), measured, strict=True):
        off = (trace.layer(0).prompt_mass - exact.layer(0).prompt_mass).abs().sum(-1).mean() / 180
        assert said["relative_error"] == pytest.approx(float(off), rel=1e-3)
        assert said["measured_in_layer"] == 0
    assert 0 < measured[0]["relative_error"] < measured[1]["relative_error"] < 1
    assert "column_sums" not in exact.entry("recorder")


def test_fused_column_sums_need_cuda(tmp_path):
    with pytest.raises(InputError, match="need a CUDA device and Triton"):
        traces(tmp_path, fused=True)
    with pytest.raises(InputError, match="choose one"):
        replace(OPTIONS, fused=True, probes=0.5)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("changes", [{}, {"fused": True}])
def test_cuda_gives_the_trace_of_the_cpu(tmp_path, changes):
    (cpu,) = traces(tmp_path / "cpu", continuation="teacher")
    (cuda,) = traces(tmp_path / "cuda", continuation="teacher", model=build("llama").to("cuda"), **changes)
    cuda.verify()
    assert_same_layers(cpu, cuda, tolerance=1e-4)


def test_parse_probes():
    assert parse_probes("exact") is None
    assert parse_probes("probes:10%") == parse_probes("probes:0.1") == 0.1
    for wrong in ("", "probes", "probes:", "probes:x", "10%"):
        with pytest.raises(InputError, match="write exact, or probes:10%"):
            parse_probes(wrong)
    for wrong in ("probes:0%", "probes:100%", "probes:7"):
        with pytest.raises(InputError, match="a share between 0 and 1"):
            replace(OPTIONS, probes=parse_probes(wrong))


def test_sampling_is_seeded_and_independent_of_the_batch(tmp_path):
    sources = [source(f"s{i}", seed=i) for i in range(2)]
    first = traces(tmp_path / "a", *sources, continuation="sample", seed=5, temperature=2.0)
    (alone,) = traces(tmp_path / "b", sources[1], continuation="sample", seed=5, temperature=2.0)
    (other,) = traces(tmp_path / "c", sources[1], continuation="sample", seed=6, temperature=2.0)
    assert torch.equal(first[1].tokens, alone.tokens)
    assert not torch.equal(alone.tokens, other.tokens)


def test_teacher_uses_the_texts_own_tokens(tmp_path):
    (trace,) = traces(tmp_path, continuation="teacher")
    assert trace.tokens.tolist() == list(source().tokens[: OPTIONS.length])


def test_same_seed_gives_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    one, other = (traces(tmp_path / name)[0].path for name in "ab")
    names = sorted(path.name for path in one.iterdir())
    assert len(names) == 4 + 3
    for name in names:
        assert (one / name).read_bytes() == (other / name).read_bytes()


def test_only_wanted_layers_are_stored(tmp_path):
    (trace,) = traces(tmp_path / "some", layers=(1, 3))
    (whole,) = traces(tmp_path / "all")
    assert trace.layers == (1, 3)
    assert trace.shape.layers == 4
    assert torch.equal(trace.layer(3).prompt_mass, whole.layer(3).prompt_mass)


@pytest.mark.parametrize(("asked", "stored"), [(0, 0), (6, 6), (-1, 40), (1000, 40)])
def test_prompt_queries_are_stored_as_asked(tmp_path, asked, stored):
    (trace,) = traces(tmp_path, prompt_queries=asked)
    layer = trace.layer(0)
    assert len(layer.prompt_query_positions) == stored
    if stored == 40:
        torch.testing.assert_close(layer.prompt_attention().sum(1)[:, :40], layer.prompt_mass, atol=1e-4, rtol=0)


def test_stored_attention_is_the_recomputed_one(tmp_path):
    (trace,) = traces(tmp_path, store_attention=True, model=build("gemma2"))
    for number in trace.layers:
        code = trace.layer_file(number).read("neg_log_attention").to(torch.float32)
        p = trace.layer(number).attention()
        restored = torch.where(code == 65535, 0.0, torch.exp(-code / 2048))
        torch.testing.assert_close(restored, p, rtol=3e-4, atol=2e-14)
        assert torch.equal(code == 65535, (p < 1.3e-14))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_stored_dtype_shrinks_the_trace(tmp_path, dtype):
    (trace,) = traces(tmp_path / dtype, dtype=dtype)
    (full,) = traces(tmp_path / "full")
    layer = trace.layer(2)
    assert layer.key.dtype == layer.query.dtype == getattr(torch, dtype)
    assert torch.equal(layer.key, full.layer(2).key.to(layer.key.dtype))
    trace.verify()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_models_store_their_own_dtype(tmp_path, dtype):
    (trace,) = traces(tmp_path, model=build("llama").to(dtype))
    layer = trace.layer(0)
    assert layer.key.dtype == dtype
    assert layer.spec.rope_style == "half"
    assert layer.spec.pv_residual < 4e-2
    trace.verify()


def test_manifest_says_where_the_trace_comes_from(tmp_path):
    (trace,) = traces(tmp_path)
    manifest = json.loads((trace.path / "manifest.json").read_text())
    assert manifest["model"]["architecture"] == "LlamaForCausalLM"
    assert manifest["model"]["dtype"] == "float32"
    assert manifest["recorder"]["options"]["prefill"] == 40
    assert manifest["source"]["text_sha256"] == source().sha256
    assert manifest["source"]["distinct_4grams"] == distinct_ngrams(trace.tokens[40:].tolist())
    assert set(manifest["software"]) == {"torch", "transformers", "qevict_diag"}


def test_distinct_4grams_tell_a_loop_from_prose():
    assert distinct_ngrams([1, 2, 3, 4, 5, 6]) == 1.0
    assert distinct_ngrams([7] * 11) == 1 / 8
    assert distinct_ngrams([1, 2, 3]) != distinct_ngrams([1, 2, 3])


def test_model_is_left_as_it_was(tmp_path):
    from transformers.modeling_utils import AttentionInterface
    from transformers.models.llama import modeling_llama

    def ours():
        names = ("apply_rotary_pos_emb", "eager_attention_forward")
        patched = [getattr(modeling_llama, name) for name in names]
        return patched + [getattr(AttentionInterface, name, None) for name in ("get_interface", "__getitem__")]

    model = build("llama").train()
    before = ours()
    traces(tmp_path, model=model)
    assert ours() == before
    assert model.training


def test_compiled_model_gives_the_trace_of_the_plain_one(tmp_path):
    (plain,) = traces(tmp_path / "plain")
    (compiled,) = traces(tmp_path / "compiled", model=torch.compile(build("llama"), backend="eager"))
    assert_same_layers(plain, compiled, tolerance=0)


def test_offloaded_model_gives_the_trace_of_the_plain_one(tmp_path):
    from accelerate import dispatch_model

    places = {"model.embed_tokens": "cpu", "model.norm": "cpu", "lm_head": "cpu", "model.rotary_emb": "cpu"}
    places |= {f"model.layers.{i}": "disk" if i % 2 else "cpu" for i in range(4)}
    model = dispatch_model(build("llama"), places, main_device="cpu", offload_dir=str(tmp_path / "offload"))
    (offloaded,) = traces(tmp_path / "offloaded", model=model)
    (plain,) = traces(tmp_path / "plain")
    assert_same_layers(plain, offloaded, tolerance=0)


class _Int8Linear(torch.nn.Module):
    """A linear layer that holds 8-bit weights and a scale per row, as quantized checkpoints do."""

    def __init__(self, linear):
        super().__init__()
        scale = linear.weight.detach().abs().amax(dim=1, keepdim=True) / 127
        self.register_buffer("codes", torch.round(linear.weight.detach() / scale).to(torch.int8))
        self.register_buffer("scale", scale)

    def forward(self, x):
        return torch.nn.functional.linear(x, self.codes * self.scale)


def test_quantized_model_is_recorded_as_it_computes(tmp_path):
    model, plain = build("llama"), build("llama")
    for name, module in list(model.named_modules()):
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, _Int8Linear(module))
            plain.get_submodule(name).weight.data = model.get_submodule(name).codes * model.get_submodule(name).scale
    (quantized,), (dequantized,) = traces(tmp_path / "q", model=model), traces(tmp_path / "d", model=plain)
    assert torch.equal(quantized.tokens, dequantized.tokens)
    assert_same_layers(quantized, dequantized, tolerance=1e-6)
    assert quantized.layer(0).spec.pv_residual < 1e-5


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.filterwarnings("default")
def test_model_quantized_by_bitsandbytes_is_recorded_as_it_computes(tmp_path, bits):
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed; `nox` has it")
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    build("llama").save_pretrained(tmp_path / "model")
    how = BitsAndBytesConfig(**{f"load_in_{bits}bit": True})
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model", quantization_config=how, device_map="cpu")
    (trace,) = traces(tmp_path / "trace", model=model)
    trace.verify()
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        rows = model(trace.tokens[None], output_attentions=True).attentions
    for number in trace.layers:
        own = rows[number][0, :, OPTIONS.prefill :]
        torch.testing.assert_close(trace.layer(number).attention(), own, atol=1e-5, rtol=0)


def test_progress_ends_at_the_total(tmp_path):
    steps = []
    sources = [source(f"s{i}", seed=i) for i in range(3)]
    record(build("llama"), None, sources, replace(OPTIONS, batch=2), out=tmp_path, progress=lambda *s: steps.append(s))
    assert steps[-1] == ("recording", 2 * 4 * 49, 2 * 4 * 49)
    assert [done for _, done, _ in steps] == sorted(done for _, done, _ in steps)


def test_short_prompt_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"one has 60 tokens, --prefill is 61; give a longer text or lower --prefill"):
        traces(tmp_path, prefill=61)
    with pytest.raises(InputError, match="prompt and continuation need 61"):
        traces(tmp_path, continuation="teacher", prefill=52)
    assert list(tmp_path.iterdir()) == []


def test_token_outside_the_vocabulary_is_refused(tmp_path):
    with pytest.raises(InputError, match="token id 128, the model's vocabulary has 128"):
        traces(tmp_path, Source("big", tokens=(128,) * 60))


def test_text_without_tokenizer_is_refused(tmp_path):
    with pytest.raises(InputError, match="no tokenizer"):
        traces(tmp_path, Source("words", text="some words"))


def test_existing_target_is_refused(tmp_path):
    traces(tmp_path)
    before = sorted(path.name for path in (tmp_path / "one").iterdir())
    with pytest.raises(InputError, match="exists already"):
        traces(tmp_path)
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == before


def test_layers_that_do_not_exist_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"layers \[4\] do not attend; .* 0 to 3"):
        traces(tmp_path, layers=(1, 4))
    with pytest.raises(InputError, match="do not attend") as told:
        traces(tmp_path, layers=tuple(range(10**5)))
    assert len(str(told.value)) < 200


@pytest.mark.parametrize(
    "change",
    [
        {"prefill": 0},
        {"decode": 0},
        {"continuation": "beam"},
        {"dtype": "int8"},
        {"prompt_queries": -2},
        {"temperature": 0.0},
        {"chunk": 0},
        {"block_bytes": 5},
    ],
)
def test_options_out_of_range_are_refused(change):
    with pytest.raises(InputError):
        replace(OPTIONS, **change)


def test_parse_numbers():
    assert parse_numbers("0,4, 8-11,4", "layers") == (0, 4, 8, 9, 10, 11)
    for wrong in ("", "a", "3-1", "1,,2", "-1", "9999999"):
        with pytest.raises(InputError, match="write numbers and ascending ranges"):
            parse_numbers(wrong, "layers")


@pytest.fixture
def broken_kernel(monkeypatch):
    """A kernel that is off by one per mille, as if it dropped a term."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    honest = ALL_ATTENTION_FUNCTIONS["sdpa"]

    def broken(*args, **kwargs):
        output, weights = honest(*args, **kwargs)
        return output * 1.001, weights

    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, "sdpa", broken)


@pytest.mark.usefixtures("broken_kernel")
def test_kernel_that_disagrees_is_an_error_and_leaves_nothing(tmp_path):
    with pytest.raises(RecordError, match="layer 0: recomputed P·V differs from the kernel"):
        traces(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_mask_beyond_causality_is_an_error(tmp_path):
    """Llama 4 attends in chunks, which a trace cannot say; a shorter prompt than the chunk is recorded."""
    model = build("llama")
    original = model.model.forward

    def padded(input_ids=None, **kwargs):
        length = 49 if kwargs.get("use_cache") else input_ids.shape[1]
        mask = torch.ones((input_ids.shape[0], length), dtype=torch.long)[:, : _seen(kwargs) + input_ids.shape[1]]
        mask[:, 0] = 0 if kwargs.get("use_cache") else 1
        return original(
            input_ids=input_ids, attention_mask=mask, **{k: v for k, v in kwargs.items() if k != "attention_mask"}
        )

    model.model.forward = padded
    with pytest.raises(RecordError, match="masks more than causality"):
        traces(tmp_path, model=model)
    assert list(tmp_path.iterdir()) == []


def _seen(kwargs):
    cache = kwargs.get("cache") or kwargs.get("past_key_values")
    return 0 if cache is None else cache.get_seq_length()


def test_layer_that_falls_silent_is_an_error(tmp_path, monkeypatch):
    model = build("llama")
    layer = model.model.layers[2]
    original, calls = layer.forward, []

    def skipping(hidden_states, *args, **kwargs):
        calls.append(1)
        return original(hidden_states, *args, **kwargs) if len(calls) < 5 else hidden_states

    monkeypatch.setattr(layer, "forward", skipping)
    with pytest.raises(RecordError, match="layer 2 was seen at 41 of 49 positions"):
        traces(tmp_path, model=model)
    assert list(tmp_path.iterdir()) == []


def test_cropping_cache_is_an_error(tmp_path, monkeypatch):
    """Under a cache that drops what a sliding layer no longer sees, keys would be missing."""
    import transformers

    model = build("mistral")
    monkeypatch.setattr(transformers, "DynamicCache", lambda config=None: _CROPPING(config=model.config))
    with pytest.raises(RecordError, match="record under a plain DynamicCache"):
        traces(tmp_path, model=model)


def _cropping():
    import transformers

    return transformers.DynamicCache


_CROPPING = _cropping()


def test_one_recording_at_a_time():
    model = build("llama")
    with intercept(model, lambda call: None), pytest.raises(RecordError, match="another recording runs"):
        with intercept(model, lambda call: None):
            pass
    with intercept(model, lambda call: None):
        pass


def test_other_models_are_not_observed():
    watched, other, seen = build("llama"), build("llama"), []
    with torch.inference_mode(), intercept(watched, seen.append):
        other(input_ids=torch.arange(4)[None])
        assert seen == []
        watched(input_ids=torch.arange(4)[None])
    assert len(seen) == 4


def test_encoder_decoder_is_refused(tmp_path):
    from transformers import T5Config, T5ForConditionalGeneration

    model = T5ForConditionalGeneration(T5Config(vocab_size=128, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2))
    with pytest.raises(ModelError, match="encoder-decoder"):
        record(model, None, [source()], OPTIONS, out=tmp_path)


@pytest.mark.parametrize(
    ("version", "noted"), [("4.56.2", True), ("4.57.6", False), ("5.24.1", False), ("6.0.0.dev0", True)]
)
def test_untested_transformers_are_noted(monkeypatch, version, noted):
    monkeypatch.setattr(recorder.metadata, "version", lambda name: version)
    note = recorder.note_untested()
    assert (note is not None) == noted
    if noted:
        assert f"transformers {version} is outside of 4.57 to 5.24" in note
