"""Recording the real SmolLM2-135M agrees with the model's own eager attention and with a plain run."""

import pytest
import torch
from tiny_models import transformers_noise

from qevict_diag.models import load as models
from qevict_diag.record import RecordOptions, record
from qevict_diag.texts.source import built_in
from qevict_diag.trace.trace import Trace

pytestmark = [pytest.mark.model, transformers_noise]
OPTIONS = RecordOptions(prefill=80, decode=12)


@pytest.fixture(scope="module")
def loaded():
    return models.load("smollm2-135m")


@pytest.fixture(scope="module")
def traces(loaded, tmp_path_factory):
    out = tmp_path_factory.mktemp("traces")
    paths = record(
        loaded.model, loaded.tokenizer, built_in("the-eddystone", "the-eel"), OPTIONS, out=out, identity=loaded.identity
    )
    return [Trace.open(path) for path in paths]


@pytest.fixture(scope="module")
def eager(traces):
    """The model's own attention [B, H, T, T] by layer."""
    model = models.load("smollm2-135m", backend="eager").model
    tokens = torch.stack([trace.tokens for trace in traces])
    with torch.inference_mode():
        return model(input_ids=tokens, output_attentions=True, use_cache=False).attentions


def test_decode_attention_is_the_models_own(traces, eager):
    for i, trace in enumerate(traces):
        for number in trace.layers:
            own = eager[number][i, :, OPTIONS.prefill :]
            torch.testing.assert_close(trace.layer(number).attention(), own, atol=1e-5, rtol=0)


def test_prompt_column_sums_are_the_models_own(traces, eager):
    for i, trace in enumerate(traces):
        for number in trace.layers:
            own = eager[number][i, :, : OPTIONS.prefill, : OPTIONS.prefill].sum(dim=1)
            torch.testing.assert_close(trace.layer(number).prompt_mass, own, atol=1e-4, rtol=1e-5)


def test_tokens_are_those_of_the_plain_run(loaded, traces):
    prompts = torch.stack([trace.tokens[: OPTIONS.prefill] for trace in traces])
    eos = loaded.model.generation_config.eos_token_id
    try:
        loaded.model.generation_config.eos_token_id = None
        own = loaded.model.generate(
            prompts, do_sample=False, max_new_tokens=OPTIONS.decode, attention_mask=torch.ones_like(prompts)
        )
    finally:
        loaded.model.generation_config.eos_token_id = eos
    assert torch.equal(torch.stack([trace.tokens for trace in traces]), own)


def test_traces_verify_and_name_the_model(traces):
    for trace in traces:
        trace.verify()
        assert trace.model_id == "smollm2-135m"
        assert len(trace.layers) == 30
        assert max(spec.pv_residual for spec in trace.specs.values()) < 1e-5
