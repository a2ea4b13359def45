"""Every architecture that transformers runs through its attention interface is recorded exactly, or refused."""

import functools
from dataclasses import replace

import judge
import polars as pl
import pytest
import tiny_models
import torch
from tiny_models import FAMILIES, REFUSED, available, build, transformers_noise

from qevict_diag.cache.budget import Budget
from qevict_diag.errors import MetricError, ModelError, RecordError
from qevict_diag.measure.decisions import all_decisions
from qevict_diag.measure.traces import measure
from qevict_diag.policies.catalogue import policy
from qevict_diag.readings import Readings
from qevict_diag.record import RecordOptions, record
from qevict_diag.record.decode import run
from qevict_diag.record.probe import probe
from qevict_diag.replay.loop import Asked, replay, replay_blocks
from qevict_diag.replay.settings import Settings
from qevict_diag.texts.source import Source
from qevict_diag.trace.export import mass_frame
from qevict_diag.trace.trace import Trace

pytestmark = transformers_noise
OPTIONS = RecordOptions(prefill=24, decode=12, prompt_queries=5)
EXPECTED_STYLE = {"cohere2": "interleaved", "glm4": "interleaved", "gpt2": None, "opt": None}
EXPECTED_WIDTH = {"phi3": 8, "gpt_neox": 4, "glm4": 8, "deepseek_v3": 8, "qwen3_next": 4, "gpt2": 0, "opt": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("traces")


@pytest.fixture
def recorded(folder):
    """The trace of a family, recorded once, and the model's own eager attention over the same tokens."""
    return functools.partial(_recorded, folder)


@functools.cache
def _recorded(folder, family):
    trace = Trace.open(record(build(family), None, [_source(family)], OPTIONS, out=folder)[0])
    return trace, _eager_attention(family, trace.tokens)


def _source(family):
    ids = torch.randint(3, 128, (OPTIONS.length,), generator=torch.Generator().manual_seed(1))
    return Source(family, tokens=tuple(ids.tolist()))


def _eager_attention(family, tokens):
    """{layer: [H, T, T]} as the model itself computes it when asked for its attentions."""
    model = build(family, backend="eager")
    with torch.inference_mode():
        rows = model(input_ids=tokens[None], output_attentions=True, use_cache=True).attentions
    attending = [row[0] for row in rows if row is not None]
    layers = [layer for layer in range(tiny_models.LAYERS) if _attends(model, layer)]
    return dict(zip(layers, attending, strict=True))


def _attends(model, layer):
    types = getattr(model.config, "layer_types", None)
    return types is None or (types[layer].endswith("attention") and types[layer] != "linear_attention")


@pytest.mark.parametrize("family", available(FAMILIES))
def test_recomputed_attention_is_the_models_own(recorded, family):
    trace, eager = recorded(family)
    assert trace.layers == tuple(eager)
    for number in trace.layers:
        torch.testing.assert_close(
            trace.layer(number).attention(), eager[number][:, OPTIONS.prefill :], atol=1e-5, rtol=0
        )


@pytest.mark.parametrize("family", available(FAMILIES))
def test_prompt_column_sums_are_the_models_own(recorded, family):
    trace, eager = recorded(family)
    for number in trace.layers:
        own = eager[number][:, : OPTIONS.prefill, : OPTIONS.prefill].sum(dim=1)
        torch.testing.assert_close(trace.layer(number).prompt_mass, own, atol=5e-5, rtol=0)


@pytest.mark.parametrize("family", available(FAMILIES))
def test_prompt_queries_are_the_models_own(recorded, family):
    trace, eager = recorded(family)
    layer = trace.layer(trace.layers[-1])
    own = eager[trace.layers[-1]][:, OPTIONS.prefill - 5 : OPTIONS.prefill]
    torch.testing.assert_close(layer.prompt_attention(), own, atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", available(FAMILIES))
def test_keys_before_rotary_embedding_rotate_back(recorded, family):
    trace, _ = recorded(family)
    for number in trace.layers:
        layer = trace.layer(number)
        torch.testing.assert_close(layer.rotate(layer.key_pre_rope()), layer.key, atol=2e-6, rtol=0)


@pytest.mark.parametrize("family", available(FAMILIES))
def test_rotary_embedding_is_identified(recorded, family):
    trace, _ = recorded(family)
    spec = trace.layer(trace.layers[0]).spec
    assert spec.rope_style == EXPECTED_STYLE.get(family, "half")
    assert spec.rotary_dim == EXPECTED_WIDTH.get(family, 16)


@pytest.mark.parametrize("family", available(FAMILIES))
def test_keys_before_rotary_embedding_are_the_models_own(recorded, family):
    """What went into the model's rotary function, caught independently, up to DeepSeek's fixed channel order."""
    trace, _ = recorded(family)
    caught = _keys_into_rotary(family, trace.tokens)
    for number in caught:
        spec = trace.layer(number).spec
        key = caught[number if spec.kv_of is None else spec.kv_of]
        part = trace.layer(number).key_pre_rope()[..., spec.rotary_start : spec.rotary_start + key.shape[-1]]
        if family == "deepseek_v3":
            key = torch.cat((key[..., 0::2], key[..., 1::2]), dim=-1).expand_as(part)
        torch.testing.assert_close(part, key, atol=1e-5, rtol=0)


def _keys_into_rotary(family, tokens):
    """{layer: key [KV, T, width]}: the last input of the last rotary call before each layer's output projection."""
    model, caught = build(family), {}
    last = []
    from qevict_diag.models.intercept import intercept
    from qevict_diag.record.rotary import watch_rotary

    def attention(call):
        if last:
            key = last[-1].pairs[-1][0][0]
            caught[call.module.layer_idx] = key if key.shape[1] == len(tokens) else key.transpose(0, 1)
        last.clear()

    with (
        torch.inference_mode(),
        watch_rotary(model, lambda describe: last.append(describe())),
        intercept(model, attention),
    ):
        model(input_ids=tokens[None], use_cache=True)
    return caught


@pytest.mark.parametrize("family", available(FAMILIES))
def test_recorder_changes_neither_tokens_nor_logits(recorded, family):
    trace, _ = recorded(family)
    plain, watched = build(family), build(family)
    prompt = torch.tensor([_source(family).tokens[: OPTIONS.prefill]])
    with torch.inference_mode():
        tokens, logits = _with_logits(plain, lambda: run(plain, prompt, OPTIONS, [0]))
    assert torch.equal(tokens[0], trace.tokens)
    _, seen = _with_logits(watched, lambda: _record_again(watched, family, trace.path.parent / f"{family}-again"))
    for one, other in zip(logits, seen[-len(logits) :], strict=True):
        assert torch.equal(one, other)


def _record_again(model, family, out):
    return record(model, None, [_source(family)], OPTIONS, out=out)


def _with_logits(model, action):
    logits = []
    handle = model.register_forward_hook(lambda module, args, output: logits.append(output.logits[:, -1].clone()))
    result = action()
    handle.remove()
    return result, logits


@pytest.mark.parametrize("family", available(FAMILIES))
def test_residual_is_small_and_recorded(recorded, family):
    trace, _ = recorded(family)
    residuals = [spec.pv_residual for spec in trace.specs.values()]
    assert 0 < max(residuals) < 1e-5


@pytest.mark.parametrize("family", available(FAMILIES))
def test_trace_verifies(recorded, family):
    recorded(family)[0].verify()


@pytest.mark.parametrize("family", available(FAMILIES))
def test_teacher_forced_rows_are_those_of_step_by_step(recorded, family, tmp_path):
    """A continuation that goes through the model in one chunk gives the rows of token by token."""
    trace, _ = recorded(family)
    source = Source("same", tokens=tuple(trace.tokens.tolist()))
    options = replace(OPTIONS, continuation="teacher")
    teacher = Trace.open(record(build(family), None, [source], options, out=tmp_path)[0])
    assert torch.equal(teacher.tokens, trace.tokens)
    for number in trace.layers:
        one, other = teacher.layer(number), trace.layer(number)
        torch.testing.assert_close(one.attention(), other.attention(), atol=1e-5, rtol=0)
        torch.testing.assert_close(one.prompt_mass, other.prompt_mass, atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", available(FAMILIES))
def test_policies_decide_on_it_as_the_reference_does(recorded, family):
    """Whatever a model's layers are like, and where they differ (Gemma 4) each with its own capacities."""
    trace, _ = recorded(family)
    settings = Settings(Budget("7/10", sinks=2, recent=4), horizon=4, dtype=torch.float64)
    asked = [Asked(one, (), settings) for one in (policy("R1"), policy("R3", grain=3))]
    blocks = list(replay_blocks(trace, asked))
    assert sum((block[0].layers for block in blocks), ()) == trace.layers
    for played in (one for block in blocks for one in block):
        for index, number in enumerate(played.layers):
            for event in judge.judged(trace, played, number).units[0].events:
                assert judge.tiers_of(played, index, 0, event.number) == event.tiers, (number, event.number)


@pytest.mark.parametrize("family", available(["gemma4"]))
def test_layers_of_different_shapes_are_measured_each_with_its_own_capacities(recorded, family):
    """Gemma 4 with its wide global layers: rows and bytes of every layer, and no tensor over all of them."""
    trace, _ = recorded(family)
    assert len({trace.layer_shape(number) for number in trace.layers}) > 1
    settings = Settings(Budget("7/10", sinks=2, recent=4), Readings(scope="kv_head"), horizon=4)
    found = measure([trace], ["R1", "R2"], ["all"], settings)
    heads = {number: trace.layer_shape(number).kv_heads for number in trace.layers}
    churn = found.frame.filter(metric="churn", policy="R1").group_by("layer").agg(pl.col("head").n_unique())
    assert dict(churn.sort("layer").rows()) == heads
    widths = {trace.layer_shape(number).head_dim for number in trace.layers}
    assert found.bytes.filter(policy="R1")["history_bytes"].n_unique() == len(widths)
    assert len(all_decisions([trace], [policy("R1")], settings)) > 0
    with pytest.raises(MetricError, match="use replay_blocks"):
        replay(trace, [policy("R1")], settings)
    assert sorted(set(mass_frame(trace)["layer"])) == list(trace.layers)


@pytest.mark.parametrize("family", available(["gemma4_shared", "gemma3n"]))
def test_keys_that_layers_share_are_stored_once(recorded, family, tmp_path):
    trace, _ = recorded(family)
    assert {number: spec.kv_of for number, spec in trace.specs.items()} == {0: None, 1: None, 2: 0, 3: 1}
    assert "key" not in trace.layer_file(2)
    assert torch.equal(trace.layer(2).key, trace.layer(0).key)
    options = replace(OPTIONS, layers=(1, 2, 3))
    some = Trace.open(record(build(family), None, [_source(family)], options, out=tmp_path)[0])
    some.verify()
    assert {number: spec.kv_of for number, spec in some.specs.items()} == {1: None, 2: None, 3: 1}
    assert torch.equal(some.layer(2).value, trace.layer(0).value)


def test_a_model_that_stops_sharing_is_refused(tmp_path, monkeypatch):
    """What the dry run found has to hold for the whole recording."""
    plans = [replace(p, spec=replace(p.spec, kv_of=0 if p.spec.layer == 2 else None)) for p in probe(build("llama"))]
    monkeypatch.setattr("qevict_diag.record.recorder.probe", lambda model: tuple(plans))
    with pytest.raises(RecordError, match="layer 2 read the keys of layer 0 in the dry run, but does not now"):
        record(build("llama"), None, [_source("llama")], OPTIONS, out=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("family", available(REFUSED))
def test_models_outside_the_attention_interface_are_refused(family, tmp_path):
    with pytest.raises(ModelError, match="never calls transformers' attention interface"):
        record(build(family), None, [_source(family)], OPTIONS, out=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_kernel_that_drops_the_softcap_is_refused(tmp_path):
    """Gemma 2 under sdpa: before 5.24 transformers runs it without the softcap, since then it refuses to build it."""

    def attempt():
        record(build("gemma2", backend="sdpa"), None, [_source("gemma2")], OPTIONS, out=tmp_path)

    with pytest.raises((RecordError, ValueError), match=r"recomputed P·V differs|scaled_dot_product_attention"):
        attempt()
