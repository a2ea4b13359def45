"""`record`, `inspect` and `verify` on the command line: what they print, and one line for every error."""

import json
import sys

import pytest
from tiny_models import build, transformers_noise
from tiny_tokenizers import VOCABULARY, tiny_tokenizer

from qevict_diag.cli import app as cli
from qevict_diag.trace.trace import Trace

pytestmark = transformers_noise


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "tiny"
    build("llama").save_pretrained(folder)
    return str(folder)


@pytest.fixture
def tokens(tmp_path):
    path = tmp_path / "ids.json"
    path.write_text(json.dumps(list(range(3, 40))))
    return str(path)


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command line: (exit code, stdout, stderr)."""

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["qevict-diag", *map(str, words)])
        try:
            cli.main()
            code = 0
        except SystemExit as exit:
            code = exit.code or 0
        return (code, *capsys.readouterr())

    return call


@pytest.fixture
def trace(run, model, tokens, tmp_path):
    run(
        "record",
        "--model",
        model,
        "--tokens",
        tokens,
        "--prefill",
        24,
        "--decode",
        6,
        "--out",
        tmp_path / "traces",
        "--quiet",
    )
    return tmp_path / "traces" / "ids"


def test_record_writes_a_trace_and_says_where(run, model, tokens, tmp_path):
    words = ["--model", model, "--tokens", tokens, "--prefill", 24, "--decode", 6, "--out", tmp_path / "t"]
    code, out, err = run("record", *words, "--layers", "0,2-3", "--prompt-queries", "all", "--store-dtype", "fp16")
    assert code == 0, err
    assert "24+6 tokens" in out
    assert "4-grams distinct" in out
    trace = Trace.open(tmp_path / "t" / "ids")
    assert trace.layers == (0, 2, 3)
    assert len(trace.layer(0).prompt_query_positions) == 24


def test_plan_says_the_price_and_records_nothing(run, model, tokens, tmp_path):
    words = ["--model", model, "--tokens", tokens, "--prefill", 24, "--decode", 6, "--out", tmp_path / "t", "--plan"]
    code, out, _ = run("record", *words, "--json")
    facts = json.loads(out)
    assert code == 0
    assert facts["bytes_keys"] == 4 * 2 * 30 * 16 * 4
    assert facts["traces"] == 1
    code, out, _ = run("record", *words)
    assert code == 0
    assert "all traces" in out
    assert not (tmp_path / "t").exists()


def test_resume_and_shards_share_the_work(run, model, tokens, tmp_path):
    other = tmp_path / "other.json"
    other.write_text(json.dumps(list(range(40, 80))))
    words = ["--model", model, "--tokens", tokens, "--tokens", other, "--prefill", 24, "--decode", 6, "--json"]
    code, out, _ = run("record", *words, "--out", tmp_path / "t", "--shard", "2/2")
    assert [row["trace"] for row in json.loads(out)] == [str(tmp_path / "t" / "other")]
    assert run("record", *words, "--out", tmp_path / "t")[0] == 1  # it exists
    code, out, _ = run("record", *words, "--out", tmp_path / "t", "--resume")
    assert code == 0
    assert len(json.loads(out)) == 2


def test_verify(run, trace):
    code, out, _ = run("verify", trace)
    assert code == 0
    assert "whole (4 layers, 24+6 tokens)" in out
    assert run("verify", "--quiet", trace)[:2] == (0, "")


def test_verify_stops_at_the_first_that_fails(run, trace):
    data = bytearray((trace / "layer_001.safetensors").read_bytes())
    data[-1] ^= 1
    (trace / "layer_001.safetensors").write_bytes(data)
    code, out, err = run("verify", trace)
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_inspect_as_json_and_as_table(run, trace):
    code, out, _ = run("inspect", trace, "--json")
    facts = json.loads(out)
    assert code == 0
    assert facts["architecture"] == "LlamaForCausalLM"
    assert len(facts["layers"]) == 4
    code, out, _ = run("inspect", trace)
    assert code == 0
    assert "LlamaForCausalLM" in out


ERRORS = {
    "short prompt": (["--prefill", "99"], "has 37 tokens, --prefill is 99; give a longer text"),
    "device": (["--device", "cuda:77"], "device 'cuda:77' is not there; this machine has cpu"),
    "continuation": (["--continuation", "beam"], "allowed are greedy, sample, teacher"),
    "layers": (["--layers", "9"], "layers [9] do not attend"),
    "layer list": (["--layers", "x"], "write numbers and ascending ranges"),
    "dtype": (["--store-dtype", "int3"], "unknown dtype 'int3'"),
    "prompt queries": (["--prompt-queries", "some"], "give a number or all"),
    "model": (["--model", "./no-such-model"], "--model takes an alias"),
}


@pytest.mark.parametrize(("words", "message"), ERRORS.values(), ids=ERRORS)
def test_errors_are_one_line_and_leave_nothing(run, model, tokens, tmp_path, words, message):
    base = ["--model", model, "--tokens", tokens, "--prefill", 24, "--decode", 6, "--out", tmp_path / "t", "--quiet"]
    code, out, err = run("record", *base, *words)
    assert (code, out) == (1, "")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "t").exists() or list((tmp_path / "t").iterdir()) == []


def test_text_that_is_not_utf8_is_one_line(run, model, tmp_path):
    (tmp_path / "x.txt").write_bytes(b"\xff\xfe")
    code, _, err = run("record", "--model", model, "--text", tmp_path / "x.txt", "--out", tmp_path / "t")
    assert code == 1
    assert "is not UTF-8" in err


def test_interrupt_leaves_nothing(run, model, tokens, tmp_path, monkeypatch):
    from qevict_diag.trace.writer import TraceWriter

    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(TraceWriter, "publish", interrupt)
    base = ["--model", model, "--tokens", tokens, "--prefill", 24, "--decode", 6, "--out", tmp_path / "t", "--quiet"]
    assert run("record", *base)[0] == 130
    assert list((tmp_path / "t").iterdir()) == []


def test_plan_refuses_what_the_recording_would(run, model, tokens, tmp_path):
    words = ["--model", model, "--tokens", tokens, "--decode", 6, "--out", tmp_path / "t", "--plan"]
    code, _, err = run("record", *words, "--prefill", 100000)
    assert code == 1
    assert "--prefill is 100000" in err
    code, _, err = run("record", *words, "--prefill", 24, "--column-sums", "fused")
    assert code == 1
    assert "need a CUDA device" in err


def test_plan_refuses_positions_that_the_model_does_not_have(run, tokens, tmp_path):
    build("gpt2").save_pretrained(tmp_path / "gpt2")
    words = ["--model", tmp_path / "gpt2", "--tokens", tokens, "--prefill", 24, "--out", tmp_path / "t", "--plan"]
    assert run("record", *words, "--decode", 232)[0] == 0
    code, _, err = run("record", *words, "--decode", 233)
    assert code == 1
    assert (
        err
        == "error: prompt and continuation need 257 positions, GPT2LMHeadModel has 256; lower --prefill or --decode\n"
    )


def test_verify_takes_a_folder_of_traces(run, model, tokens, tmp_path):
    words = ["--model", model, "--tokens", tokens, "--prefill", 24, "--decode", 6, "--quiet"]
    assert run("record", *words, "--out", tmp_path / "t")[0] == 0
    code, out, _ = run("verify", tmp_path / "t")
    assert code == 0
    assert "ids: whole (4 layers, 24+6 tokens)" in out


@pytest.fixture(scope="module")
def talking(tmp_path_factory):
    """A model folder with a tokenizer and a chat template."""
    folder = tmp_path_factory.mktemp("talking") / "tiny"
    build("llama", vocab_size=VOCABULARY).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.mark.filterwarnings("default")
def test_chats_of_a_data_set_from_its_lines_to_their_analysis(run, talking, tmp_path):
    text = "The eel was a riddle to everyone who looked for its beginning. " * 9
    rows = [
        {"x": {"talk": [{"role": "user", "content": text}]}},
        {"x": {"talk": "too short"}},
        {"x": {"talk": text}},
        {"x": {"talk": f"Another story. {text}"}},
    ]
    (tmp_path / "talks.jsonl").write_text("\n".join(map(json.dumps, rows)))
    shared = ["--model", talking, "--text", tmp_path / "talks.jsonl", "--field", "x.talk", "--chat", "--quiet"]
    lengths = [
        "--prefill",
        60,
        "--decode",
        40,
        "--continuation",
        "sample",
        "--temperature",
        "3.5",
        "--out",
        tmp_path / "t",
    ]
    code, out, err = run("record", *shared, *lengths)
    assert (code, out) == (1, "")
    assert "a chat prompt is not padded: give a longer text, or --prefill" in err
    code, out, err = run("record", *shared, *lengths, "--skip-short")
    assert code == 0, err
    assert [line.split()[0] for line in out.splitlines()] == [str(tmp_path / "t" / f"talks-{row}") for row in (1, 3, 4)]
    assert "note: skipped 1 of 4 texts, too short: talks-2" in err
    assert "note: talks-1, talks-3 are the same 60 tokens" in err
    source = Trace.open(tmp_path / "t" / "talks-1").entry("source")
    assert (source["field"], len(source["chat_template_sha256"])) == ("x.talk", 64)
    code, out, err = run("analyze", tmp_path / "t", "--policy", "R1", "--metric", "churn", "--budget", "1/2", "--quiet")
    assert code == 0, err
    assert f"left out: {tmp_path / 't' / 'talks-3'} holds the same recording as" in err


def test_rows_alone_from_the_command_line(run, model, tokens, tmp_path):
    words = ["--model", model, "--tokens", tokens, "--prefill", 24, "--decode", 12, "--out", tmp_path / "t", "--quiet"]
    assert run("record", *words, "--redact-keys")[0] == 0
    shared = [
        tmp_path / "t",
        "--budget",
        "1/2",
        "--sinks",
        2,
        "--recent",
        6,
        "--horizon",
        4,
        "--metric",
        "fmm",
        "--quiet",
    ]
    assert run("analyze", *shared, "--policy", "R1")[0] == 0
    code, _, err = run("analyze", *shared, "--policy", "R3")
    assert (code, err.count("\n")) == (1, 1)
    assert "rows alone (imported, or recorded with --redact-keys)" in err
    code, out, _ = run("inspect", tmp_path / "t" / "ids")
    assert "rows only" in out
    assert "can be compared with a guess of the text" in " ".join(out.split())
