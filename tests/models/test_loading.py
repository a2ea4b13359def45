"""Loading from folders and hub ids: whole weights or none, one line for every failure, no code unasked for."""

import errno
import json
import logging
import os
import pickle
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import build, config, transformers_noise

from qevict_diag.errors import InputError, ModelError
from qevict_diag.models import causes, pretrained
from qevict_diag.models.load import load

pytestmark = transformers_noise
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n"
Q_PROJ = "model.layers.2.self_attn.q_proj.weight"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    build("llama").save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "model")


def rewrite(folder, change):
    """Change the weights of a folder."""
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})


def reconfigure(folder, **changes):
    """Change the config of a folder."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def without(*names):
    return lambda weights: {name: tensor for name, tensor in weights.items() if name not in names}


def prefixed(weights):
    return {f"base_model.model.{name}": tensor for name, tensor in weights.items()}


def packed(weights):
    return weights | {f"{Q_PROJ}_scale": torch.ones(64, 1)}


INCOMPLETE = {
    "one tensor": (without(Q_PROJ), rf"lack 1 of the model's weights: {Q_PROJ}; give whole weights"),
    "no head": (without("lm_head.weight"), r"lack 1 of the model's weights: lm_head\.weight"),
    "prefix": (prefixed, r"lack 39 .* and 36 more \(they hold base_model\.model\.lm_head\.weight"),
    "scales that nobody applies": (packed, rf"packed in a way that transformers did not unpack: {Q_PROJ}_scale"),
    "another shape": (lambda w: w | {Q_PROJ: torch.zeros(32, 64)}, rf"{Q_PROJ} is 32x64, not 64x64"),
}


@pytest.mark.parametrize(("change", "message"), INCOMPLETE.values(), ids=INCOMPLETE)
def test_weights_that_are_not_whole_are_refused(folder, change, message):
    rewrite(folder, change)
    with pytest.raises(ModelError, match=message):
        load(str(folder))


def test_layers_that_only_the_config_has_are_refused(folder):
    reconfigure(folder, num_hidden_layers=6)
    with pytest.raises(ModelError, match=r"lack 18 .*model\.layers\.4\.input_layernorm\.weight"):
        load(str(folder))


def test_an_expert_that_is_missing_is_refused(tmp_path):
    build("mixtral").save_pretrained(tmp_path)
    rewrite(tmp_path, without("model.layers.0.block_sparse_moe.experts.1.w1.weight"))
    with pytest.raises(ModelError, match=r"do not fit the model: model\.layers\.0\.mlp\.experts\.gate_up_proj"):
        load(str(tmp_path))


def test_surplus_weights_are_told_and_change_nothing(folder, saved):
    rewrite(folder, lambda weights: weights | {"model.layers.0.self_attn.q_proj.bias": torch.ones(64)})
    with pytest.warns(UserWarning, match=r"does not use: model\.layers\.0\.self_attn\.q_proj\.bias$"):
        found = load(str(folder)).model
    tokens = torch.arange(3, 40)[None]
    with torch.inference_mode():
        assert torch.equal(found(tokens).logits, load(str(saved)).model(tokens).logits)


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt"])
def test_a_tied_head_is_not_missing(tmp_path, family):
    made = build(family, tie_word_embeddings=True)
    made.save_pretrained(tmp_path)
    tokens = torch.arange(3, 40)[None]
    with torch.inference_mode():
        assert torch.equal(load(str(tmp_path)).model(tokens).logits, made(tokens).logits)


def broken_pickle(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"a": _Touch(str(folder / "ran"))}, protocol=2))


class _Touch:
    """A pickle that writes a file when it is read as programs do."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def write(name, content):
    return lambda folder: (folder / name).write_bytes(content)


