"""Tiny, randomly initialized models of every family that transformers runs through its attention interface."""

import pytest
import torch

LAYERS = 4
COMMON = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
SLIDING_EVERY_OTHER = ["sliding_attention", "full_attention"] * 2
MOE = {"num_local_experts": 4, "num_experts_per_tok": 2}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 10000.0}
MLA = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 12,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "num_key_value_heads": 4,
    "head_dim": 8,
}
LINEAR = ["linear_attention", "full_attention"] * 2

GEMMA4 = {
    "sliding_window": 8,
    "layer_types": SLIDING_EVERY_OTHER,
    "global_head_dim": 32,
    "num_global_key_value_heads": 1,
    "attention_k_eq_v": True,
    "vocab_size_per_layer_input": 128,
    "hidden_size_per_layer_input": 8,
    "num_kv_shared_layers": 0,
}

# family -> (config class, options beyond COMMON)
FAMILIES = {
    "llama": ("LlamaConfig", {}),
    "llama_yarn": ("LlamaConfig", {"rope_parameters": YARN}),
    "mistral": ("MistralConfig", {"sliding_window": 7}),
    "mixtral": ("MixtralConfig", MOE),
    "qwen2": ("Qwen2Config", {}),
    "qwen2_sliding": (
        "Qwen2Config",
        {"use_sliding_window": True, "sliding_window": 9, "layer_types": SLIDING_EVERY_OTHER},
    ),
    "qwen3": ("Qwen3Config", {}),
    "qwen3_moe": ("Qwen3MoeConfig", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}),
    "gemma2": (
        "Gemma2Config",
        {
            "sliding_window": 8,
            "attn_logit_softcapping": 5.0,
            "query_pre_attn_scalar": 16,
            "layer_types": SLIDING_EVERY_OTHER,
        },
    ),
    "gemma3": (
        "Gemma3TextConfig",
        {"sliding_window": 8, "query_pre_attn_scalar": 16, "layer_types": SLIDING_EVERY_OTHER},
    ),
    "gemma4": ("Gemma4TextConfig", GEMMA4),
    "gemma4_shared": ("Gemma4TextConfig", {**GEMMA4, "num_kv_shared_layers": 2}),
    "gemma3n": (
        "Gemma3nTextConfig",
        {
            "sliding_window": 8,
            "layer_types": SLIDING_EVERY_OTHER,
            "vocab_size_per_layer_input": 128,
            "hidden_size_per_layer_input": 8,
            "laurel_rank": 4,
            "altup_num_inputs": 2,
            "num_kv_shared_layers": 2,
            "activation_sparsity_pattern": [0.0] * LAYERS,
        },
    ),
    "phi3": ("Phi3Config", {"partial_rotary_factor": 0.5}),
    "gpt_neox": ("GPTNeoXConfig", {"rotary_pct": 0.25}),
    "gpt2": ("GPT2Config", {}),
    "opt": ("OPTConfig", {"ffn_dim": 64, "word_embed_proj_dim": 64}),
    "olmo2": ("Olmo2Config", {}),
    "granite": ("GraniteConfig", {"attention_multiplier": 0.4}),
    "starcoder2": ("Starcoder2Config", {}),
    "cohere2": ("Cohere2Config", {"sliding_window": 8, "layer_types": SLIDING_EVERY_OTHER}),
    "smollm3": ("SmolLM3Config", {"no_rope_layers": [1, 1, 1, 0], "no_rope_layer_interval": 4}),
    "glm4": ("Glm4Config", {"partial_rotary_factor": 0.5}),
    "gpt_oss": ("GptOssConfig", {**MOE, "sliding_window": 8, "layer_types": SLIDING_EVERY_OTHER}),
    "deepseek_v3": ("DeepseekV3Config", MLA),
    "qwen3_next": (
        "Qwen3NextConfig",
        {
            "layer_types": LINEAR,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 32,
            "linear_num_value_heads": 4,
            "linear_num_key_heads": 2,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
        },
    ),
    "lfm2": ("Lfm2Config", {"layer_types": ["conv", "full_attention"] * 2}),
}

# what transformers itself warns about when it builds or runs such models
transformers_noise = pytest.mark.filterwarnings(
    "ignore::FutureWarning:transformers",
    "ignore::UserWarning:transformers",
    "ignore:`torch.jit:DeprecationWarning",
)

REFUSED = {
    "falcon": ("FalconConfig", {"head_dim": None}),
    "bloom": ("BloomConfig", {"n_layer": 2, "n_head": 4}),
    "mpt": ("MptConfig", {"d_model": 64, "n_heads": 4, "n_layers": 2}),
}


def available(families):
    """Parameters for a test: families that the installed transformers does not know yet are skipped."""
    import transformers

    def parameter(family):
        known = hasattr(transformers, (FAMILIES | REFUSED)[family][0])
        skip = pytest.mark.skipif(not known, reason=f"transformers {transformers.__version__} has no {family}")
        return pytest.param(family, marks=skip)

    return [parameter(family) for family in families]


def config(family: str, **changes):
    import transformers

    name, options = (FAMILIES | REFUSED)[family]
    chosen = {key: value for key, value in (COMMON | options | changes).items() if value is not None}
    return getattr(transformers, name)(**chosen)


def build(family: str, seed: int = 0, backend: str | None = None, **changes):
    """A random model in eval mode; queries and keys are sharpened so that attention is far from uniform."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    if family == "gemma2":
        backend = backend or "eager"  # as transformers advises: before 5.24 its sdpa silently drops the softcap
    options = {} if backend is None else {"attn_implementation": backend}
    model = AutoModelForCausalLM.from_config(config(family, **changes), **options).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.mul_(4.0)
        for name, parameter in model.named_parameters():
            if name.endswith("sinks"):
                parameter.normal_()
    return model
