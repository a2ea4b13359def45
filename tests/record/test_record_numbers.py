"""A run whose numbers are not finite is refused, wherever they first appear, and what is stored is finite too."""

from dataclasses import replace

import pytest
import torch
from tiny_models import build, transformers_noise

from qevict_diag.errors import InputError, RecordError
from qevict_diag.record import RecordOptions, record
from qevict_diag.record.finite import larger
from qevict_diag.texts.source import Source
from qevict_diag.trace.trace import Trace

pytestmark = transformers_noise
OPTIONS = RecordOptions(prefill=80, decode=40, prompt_queries=4)
PROMPT = Source("ids", tokens=tuple(range(3, 83)))
NAN, INF = float("nan"), float("inf")


def refused(model, out, match, source=PROMPT, **changes):
    with pytest.raises(RecordError, match=match) as caught:
        record(model, None, [source], replace(OPTIONS, **changes), out=out)
    assert "\n" not in str(caught.value)
    assert not list(out.iterdir())


def spoiled(name, value=NAN, backend=None):
    model = build("llama", backend=backend)
    with torch.no_grad():
        model.get_parameter(name)[1, 1] = value
    return model


@pytest.mark.parametrize("backend", ["sdpa", "eager"])
@pytest.mark.parametrize("part", ["q_proj", "k_proj", "v_proj"])
@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_weights_that_are_not_finite_are_named_with_layer_and_position(tmp_path, backend, part, value):
    name = f"model.layers.2.self_attn.{part}.weight"
    told = rf"^layer 2, prompt position 0: .* NaN or infinity.*weights hold it themselves \({name}\)"
    refused(spoiled(name, value, backend), tmp_path, told)


def test_logits_that_are_not_finite_are_refused(tmp_path):
    refused(spoiled("lm_head.weight"), tmp_path, r"^prompt position 79: the logits hold NaN .*\(lm_head.weight\)")


def overflowing(backend, bias=150.0):
    """A model in float16 whose last layer's q·k is beyond 65504."""
    model = build("llama", backend=backend, attention_bias=True).half()
    for part in (model.model.layers[-1].self_attn.q_proj, model.model.layers[-1].self_attn.k_proj):
        torch.nn.init.constant_(part.bias, bias)
    return model


def test_float16_that_overflows_is_told_to_run_wider(tmp_path):
    told = r"^layer 3, prompt position \d+: .*run it in float32 or bfloat16"
    refused(overflowing("eager"), tmp_path, told)
    refused(overflowing("sdpa", bias=6e4), tmp_path, told)


def test_a_kernel_that_adds_in_float32_does_not_overflow(tmp_path):
    (path,) = record(overflowing("sdpa"), None, [PROMPT], OPTIONS, out=tmp_path)
    Trace.open(path).verify()


@pytest.fixture
def kernel(monkeypatch):
    """Make sdpa return ``value`` in one row of one layer: the given head, at the given position."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    honest = ALL_ATTENTION_FUNCTIONS["sdpa"]

    def spoil(layer, position, value, head=1):
        def kernel(module, query, key, *args, **kwargs):
            output, weights = honest(module, query, key, *args, **kwargs)
            row = position - (key.shape[2] - query.shape[2])
            if module.layer_idx == layer and 0 <= row < query.shape[2]:
                output = output.clone()
                output[0, row, head, 0] = value
            return output, weights

        monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, "sdpa", kernel)

    return spoil


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize(
    ("position", "told"),
    [
        (0, "prompt position 0"),
        (40, "prompt position 40"),  # no row of the self-check
        (79, "prompt position 79"),
        (80, "decode step 0"),
        (100, "decode step 20"),  # neither
        (119, "decode step 39"),
    ],
)
def test_one_bad_number_of_a_kernel_is_found_in_any_row(tmp_path, kernel, value, position, told):
    kernel(1, position, value)
    refused(build("llama"), tmp_path, f"^layer 1, {told}: its output holds NaN or infinity")


@pytest.mark.parametrize("changes", [{"chunk": 7}, {"layers": (3,)}, {"heads": (0, 1)}, {"redact_keys": True}])
def test_it_is_found_in_chunks_and_in_what_is_not_recorded(tmp_path, kernel, changes):
    kernel(0, 45, NAN, head=3)
    refused(build("llama"), tmp_path, "^layer 0, prompt position 45", **changes)


def test_it_is_found_in_a_teacher_forced_continuation(tmp_path, kernel):
    kernel(2, 99, INF)
    text = Source("ids", tokens=tuple(range(3, 123)))
    refused(build("llama"), tmp_path, "^layer 2, decode step 19", text, continuation="teacher")


@pytest.mark.parametrize("row", [0, 40, 79])
def test_a_recomputation_that_alone_is_not_finite_is_refused(tmp_path, monkeypatch, row):
    """The kernel's output is finite, the recorded queries do not explain it."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    honest = ALL_ATTENTION_FUNCTIONS["sdpa"]

    def lying(module, query, *args, **kwargs):
        return honest(module, query.nan_to_num(0.0), *args, **kwargs)

    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, "sdpa", lying)
    model = build("llama")
    q_proj = model.model.layers[1].self_attn.q_proj

    def spoil(module, args, output):
        if output.shape[1] > row:
            output[:, row, 5] = NAN
        return output

    q_proj.register_forward_hook(spoil)
    refused(model, tmp_path, r"^layer 1")


def test_what_a_stored_dtype_cannot_hold_is_refused(tmp_path):
    model = build("llama")
    with torch.no_grad():
        model.model.layers[1].self_attn.v_proj.weight.mul_(1e5)
    with pytest.raises(InputError, match=r"layer 1: its value does not fit into torch.float16"):
        record(model, None, [PROMPT], replace(OPTIONS, dtype="float16"), out=tmp_path)
    assert not list(tmp_path.iterdir())
    for dtype in ("bfloat16", None):
        (path,) = record(model, None, [PROMPT], replace(OPTIONS, dtype=dtype), out=tmp_path / str(dtype))
        assert torch.isfinite(Trace.open(path).layer(1).value).all()


def test_larger_keeps_nan():
    assert larger(1.0, 2.0) == larger(2.0, 1.0) == 2.0
    assert all(number != number for number in (larger(0.0, NAN), larger(NAN, 0.0), larger(NAN, NAN)))