BROKEN = {
    "empty weights": (write("model.safetensors", b""), r"model\.safetensors is damaged \(.*header too small"),
    "garbage": (write("model.safetensors", b"garbage" * 99), r"model\.safetensors is damaged"),
    "cut": (lambda f: os.truncate(f / "model.safetensors", 5000), r"model\.safetensors is damaged .*fetch it again"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "no file named model.safetensors"),
    "pickle": (broken_pickle, "a damaged pickle, or one that holds more than tensors; give safetensors"),
    "pointer": (write("model.safetensors", POINTER.encode()), r"model\.safetensors is a pointer of Git LFS"),
    "tokenizer's pointer": (write("tokenizer.json", POINTER.encode()), r"tokenizer\.json is a pointer of Git LFS"),
    "no config": (lambda f: (f / "config.json").unlink(), "is no model folder, it has no config.json"),
    "config cut": (write("config.json", b"{"), r"config\.json is damaged"),
    "config a number": (write("config.json", b"5"), r"config\.json is damaged \(it holds no JSON object\)"),
    "config nothing": (write("config.json", b"null"), r"config\.json is damaged \(it holds no JSON object\)"),
    "generation config a list": (write("generation_config.json", b"[1]"), r"generation_config\.json is damaged"),
    "tokenizer config a list": (write("tokenizer_config.json", b"[1]"), r"tokenizer_config\.json is damaged"),
    "index a list": (
        lambda f: ((f / "model.safetensors").unlink(), write("model.safetensors.index.json", b"[]")(f)),
        r"index\.json is damaged \(it holds no JSON object\)",
    ),
    "garbage in place of a pickle": (
        lambda f: ((f / "model.safetensors").unlink(), write("pytorch_model.bin", b"abc" * 99)(f)),
        r"pytorch_model\.bin is damaged \(it is no file of PyTorch\), fetch it again",
    ),
    "index cut": (
        lambda f: ((f / "model.safetensors").unlink(), write("model.safetensors.index.json", b"{")(f)),
        r"model\.safetensors\.index\.json is damaged",
    ),
    "tokenizer cut": (write("tokenizer.json", b"{"), r"cannot load the tokenizer .*tokenizer\.json is damaged"),
    "tokenizer empty": (write("tokenizer.json", b"{}"), "cannot load the tokenizer of"),
    "no vocabulary": (write("tokenizer_config.json", b'{"tokenizer_class": "LlamaTokenizer"}'), "no vocabulary"),
}


@pytest.mark.parametrize(("break_it", "message"), BROKEN.values(), ids=BROKEN)
def test_broken_folders_are_one_line_that_names_the_cause(folder, break_it, message):
    break_it(folder)
    with pytest.raises(ModelError, match=message) as caught:
        load(str(folder))
    assert "\n" not in str(caught.value)
    assert "--model takes an alias" not in str(caught.value)  # the folder is there; what is wrong is in it
    assert not (folder / "ran").exists()


ODD = {
    "hidden_size": (-64, "64", 63),
    "num_attention_heads": (0, 3, -4),
    "num_key_value_heads": (0,),
    "vocab_size": (0, 10**12),
    "hidden_act": ("nonsense", 5),
    "rope_parameters": (5, {"rope_type": "zzz"}, {"rope_type": "yarn"}, {"rope_type": "longrope"}),
    "head_dim": (0, 7),
    "model_type": ("zzz", 5, None, "t5", "clip"),
    "dtype": ("zzz", 5),
    "layer_types": (["x"] * 4, 5),
    "quantization_config": (5, {}, {"quant_method": "bitsandbytes", "load_in_4bit": True}),
    "auto_map": (5,),
    "pad_token_id": (10**6,),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in ODD.items() for value in values])
def test_odd_configs_are_one_line(folder, name, value):
    reconfigure(folder, **{name: value})
    with pytest.raises(ModelError) as caught:
        load(str(folder))
    assert "\n" not in str(caught.value)


EVIL = """
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizer

open({!r}, "w").close()

class C(LlamaConfig):
    model_type = "evil"

class M(LlamaForCausalLM):
    config_class = C

class T(PreTrainedTokenizer):
    pass
"""


