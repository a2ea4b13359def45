"""GGUF files: what is loaded computes what the file says, or is refused; above all where rotary embedding is scaled."""

import math

import gguf
import numpy as np
import pytest
import torch
from gguf_files import VOCABULARY, write_gemma3, write_gguf
from tiny_models import build, transformers_noise

from qevict_diag.errors import ModelError
from qevict_diag.models.load import load
from qevict_diag.models.rotation import Rotation

pytestmark = transformers_noise

BASE, WIDTH, FACTOR, ORIGINAL = 5e5, 16, 4.0, 64
ROPE = {"rope_theta": BASE, "rope_type": "default"}
SCALED = {**ROPE, "factor": FACTOR}
YARN = {**SCALED, "rope_type": "yarn", "original_max_position_embeddings": ORIGINAL}
LLAMA3 = {**YARN, "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
TOKENS = torch.arange(4, 104)[None]  # longer than the original context


def llama3_factors():
    """llama.cpp's converter: 1 for short wavelengths, the factor for long ones, in between a weighted harmonic mean."""
    for i in range(0, WIDTH, 2):
        turns = ORIGINAL * BASE ** (-i / WIDTH) / (2 * math.pi)
        smooth = min(max((turns - 1) / (4 - 1), 0), 1)
        yield 1 / ((1 - smooth) / FACTOR + smooth)


def scaled(kind, *more):
    """A file's description of a scaled rotary embedding."""

    def describe(writer):
        writer.add_rope_freq_base(BASE)
        writer.add_rope_scaling_type(kind)
        writer.add_rope_scaling_factor(FACTOR)
        for add, *values in more:
            getattr(writer, add)(*values)

    return describe


def based(*more):
    """A file's description without a scale, and what else it says."""

    def describe(writer):
        writer.add_rope_freq_base(BASE)
        for add, *values in more:
            getattr(writer, add)(*values)

    return describe


LINEAR, YARN_TYPE, LONG = (getattr(gguf.RopeScalingType, name) for name in ("LINEAR", "YARN", "LONGROPE"))
CONTEXT = ("add_rope_scaling_orig_ctx_len", ORIGINAL)
FACTORS = np.array(list(llama3_factors()), dtype=np.float32)
SHORT, LONGER = [1.0, 1.1, 1.2, 1.3], [2.0, 3.0, 4.0, 5.0]
BETAS = {"beta_fast": 20.0, "beta_slow": 2.0, "attention_factor": 1.25}
PHI = {
    "partial_rotary_factor": 0.5,
    "original_max_position_embeddings": ORIGINAL,
    "rope_parameters": {"rope_theta": BASE, "rope_type": "longrope", "short_factor": SHORT, "long_factor": LONGER},
}

# what the model computes, and how its GGUF file says so
CARRIED = {
    "base": ("llama", {"rope_parameters": ROPE}, based()),
    "width": ("llama", {"rope_parameters": ROPE}, based(("add_rope_dimension_count", WIDTH))),
    "type none": ("llama", {"rope_parameters": ROPE}, scaled(gguf.RopeScalingType.NONE)),
    "linear": ("llama", {"rope_parameters": {**SCALED, "rope_type": "linear"}}, scaled(LINEAR)),
    "linear, old key": (
        "llama",
        {"rope_parameters": {**SCALED, "rope_type": "linear"}},
        based(("add_float32", "llama.rope.scale_linear", FACTOR)),
    ),
    "yarn": ("llama", {"rope_parameters": YARN}, scaled(YARN_TYPE, CONTEXT)),
    "yarn of qwen": ("qwen2", {"rope_parameters": YARN}, scaled(YARN_TYPE, CONTEXT)),
    "yarn with all": (
        "llama",
        {"rope_parameters": {**YARN, **BETAS}},
        scaled(
            YARN_TYPE,
            *(CONTEXT, ("add_rope_scaling_yarn_beta_fast", 20.0), ("add_rope_scaling_yarn_beta_slow", 2.0)),
            ("add_rope_scaling_yarn_attn_factor", 1.25),
        ),
    ),
    "llama 3": ("llama", {"rope_parameters": LLAMA3}, based(("add_tensor", "rope_freqs.weight", FACTORS))),
    "factors of one": (
        "llama",
        {"rope_parameters": ROPE},
        based(("add_tensor", "rope_freqs.weight", np.ones(WIDTH // 2, dtype=np.float32))),
    ),
    "starcoder's base": ("starcoder2", {"rope_parameters": ROPE}, based()),
    "half a head": (
        "phi3",
        {"partial_rotary_factor": 0.5, "rope_parameters": ROPE},
        based(("add_rope_dimension_count", WIDTH // 2)),
    ),
    "phi 3": (
        "phi3",
        PHI,
        based(
            *(("add_rope_dimension_count", WIDTH // 2), CONTEXT),
            ("add_rope_scaling_attn_factors", math.sqrt(1 + math.log(256 / ORIGINAL) / math.log(ORIGINAL))),
            ("add_tensor", "rope_factors_long.weight", np.array(LONGER, dtype=np.float32)),
            ("add_tensor", "rope_factors_short.weight", np.array(SHORT, dtype=np.float32)),
        ),
    ),
}


@pytest.mark.parametrize(("family", "options", "describe"), CARRIED.values(), ids=CARRIED)
def test_a_gguf_file_computes_what_its_model_computes(tmp_path, family, options, describe):
    made = build(family, vocab_size=len(VOCABULARY), **options)
    loaded = load(str(write_gguf(made, tmp_path / "made.gguf", describe))).model
    with torch.inference_mode():
        torch.testing.assert_close(loaded(TOKENS).logits, made(TOKENS).logits, rtol=0, atol=1e-5)


def test_the_scale_of_gemma_3_reaches_its_full_layers_alone(tmp_path):
    kinds = {
        "full_attention": {"rope_type": "linear", "factor": FACTOR, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    options = {"num_hidden_layers": 7, "layer_types": None, "query_pre_attn_scalar": 256, "rope_parameters": kinds}
    made = build("gemma3", vocab_size=len(VOCABULARY), **options)

    def describe(writer):
        writer.add_rope_scaling_type(LINEAR)
        writer.add_rope_scaling_factor(FACTOR)

    loaded = load(str(write_gemma3(made, tmp_path / "made.gguf", describe))).model
    with torch.inference_mode():
        assert torch.equal(loaded(TOKENS).logits, made(TOKENS).logits)


REFUSED = {
    "alpha": based(("add_rope_scaling_alpha", 4.0)),
    "log multiplier": scaled(YARN_TYPE, CONTEXT, ("add_rope_scaling_yarn_log_mul", 0.1)),
    "other extrapolation": scaled(YARN_TYPE, CONTEXT, ("add_rope_scaling_yarn_ext_factor", 0.5)),
    "magnitude alone": based(("add_rope_scaling_attn_factors", 1.2)),
    "longrope without factors": scaled(LONG),
    "longrope without anything": based(("add_rope_scaling_type", gguf.RopeScalingType.LONGROPE)),
    "longrope with a scale and ones": scaled(LONG, ("add_tensor", "rope_freqs.weight", np.ones_like(FACTORS))),
    "a kind of the future": based(("add_string", "llama.rope.scaling.type", "su")),
    "short factors alone": based(("add_tensor", "rope_factors_short.weight", FACTORS)),
    "factors and a scale": scaled(LINEAR, ("add_tensor", "rope_freqs.weight", FACTORS)),
    "layers that differ": based(
        ("add_tensor", "blk.0.rope_freqs.weight", FACTORS), ("add_tensor", "blk.1.rope_freqs.weight", FACTORS * 2)
    ),
    "sections": based(("add_rope_dimension_sections", [4, 2, 2, 0])),
    "a key of the future": based(("add_float32", "llama.rope.scaling.novel", 2.0)),
}


@pytest.mark.parametrize("describe", REFUSED.values(), ids=REFUSED)
def test_a_rotary_embedding_that_cannot_be_carried_over_is_refused(tmp_path, describe):
    path = write_gguf(build("llama", vocab_size=len(VOCABULARY)), tmp_path / "made.gguf", describe)
    with pytest.raises(ModelError, match=r"rotary embedding .* use the model's safetensors folder instead$"):
        load(str(path))


def test_a_model_that_turns_otherwise_is_refused(tmp_path, monkeypatch):
    """As with a release of transformers that does not look where the scale is put."""
    path = write_gguf(build("llama", vocab_size=len(VOCABULARY)), tmp_path / "made.gguf", scaled(LINEAR))
    monkeypatch.setattr(Rotation, "parameters", lambda self, head_dim: ROPE)
    with pytest.raises(ModelError, match=r"linear, base 500000, factor 4\) does not reach the model"):
        load(str(path))


def test_yarn_keeps_fast_pairs_and_stretches_slow_ones():
    """The fastest pair turns more than 32 times in the original context, the slowest less than once."""
    plain = Rotation(WIDTH, 10000.0).frequencies()
    yarn = Rotation(WIDTH, 10000.0, "yarn", FACTOR, 4096).frequencies()
    assert yarn[0] == plain[0] == 1
    assert yarn[-1] == plain[-1] / FACTOR
    assert bool((yarn.diff() < 0).all())


def test_missing_tensors_are_named(tmp_path):
    made = build("llama", vocab_size=len(VOCABULARY))
    path = write_gguf(made, tmp_path / "made.gguf", based(), lambda name: name == "blk.2.attn_q.weight")
    with pytest.raises(
        ModelError, match=r"lack 1 of the model's weights: model\.layers\.2\.self_attn\.q_proj\.weight;"
    ):
        load(str(path))


def test_tensors_that_transformers_passes_over_are_told(tmp_path):
    made = build("llama", vocab_size=len(VOCABULARY))
    bias = ("add_tensor", "blk.0.attn_q.bias", np.ones(64, dtype=np.float32))
    path = write_gguf(made, tmp_path / "made.gguf", based(bias))
    with pytest.warns(
        UserWarning, match=r"holds 64 numbers that the model does not use, maybe of blk\.0\.attn_q\.bias"
    ):
        load(str(path))


def test_a_part_of_a_file_is_refused(tmp_path):
    describe = based(("add_uint16", "split.count", 3))
    path = write_gguf(build("llama", vocab_size=len(VOCABULARY)), tmp_path / "made.gguf", describe)
    with pytest.raises(ModelError, match="one of 3 parts; join them first"):
        load(str(path))


def test_an_adapter_beside_the_file_is_not_applied_in_silence(tmp_path):
    path = write_gguf(build("llama", vocab_size=len(VOCABULARY)), tmp_path / "made.gguf", based())
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="would be applied to it; move one of them elsewhere"):
        load(str(path))


@pytest.mark.parametrize("kept", [0, 3, 30, 300, 5000, 100_000])
def test_a_file_that_was_cut_is_one_line(tmp_path, kept):
    path = write_gguf(build("llama", vocab_size=len(VOCABULARY)), tmp_path / "made.gguf", based())
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ModelError, match=r"^cannot load .*cut, damaged or no GGUF file, fetch it again$"):
        load(str(path))


@pytest.mark.parametrize("seed", range(12))
def test_a_file_with_flipped_bits_loads_or_is_one_line(tmp_path, seed):
    path = write_gguf(build("llama", vocab_size=len(VOCABULARY)), tmp_path / "made.gguf", based())
    data = bytearray(path.read_bytes())
    draw = np.random.default_rng(seed)
    data[draw.integers(1000)] ^= 1 << int(draw.integers(8))
    path.write_bytes(data)
    assert "\n" not in said(path)


def said(path):
    """The error of loading, nothing when it loads."""
    try:
        load(str(path))
    except ModelError as error:
        return str(error)
    return ""
