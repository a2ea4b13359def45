"""Which texts are recorded, and what is said of them: short ones, sampled ones, ones that end, ones that are there."""

import json
from dataclasses import replace

import pytest
import torch
from tiny_models import build, transformers_noise
from tiny_tokenizers import VOCABULARY, tiny_tokenizer

from qevict_diag.errors import InputError, ModelError
from qevict_diag.record import RecordOptions, check, record
from qevict_diag.record.decode import first_end
from qevict_diag.texts.source import Source
from qevict_diag.trace.summary import summary
from qevict_diag.trace.trace import Trace

pytestmark = transformers_noise
OPTIONS = RecordOptions(prefill=30, decode=8, prompt_queries=4)
LONG = Source("long", tokens=tuple(range(3, 60)))
OTHER = Source("other", tokens=tuple(range(40, 90)))
SHORT = Source("short", tokens=(5, 6, 7))


def names(paths):
    return [path.name for path in paths]


def test_short_texts_are_skipped_when_asked_for(tmp_path):
    model = build("llama")
    with pytest.raises(InputError, match="short has 3 tokens, --prefill is 30"):
        record(model, None, [LONG, SHORT, OTHER], OPTIONS, out=tmp_path)
    with pytest.warns(UserWarning, match="skipped 1 of 3 texts, too short: short"):
        assert names(record(model, None, [LONG, SHORT, OTHER], OPTIONS, out=tmp_path, skip_short=True)) == [
            "long",
            "other",
        ]
    assert sorted(names(tmp_path.iterdir())) == ["long", "other"]


def test_short_texts_are_skipped_again_on_resume(tmp_path):
    model = build("llama")
    record(model, None, [LONG], OPTIONS, out=tmp_path)
    for sources in ([LONG, SHORT], [LONG, SHORT, OTHER]):
        with pytest.warns(UserWarning, match="too short: short"):
            paths = record(model, None, sources, OPTIONS, out=tmp_path, resume=True, skip_short=True)
        assert names(paths) == [source.name for source in sources if source is not SHORT]


def test_nothing_but_short_texts_is_refused(tmp_path):
    with (
        pytest.warns(UserWarning, match="skipped 2 of 2"),
        pytest.raises(InputError, match="all 2 texts are too short"),
    ):
        record(build("llama"), None, [SHORT, replace(SHORT, name="b")], OPTIONS, out=tmp_path, skip_short=True)


@pytest.mark.parametrize("damage", ["cut", "gone", "grown"])
def test_a_trace_that_is_not_whole_is_not_kept(tmp_path, damage):
    model = build("llama")
    record(model, None, [LONG], OPTIONS, out=tmp_path)
    path = tmp_path / "long" / "layer_002.safetensors"
    data = path.read_bytes()
    path.unlink() if damage == "gone" else path.write_bytes(data[:100] if damage == "cut" else data + b"x")
    with pytest.raises(InputError, match=r"long is not whole: layer_002.safetensors has \d+ of \d+ bytes; remove"):
        record(model, None, [LONG, OTHER], OPTIONS, out=tmp_path, resume=True)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("name", ["layer_002.safetensors", "tokens.safetensors"])
def test_a_trace_with_a_changed_byte_is_not_kept(tmp_path, name):
    model = build("llama")
    record(model, None, [LONG], OPTIONS, out=tmp_path)
    path = tmp_path / "long" / name
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match=f"long is not whole: {name} has another SHA-256 than .*; remove"):
        record(model, None, [LONG, OTHER], OPTIONS, out=tmp_path, resume=True)
    assert not (tmp_path / "other").exists()