def bring_code(folder, **changes):
    """Code of the folder's own, which leaves a mark when it runs."""
    (folder / "evil.py").write_text(EVIL.format(str(folder / "ran")))
    reconfigure(folder, **changes)


@pytest.mark.parametrize("answer", ["y\n" * 9, ""])
def test_code_of_a_folder_never_runs_by_an_answer(folder, answer):
    """Whatever standard input says: nobody is asked."""
    bring_code(folder, model_type="evil", auto_map={"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"})
    command = [
        sys.executable,
        "-m",
        "qevict_diag.cli.app",
        "record",
        "--model",
        str(folder),
        "--out",
        str(folder / "t"),
    ]
    code = f"import sys; sys.argv = {command[2:]!r}; from qevict_diag.cli.app import main; main()"
    done = subprocess.run([sys.executable, "-c", code], input=answer, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "runs only with --trust-remote-code; read that code first" in done.stderr
    assert not (folder / "ran").exists()


def test_code_of_a_tokenizer_does_not_run(folder):
    bring_code(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"auto_map": {"AutoTokenizer": ["evil.T", None]}}))
    with pytest.raises(ModelError, match="runs only with --trust-remote-code"):
        load(str(folder))
    assert not (folder / "ran").exists()


def test_code_of_a_folder_runs_when_it_is_trusted(folder, tmp_path, monkeypatch):
    from transformers import dynamic_module_utils

    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    bring_code(folder, model_type="evil", auto_map={"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"})
    assert load(str(folder), trust_remote_code=True).identity["architecture"] == "M"
    assert (folder / "ran").exists()


def test_packages_that_are_missing_are_named(folder, monkeypatch):
    monkeypatch.setattr(causes, "_is_there", lambda module: False)
    (folder / "tokenizer.model").write_bytes(b"no sentencepiece")
    with pytest.raises(ModelError, match=r"not installed: pip install sentencepiece protobuf$"):
        load(str(folder))
    (folder / "config.json").rename(folder / "adapter_config.json")
    with pytest.raises(
        ModelError, match="is an adapter, which needs packages that are not installed: pip install peft"
    ):
        load(str(folder))


@pytest.fixture
def adapter(folder):
    peft = pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM

    torch.manual_seed(1)
    options = peft.LoraConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
    made = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(folder), options)
    made.save_pretrained(folder.parent / "adapter")
    return folder.parent / "adapter", made


def test_an_adapter_computes_what_peft_computes(adapter):
    path, made = adapter
    tokens = torch.arange(3, 40)[None]
    with torch.inference_mode():
        assert torch.equal(load(str(path)).model(tokens).logits, made(tokens).logits)


def test_an_adapter_with_a_missing_weight_or_over_such_a_base_is_refused(adapter, folder):
    path, _ = adapter
    weights = load_file(path / "adapter_model.safetensors")
    rest = dict(sorted(weights.items())[1:])
    save_file(rest, path / "adapter_model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lack 1 of the model's weights: .*lora_A"):
        load(str(path))
    save_file(weights, path / "adapter_model.safetensors", metadata={"format": "pt"})
    rewrite(folder, without(Q_PROJ))
    with pytest.raises(ModelError, match=f"lack 1 of the model's weights: {Q_PROJ}"):
        load(str(path))


def test_an_adapter_without_its_base_is_one_line(adapter, folder):
    path, _ = adapter
    shutil.rmtree(folder)
    with pytest.raises(ModelError, match="is no model folder"):
        load(str(path))
    (path / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"cannot load adapter .*base_model_name_or_path"):
        load(str(path))


def test_an_adapter_in_its_models_folder_is_refused(adapter, folder):
    shutil.copytree(adapter[0], folder, dirs_exist_ok=True)
    with pytest.raises(ModelError, match="holds a model and an adapter of it"):
        load(str(folder))


