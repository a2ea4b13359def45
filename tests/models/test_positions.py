"""How many positions a model has: where its table ends, the recording one token further fails, and not before."""

import pytest
from tiny_models import build, transformers_noise

from qevict_diag.errors import InputError, ModelError
from qevict_diag.models.positions import last_position
from qevict_diag.record import RecordOptions, check, record
from qevict_diag.texts.source import Source

pytestmark = transformers_noise

SIZES = {"vocab_size": 128, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 40}
LONGER = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
TABLES = {
    "GPT2Config": (SIZES, 40),
    "GPTBigCodeConfig": (SIZES, 40),
    "GPTJConfig": (SIZES | {"rotary_dim": 8}, 40),
    "CodeGenConfig": (SIZES | {"rotary_dim": 8}, 40),
    "BioGptConfig": (LONGER | {"vocab_size": 128, "max_position_embeddings": 40}, 40),
    "OPTConfig": (
        {**LONGER, "vocab_size": 128, "ffn_dim": 64, "word_embed_proj_dim": 64, "max_position_embeddings": 40},
        40,
    ),
    "RobertaConfig": (
        {**LONGER, "vocab_size": 128, "is_decoder": True, "max_position_embeddings": 42, "pad_token_id": 1},
        40,  # the first two rows are of padding
    ),
}


def source(length):
    return Source("ids", tokens=tuple(range(3, 3 + length)))


def made(name, options):
    import transformers

    return transformers.AutoModelForCausalLM.from_config(getattr(transformers, name)(**options)).eval()


@pytest.mark.parametrize(("name", "options", "limit"), [(name, *entry) for name, entry in TABLES.items()], ids=TABLES)
def test_a_table_of_positions_is_used_to_its_end_and_no_further(tmp_path, name, options, limit):
    model = made(name, options)
    assert last_position(model) == limit
    assert record(model, None, [source(40)], RecordOptions(prefill=limit - 4, decode=4), out=tmp_path)
    with pytest.raises(InputError, match=rf"need {limit + 1} positions, {type(model).__name__} has {limit}; lower"):
        check(model, None, [source(40)], RecordOptions(prefill=limit - 4, decode=5))


@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt_neox", "deepseek_v3", "lfm2", "gemma3n"])
def test_computed_positions_do_not_end(family):
    assert last_position(build(family)) is None


@pytest.mark.parametrize("name", ["MambaConfig", "xLSTMConfig", "RecurrentGemmaConfig", "RwkvConfig"])
def test_models_without_attention_are_one_line(tmp_path, name):
    sizes = {"vocab_size": 128, "hidden_size": 64, "num_hidden_layers": 2}
    heads = {"num_heads": 4} if name == "xLSTMConfig" else {}
    with pytest.raises(ModelError) as caught:
        record(made(name, sizes | heads), None, [source(40)], RecordOptions(prefill=8, decode=2), out=tmp_path)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())