def test_a_trace_of_an_older_recorder_is_kept(tmp_path):
    """Options that it did not know have their defaults."""
    from qevict_diag.trace.manifest import checksum

    model = build("llama")
    record(model, None, [LONG], OPTIONS, out=tmp_path)
    path = tmp_path / "long" / "manifest.json"
    manifest = json.loads(path.read_text())
    for name in ("chat", "redact_keys"):
        del manifest["recorder"]["options"][name]
    for name in ("field", "chat_template_sha256", "end_of_sequence_step"):
        del manifest["source"][name]
    manifest["checksum"] = checksum(manifest)
    path.write_text(json.dumps(manifest))
    assert names(record(model, None, [LONG], OPTIONS, out=tmp_path, resume=True)) == ["long"]
    with pytest.raises(InputError, match="recorded from another text, model or options"):
        record(model, None, [LONG], replace(OPTIONS, redact_keys=True), out=tmp_path, resume=True)


def continuation(out, **changes):
    (path,) = record(build("llama"), None, [LONG], replace(OPTIONS, **changes), out=out)
    return Trace.open(path)


@pytest.mark.parametrize("ends", [int, list])
def test_the_first_step_at_which_the_model_would_have_stopped(tmp_path, ends):
    hot = replace(OPTIONS, continuation="sample", temperature=9.0)
    tokens = Trace.open(record(build("llama"), None, [LONG], hot, out=tmp_path / "plain")[0]).tokens[30:].tolist()
    step = next(step for step in range(1, 8) if tokens[step] not in tokens[:step])
    model = build("llama")
    model.generation_config.eos_token_id = tokens[step] if ends is int else [1, tokens[step]]
    (path,) = record(model, None, [LONG], hot, out=tmp_path / "ends")
    trace = Trace.open(path)
    assert trace.tokens[30:].tolist() == tokens  # the recording goes on
    assert trace.entry("source")["end_of_sequence_step"] == step == summary(trace)["end_of_sequence_step"]


@pytest.mark.parametrize("ends", [2.5, "</s>", [[2]], {"id": 2}])
def test_an_end_that_is_no_token_id_is_refused_before_the_run(tmp_path, ends):
    model = build("llama")
    model.generation_config.eos_token_id = ends
    with pytest.raises(ModelError, match=r"has the eos_token_id .*; an id or a list of ids is needed"):
        record(model, None, [LONG], OPTIONS, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_first_end():
    assert first_end([5, 2, 7, 2], {2, 9}) == 1
    assert first_end([5, 7], {2}) is first_end([2], ()) is None


def test_a_cold_sample_is_greedy_and_a_hot_one_is_not(tmp_path):
    greedy = continuation(tmp_path / "greedy").tokens
    for temperature in (1e-3, 1e-30, 1e-300):
        cold = continuation(tmp_path / str(temperature), continuation="sample", temperature=temperature)
        assert torch.equal(cold.tokens, greedy)
        assert cold.entry("recorder")["options"]["temperature"] == temperature
    hot = continuation(tmp_path / "hot", continuation="sample", temperature=100.0).tokens
    assert not torch.equal(hot, greedy)


@pytest.mark.parametrize("continued", ["greedy", "teacher"])
def test_a_temperature_that_nothing_samples_with_is_refused(continued):
    with pytest.raises(InputError, match=r"temperature 0.5 has no meaning"):
        replace(OPTIONS, continuation=continued, temperature=0.5)


@pytest.mark.parametrize("wrong", [float("inf"), float("nan"), -1.0, 0.0])
def test_temperatures_out_of_range_are_refused(wrong):
    with pytest.raises(InputError, match="it must be above 0"):
        replace(OPTIONS, continuation="sample", temperature=wrong)


@pytest.mark.parametrize("changes", [{"seed": -1}, {"seed": 2**63}, {"decode": 2**31}, {"prefill": 10**30}])
def test_numbers_beyond_what_is_possible_are_refused(changes):
    with pytest.raises(InputError, match="must be between"):
        replace(OPTIONS, **changes)


def test_a_text_is_read_with_what_the_tokenizer_adds():
    tokenizer = tiny_tokenizer()
    text = "The eel was a riddle to everyone who looked for its beginning. " * 9
    (ids,) = check(build("llama", vocab_size=VOCABULARY), tokenizer, [Source("eel", text)], OPTIONS)
    assert ids == tokenizer(text)["input_ids"][:30]
    assert ids[0] == tokenizer.bos_token_id != ids[1]
