"""Tiny models as the GGUF files that llama.cpp's converter makes of them, with a tokenizer of single characters."""

from collections.abc import Callable
from pathlib import Path

import gguf

SPECIAL, BYTES = ["<pad>", "<eos>", "<bos>", "<unk>"], [f"<0x{i:02X}>" for i in range(256)]
LETTERS = ["▁", *map(chr, range(ord("a"), ord("z") + 1))]
VOCABULARY = [*SPECIAL, *BYTES, *LETTERS]
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # llama.cpp's types of tokens
ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "gemma3_text": gguf.MODEL_ARCH.GEMMA3,
    "phi3": gguf.MODEL_ARCH.PHI3,
    "starcoder2": gguf.MODEL_ARCH.STARCODER2,
}


def write_gguf(
    model,
    path: Path,
    describe: Callable[[gguf.GGUFWriter], None] = lambda writer: None,
    leave_out: Callable[[str], bool] = lambda name: False,
) -> Path:
    """Write a model whose vocabulary is `VOCABULARY`.

    ``describe`` adds to the metadata and tensors, rotary embedding above all; tensors of ``leave_out`` are missing.
    """
    config = model.config
    kind = ARCHITECTURES[config.model_type]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[kind])
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    if hasattr(config, "rms_norm_eps"):
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    else:
        writer.add_layer_norm_eps(config.norm_epsilon)
    describe(writer)
    _add_tokenizer(writer)
    names = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    for name, tensor in _stored(model):
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if not leave_out(stored):
            writer.add_tensor(stored, tensor.float().contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_gemma3(model, path: Path, describe: Callable[[gguf.GGUFWriter], None] = lambda writer: None) -> Path:
    """Write a `Gemma3ForCausalLM`."""

    def gemma(writer: gguf.GGUFWriter) -> None:
        writer.add_key_length(model.config.head_dim)
        writer.add_value_length(model.config.head_dim)
        writer.add_rope_freq_base(1e6)
        writer.add_sliding_window(model.config.sliding_window)
        describe(writer)

    return write_gguf(model, path, gemma)


def _stored(model):
    """Tensors as the converter stores them: no tied head, Gemma's norms plus 1, Llama's rotary pairs side by side."""
    config, tied = model.config, model.config.tie_word_embeddings
    for name, tensor in model.state_dict().items():
        if tied and name == "lm_head.weight":
            continue
        if config.model_type == "gemma3_text" and name.endswith("norm.weight"):
            tensor = tensor + 1
        if config.model_type == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            tensor = tensor.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)
        yield name, tensor


def _add_tokenizer(writer: gguf.GGUFWriter) -> None:
    writer.add_tokenizer_model("llama")
    writer.add_token_list(VOCABULARY)
    writer.add_token_scores([0.0] * len(VOCABULARY))
    writer.add_token_types([CONTROL] * 3 + [UNKNOWN] + [BYTE] * len(BYTES) + [NORMAL] * len(LETTERS))
    for number, add in enumerate((writer.add_pad_token_id, writer.add_eos_token_id, writer.add_bos_token_id)):
        add(number)
    writer.add_unk_token_id(3)
    writer.add_add_bos_token(True)
