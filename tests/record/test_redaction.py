"""Traces without their text, and without their keys: what is left out, what can still be measured, what is refused."""

import json
from dataclasses import replace

import pytest
import torch
from tiny_models import available, build, transformers_noise

from qevict_diag.cache.budget import Budget
from qevict_diag.errors import InputError, MetricError
from qevict_diag.measure.traces import measure
from qevict_diag.readings import Readings
from qevict_diag.record import RecordOptions, plan, record
from qevict_diag.replay.settings import Settings
from qevict_diag.texts.source import Source
from qevict_diag.trace.trace import Trace

pytestmark = transformers_noise
OPTIONS = RecordOptions(prefill=40, decode=16, prompt_queries=6)
SOURCE = Source("secret", tokens=tuple(range(3, 60)))
FAMILIES = available(["llama", "mistral", "gemma2", "gpt_oss", "gemma4", "gemma4_shared", "deepseek_v3", "qwen3_next"])


def recorded(family, out, **changes):
    return Trace.open(record(build(family), None, [SOURCE], replace(OPTIONS, **changes), out=out)[0])


@pytest.mark.parametrize("changes", [{"redact_text": True}, {"redact_keys": True}])
def test_no_token_and_no_checksum_of_the_text_is_in_the_trace(tmp_path, changes):
    trace = recorded("llama", tmp_path, **changes)
    trace.verify()
    assert trace.token_file().read("token_ids").eq(0).all()
    assert SOURCE.sha256 not in json.dumps(trace.manifest)
    with pytest.raises(MetricError, match="--redact-"):
        _ = trace.tokens


def test_the_manifest_says_what_redaction_does_not_hide(tmp_path):
    text, keys = (
        recorded("llama", tmp_path / name, **{name: True}).entry("source") for name in ("redact_text", "redact_keys")
    )
    assert "layer 0's keys name every token" in text["redaction"]
    assert "can be compared with a guess of the text" in keys["redaction"]
    assert "redaction" not in recorded("llama", tmp_path / "plain").entry("source")


def test_a_redacted_text_is_still_told_by_the_keys_of_layer_0(tmp_path):
    """The reason for --redact-keys: a key of layer 0, before its rotation, is one token's, and the model knows it."""
    trace, model = recorded("llama", tmp_path, redact_text=True), build("llama")
    layer = model.model.layers[0]
    with torch.no_grad():
        known = layer.self_attn.k_proj(layer.input_layernorm(model.model.embed_tokens.weight))
    own = trace.layer(0).key_pre_rope().transpose(0, 1).flatten(1)
    assert torch.cdist(own, known).argmin(1)[:40].tolist() == list(SOURCE.tokens[:40])


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_alone_are_the_rows_of_the_whole_trace(tmp_path, family):
    whole, rows = recorded(family, tmp_path / "whole"), recorded(family, tmp_path / "rows", redact_keys=True)
    rows.verify()
    assert rows.layers == whole.layers
    for number in whole.layers:
        one, other = whole.layer(number), rows.layer(number)
        torch.testing.assert_close(other.attention(), one.attention(), atol=1e-6, rtol=0)
        assert torch.equal(other.prompt_mass, one.prompt_mass)
        assert other.key.eq(torch.eye(56)).all()
        assert other.value.eq(0).all()
        assert other.prompt_query is None
        assert set(other.query.unique().tolist()).isdisjoint(one.query.unique().tolist())


@pytest.mark.parametrize("family", FAMILIES)
def test_planned_bytes_are_those_of_the_rows(tmp_path, family):
    options = replace(OPTIONS, redact_keys=True)
    parts = plan(build(family), options, 1, tmp_path, timed=False).to_json()
    trace = recorded(family, tmp_path, redact_keys=True)
    files = [trace.layer_file(number) for number in trace.layers]
    written = sum(
        tensor.numel() * tensor.element_size()
        for file, number in zip(files, trace.layers, strict=True)
        for tensor in (file.read(name) for name in trace.files[f"layer_{number:03d}.safetensors"].tensors)
    )
    assert written == sum(value for name, value in parts.items() if name.startswith("bytes_") and _is_part(name))


def _is_part(name):
    return name not in ("bytes_free", "bytes_total")


@pytest.mark.parametrize("family", available(["llama", "gpt_oss"]))
@pytest.mark.parametrize("scope", ["layer", "kv_head"])
def test_policies_of_two_tiers_are_measured_as_on_the_whole_trace(tmp_path, family, scope):
    settings = Settings(Budget("1/2", sinks=2, recent=6), Readings(scope=scope), horizon=4)
    whole, rows = recorded(family, tmp_path / "whole"), recorded(family, tmp_path / "rows", redact_keys=True)
    one, other = (
        measure([t], ["R1", "R2"], ["fmm", "churn", "mass_share", "lir"], settings).frame for t in (whole, rows)
    )
    assert len(one) == len(other) > 0
    columns = [name for name in one.columns if name not in ("value", "numerator", "denominator")]
    assert one.select(columns).equals(other.select(columns))
    for name in ("value", "numerator", "denominator"):
        torch.testing.assert_close(
            torch.tensor(other[name].to_numpy()), torch.tensor(one[name].to_numpy()), atol=1e-5, rtol=0, equal_nan=True
        )


@pytest.mark.parametrize("name", ["R3", "R4", "R2[key_norm]", "R2[value_weighted]", "R2[observation]"])
def test_what_needs_keys_is_refused_in_one_line(tmp_path, name):
    trace = recorded("llama", tmp_path, redact_keys=True)
    settings = Settings(Budget("1/2", sinks=2, recent=6), horizon=4)
    with pytest.raises(MetricError) as caught:
        measure([trace], [name], ["fmm"], settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("changes", [{"dtype": "float16"}, {"store_attention": True}])
def test_options_that_contradict_rows_alone_are_refused(changes):
    with pytest.raises(InputError, match="leave the decode rows alone"):
        replace(OPTIONS, redact_keys=True, **changes)


def test_some_heads_and_layers_of_rows_alone(tmp_path):
    whole = recorded("llama", tmp_path / "whole", heads=(2, 3), layers=(1, 3))
    rows = recorded("llama", tmp_path / "rows", heads=(2, 3), layers=(1, 3), redact_keys=True)
    rows.verify()
    assert [(spec.layer, spec.kv_of, spec.head_numbers) for spec in rows.specs.values()] == [
        (1, None, (2, 3)),
        (3, 1, (2, 3)),
    ]
    torch.testing.assert_close(rows.layer(3).attention(), whole.layer(3).attention(), atol=1e-6, rtol=0)