def test_the_text_part_of_a_model_that_sees_is_loaded(tmp_path):
    import transformers

    sight = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2, "image_size": 16, "patch_size": 8}
    seeing = transformers.CLIPVisionConfig(num_hidden_layers=1, **sight)
    both = transformers.LlavaConfig(vision_config=seeing, text_config=config("llama"), image_token_index=5)
    made = transformers.LlavaForConditionalGeneration(both).eval()
    made.save_pretrained(tmp_path)
    loaded = load(str(tmp_path))
    assert loaded.identity["architecture"] == "LlavaForConditionalGeneration"
    tokens = torch.arange(6, 40)[None]
    with torch.inference_mode():
        assert torch.equal(loaded.model(tokens).logits, made(input_ids=tokens).logits)


HUB = """
import json, sys
from qevict_diag.errors import QEvictError
from qevict_diag.models.fingerprint import fingerprint
from qevict_diag.models.load import load
for revision in (None, "v2", "gone"):
    try:
        found = load("org/tiny", revision=revision).identity
        print(json.dumps([found["revision"], found["weights_sha256"], fingerprint("org/tiny", revision)]))
    except QEvictError as error:
        print(json.dumps(str(error)))
"""


def test_a_revision_of_a_hub_id(tmp_path):
    """From the local cache of the hub, as it lies on the disk; bare weights, which take token ids."""
    repository = tmp_path / "hub" / "models--org--tiny"
    (repository / "refs").mkdir(parents=True)
    for reference, commit, seed in (("main", "a" * 40, 0), ("v2", "b" * 40, 1)):
        (repository / "refs" / reference).write_text(commit)
        build("llama", seed=seed).save_pretrained(repository / "snapshots" / commit)
    environment = os.environ | {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", HUB], env=environment, capture_output=True, text=True, check=True)
    main, tagged, gone = map(json.loads, done.stdout.splitlines())
    assert (main[0], tagged[0]) == ("a" * 40, "b" * 40)
    assert main[1] != tagged[1]
    assert all(one[2]["weights_sha256"] == one[1] and one[2]["revision"] == one[0] for one in (main, tagged))
    assert "it is not in the local cache, and the hub cannot be reached; --model takes an alias" in gone


def test_a_revision_of_a_folder_is_refused(folder):
    with pytest.raises(InputError, match="has no revisions, only a hub id has"):
        load(str(folder), revision="main")


@pytest.mark.parametrize("name", ["./gone", "/gone/model", "x" * 300, "a/b/c/d", ""])
def test_names_of_nothing_are_one_line(name, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError) as caught:
        load(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [b"m\xff", b"m\xff.gguf"])
def test_a_name_that_no_manifest_can_hold_is_refused(name):
    with pytest.raises(InputError, match="is not UTF-8, so no trace can hold it; rename it"):
        load(os.fsdecode(name))


def test_a_file_that_may_not_be_read_is_named(folder, monkeypatch):
    def refuse(path, *args):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(pretrained.Path, "open", refuse)
    assert causes.damaged(str(folder)) == f"{folder / 'config.json'} cannot be read (Permission denied)"


def test_an_odd_epoch_is_named(folder, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "abc")
    with pytest.raises(InputError, match="SOURCE_DATE_EPOCH is 'abc'; give seconds since 1970"):
        load(str(folder))


def test_attempts_to_reach_the_hub_are_not_told_one_by_one(capfd, monkeypatch):
    def refuse(*args, **options):
        logging.getLogger("huggingface_hub.utils._http").warning("Retrying in 1s")
        raise OSError("couldn't connect")

    monkeypatch.setattr("transformers.utils.peft_utils.find_adapter_config_file", refuse)
    with pytest.raises(ModelError, match="the hub cannot be reached"):
        load("owner/name")
    assert capfd.readouterr().err == ""


def test_a_folder_of_gguf_files_names_one(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"")
    with pytest.raises(ModelError, match=r"has no config\.json; give one of its files, .*model\.gguf"):
        pretrained.load_weights(str(tmp_path), {}, {"revision": None, "trust_remote_code": False})
