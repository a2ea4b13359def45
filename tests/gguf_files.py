"""A Gemma 3 model as the GGUF file that llama.cpp's converter makes of it, with a tokenizer of single characters."""

from pathlib import Path

import gguf

SPECIAL, BYTES = ["<pad>", "<eos>", "<bos>", "<unk>"], [f"<0x{i:02X}>" for i in range(256)]
LETTERS = ["▁", *map(chr, range(ord("a"), ord("z") + 1))]
VOCABULARY = [*SPECIAL, *BYTES, *LETTERS]
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # llama.cpp's types of tokens


def write_gemma3(model, path: Path) -> Path:
    """Write a `Gemma3ForCausalLM` whose vocabulary is `VOCABULARY`; the weights of its norms are stored plus 1."""
    config = model.config
    writer = gguf.GGUFWriter(path, "gemma3")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(1e6)
    writer.add_sliding_window(config.sliding_window)
    _add_tokenizer(writer)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GEMMA3, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        if name != "lm_head.weight":  # tied to the embeddings
            stored = tensor + 1 if name.endswith("norm.weight") else tensor
            writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), stored.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: gguf.GGUFWriter) -> None:
    writer.add_tokenizer_model("llama")
    writer.add_token_list(VOCABULARY)
    writer.add_token_scores([0.0] * len(VOCABULARY))
    writer.add_token_types([CONTROL] * 3 + [UNKNOWN] + [BYTE] * len(BYTES) + [NORMAL] * len(LETTERS))
    for number, add in enumerate((writer.add_pad_token_id, writer.add_eos_token_id, writer.add_bos_token_id)):
        add(number)
    writer.add_unk_token_id(3)
    writer.add_add_bos_token(True)
