"""Inputs as people have them, and what a recording will cost."""

import io
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tiny_models import available, build, transformers_noise

from qevict_diag.errors import InputError, MetricError
from qevict_diag.record import RecordOptions, plan, record
from qevict_diag.texts.read import read_inputs, read_tokens, shard
from qevict_diag.texts.source import Message, Source, slug
from qevict_diag.trace.trace import Trace

pytestmark = transformers_noise
OPTIONS = RecordOptions(prefill=20, decode=5, prompt_queries=4)
PROMPT, DECODED = 210 / 325, 115 / 325  # shares of the pairs of queries and positions: Σ 1..20 and Σ 21..25
SOURCE = Source("one", tokens=tuple(range(3, 28)))


def test_folder_of_texts(tmp_path):
    for name in ("b.txt", "a.md", "c.pdf", ".hidden"):
        (tmp_path / name).write_text(name)
    assert [(s.name, s.text) for s in read_inputs([tmp_path])] == [("a", "a.md"), ("b", "b.txt")]
    with pytest.raises(InputError, match="has no text files"):
        read_inputs([tmp_path / "a.md", _empty(tmp_path)])


def _empty(tmp_path):
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"


def test_json_lines(tmp_path):
    path = tmp_path / "many.jsonl"
    path.write_text('{"body": "one"}\n\n{"body": "two", "x": 1}\n')
    assert [(s.name, s.text) for s in read_inputs([path], "body")] == [("many-1", "one"), ("many-3", "two")]
    with pytest.raises(
        InputError, match=r"line 1 has no text in field 'text', it has body; name the field with --field"
    ):
        read_inputs([path])


@pytest.mark.parametrize("line", ["[1]", "{", '{"text": 5}', "\xff", "[" * 100_000])
def test_json_lines_that_are_wrong(tmp_path, line):
    (tmp_path / "x.jsonl").write_text(line, encoding="latin1")
    with pytest.raises(InputError, match=r"x.jsonl, line 1 (is not JSON|has no text)"):
        read_inputs([tmp_path / "x.jsonl"])


def test_standard_input(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO("Grüße".encode())))
    assert read_inputs([type(tmp_path)("-")]) == [Source("stdin", "Grüße")]
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"\xff")))
    with pytest.raises(InputError, match="standard input is not UTF-8"):
        read_inputs([type(tmp_path)("-")])


WORDS = "The eel, die Grüße, привет мир, हिन्दी में.\n" * 20


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-16", "utf-32-le", "utf-32-be", "utf-32"])
@pytest.mark.parametrize("text", ["hello world ", WORDS, "привет, мир\n"])
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "-"])
def test_wide_encodings_are_named(tmp_path, monkeypatch, encoding, text, name):
    data = (text * 9).encode(encoding)
    (tmp_path / "a.txt").write_bytes(data)
    (tmp_path / "a.jsonl").write_bytes(json.dumps({"text": text}, ensure_ascii=False).encode(encoding))
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    path = tmp_path / name if name != "-" else type(tmp_path)("-")
    with pytest.raises(InputError, match=rf"is not UTF-8 but {encoding[:6].upper()}.*`iconv -f {encoding[:6].upper()}"):
        read_inputs([path])


@pytest.mark.parametrize("mark", ["utf-8", "utf-8-sig"])
def test_texts_of_all_scripts_are_read_with_a_mark_or_without(tmp_path, mark):
    (tmp_path / "a.txt").write_text(WORDS, encoding=mark)
    (tmp_path / "b.jsonl").write_text(json.dumps({"text": WORDS}, ensure_ascii=False), encoding=mark)
    assert [s.text for s in read_inputs([tmp_path])] == [WORDS, WORDS]


@pytest.mark.parametrize("data", [bytes(40), b"some text" * 9 + bytes(1), b"a\0\0b\0c" * 9])
def test_bytes_with_nul_are_no_text(tmp_path, data):
    (tmp_path / "a.txt").write_bytes(data)
    with pytest.raises(InputError, match="holds NUL bytes, so it is no text"):
        read_inputs([tmp_path])


def test_latin1_is_not_advised_for_what_may_be_anything(tmp_path):
    (tmp_path / "a.txt").write_bytes("日本語".encode("shift_jis") * 9)
    with pytest.raises(
        InputError, match=r"is not UTF-8 \(byte 0 is 0x93\); save it as UTF-8: `file` may tell"
    ) as caught:
        read_inputs([tmp_path])
    assert "iconv -f latin1" not in str(caught.value)


@pytest.mark.parametrize("text", ["a\ud83d b", "\udc80", "a\0b"])
def test_characters_that_no_text_has_are_refused(tmp_path, text):
    (tmp_path / "s.jsonl").write_text(json.dumps({"text": text}))
    with pytest.raises(InputError, match=r"s-1 holds (half of a surrogate pair|NUL characters)"):
        read_inputs([tmp_path])
    with pytest.raises(InputError, match=r"holds (half of a surrogate pair|NUL characters)"):
        Source("here", messages=(Message("user", text),))


def test_nested_fields(tmp_path):
    rows = [{"a": {"b": [{"c": "deep"}]}}, {"a.b.0.c": "flat", "a": 1}]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = read_inputs([tmp_path], "a.b.0.c")
    assert [(s.text, s.field) for s in found] == [("deep", "a.b.0.c"), ("flat", "a.b.0.c")]
    for field in ("a.b", "a.b.7.c", "a.x.0.c", "a.b.c"):
        with pytest.raises(InputError, match=r"line 1 has no text in field"):
            read_inputs([tmp_path], field)


def test_a_field_that_holds_no_text_is_told_by_what_it_holds(tmp_path):
    for value, shown in ((None, "null"), (5, "5"), ({"a": 1}, '{"a": 1}')):
        (tmp_path / "x.jsonl").write_text(json.dumps({"text": value}))
        with pytest.raises(InputError, match=rf"line 1 has no text in field 'text', which holds {shown};"):
            read_inputs([tmp_path])


def test_folder_of_texts_and_lines(tmp_path):
    (tmp_path / "b.txt").write_text("plain")
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": "two"}')
    (tmp_path / "c.ndjson").write_text('{"text": "three"}')
    found = [(s.name, s.text) for s in read_inputs([tmp_path])]
    assert found == [("a-1", "one"), ("a-2", "two"), ("b", "plain"), ("c-1", "three")]


def test_a_json_file_is_its_rows_and_never_a_text(tmp_path):
    path = tmp_path / "x.json"

    def read(content):
        path.write_text(content)
        return [(s.name, s.text) for s in read_inputs([path])]

    assert read('[{"text": "one"}, {"text": "two"}]') == [("x-1", "one"), ("x-2", "two")]
    assert read('{\n "text": "one"\n}') == [("x-1", "one")]
    assert read('{"text": "one"}\n{"text": "two"}') == [("x-1", "one"), ("x-2", "two")]
    with pytest.raises(InputError, match="is a list of numbers; give token ids with --tokens"):
        read("[1, 2, 3]")
    for wrong in ("hello", '["a"]', "5", "{"):
        with pytest.raises(InputError, match=r"(is not JSON|has no text)"):
            read(wrong)


@pytest.mark.parametrize(
    ("name", "slugged"),
    [
        ("Дневник угря", "Дневник-угря"),
        ("鰻の話", "鰻の話"),
        ("हिन्दी", "हिन्दी"),
        ("cafe\u0301", "café"),
        ("../a/b", "a-b"),
        ("🐟🐟", "text"),
        ("caf\udce9", "caf"),
    ],
)
def test_names_keep_the_letters_of_every_script(name, slugged):
    assert slug(name) == slugged


@pytest.mark.parametrize("letter", ["a", "é", "鰻", "𠀋"])
def test_names_leave_room_for_the_hidden_folder(tmp_path, letter):
    name = slug(letter * 300)
    assert set(name) == {letter}
    (tmp_path / f".{name}.partial-{'x' * 12}").mkdir()


def test_pipes_without_a_writer_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    for read in (lambda: read_inputs([tmp_path / "pipe.txt"]), lambda: read_tokens(tmp_path / "pipe.txt")):
        with pytest.raises(InputError, match="is no regular file"):
            read()


def test_what_a_shell_substitutes_is_read():
    end, start = os.pipe()
    os.write(start, b"piped text")
    os.close(start)
    assert read_inputs([Path(f"/dev/fd/{end}")])[0].text == "piped text"
    os.close(end)


def test_shards_partition_the_sources():
    sources = [Source(str(i)) for i in range(11)]
    parts = [shard(sources, f"{i}/4") for i in range(1, 5)]
    assert sorted((s for part in parts for s in part), key=lambda s: int(s.name)) == sources
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    for wrong in ("0/4", "5/4", "1", "a/b", "1/2/3", "-1/2", "1/" + "9" * 5000):
        with pytest.raises(InputError, match="write i/n"):
            shard(sources, wrong)


@pytest.mark.parametrize("family", available(["llama", "gemma4", "gemma4_shared", "deepseek_v3", "qwen3_next"]))
@pytest.mark.parametrize("changes", [{}, {"store_attention": True, "dtype": "float16"}, {"layers": (1,)}])
def test_planned_bytes_are_those_of_the_trace(tmp_path, family, changes):
    options = replace(OPTIONS, **changes)
    planned = plan(build(family), options, 1, tmp_path, timed=False)
    trace = Trace.open(record(build(family), None, [SOURCE], options, out=tmp_path)[0])
    written = sum(
        t.numel() * t.element_size()
        for number in trace.layers
        for t in (
            trace.layer_file(number).read(name) for name in trace.files[f"layer_{number:03d}.safetensors"].tensors
        )
    )
    parts = planned.to_json()
    assert written == sum(
        parts[f"bytes_{n}"] for n in ("queries", "keys", "values", "prompt_queries", "sums", "attention")
    )
    assert parts["bytes_total"] >= written
    assert planned.extra_flops > 0


def test_plan_estimates_a_time(tmp_path):
    timed = plan(build("llama"), OPTIONS, 3, tmp_path / "not" / "there")
    assert timed.seconds > 0
    assert timed.extra_seconds > 0


@pytest.mark.parametrize(
    ("changes", "flops"),
    [
        ({}, 1),
        ({"probes": 0.5}, (0.5 + 1 / 4) * PROMPT + DECODED),  # one of the four layers exact too
        ({"store_attention": True}, PROMPT + 2 * DECODED),
        ({"layers": (0, 2)}, 1 / 2),
        ({"heads": (2, 3)}, 1 / 2),
        ({"dtype": "float16"}, 1),
    ],
)
def test_the_plan_knows_what_each_option_costs(tmp_path, changes, flops):
    full, chosen = (plan(build("llama"), o, 1, tmp_path, timed=False) for o in (OPTIONS, replace(OPTIONS, **changes)))
    assert chosen.extra_flops / full.extra_flops == pytest.approx(flops, rel=1e-3)


def test_a_sliding_window_costs_less(tmp_path):
    sliding, full = (plan(build(name), OPTIONS, 1, tmp_path, timed=False) for name in ("mistral", "llama"))
    assert sliding.extra_flops < full.extra_flops


def test_full_disk_is_refused_before_anything_runs(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10_000))
    with pytest.raises(InputError, match=r"1 traces need 102 kB, .* has 10 kB; record fewer layers"):
        record(build("llama"), None, [SOURCE], OPTIONS, out=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_redacted_trace_holds_no_text(tmp_path):
    (path,) = record(build("llama"), None, [SOURCE], replace(OPTIONS, redact_text=True), out=tmp_path)
    trace = Trace.open(path)
    trace.verify()
    assert trace.token_file().read("token_ids").eq(0).all()
    assert SOURCE.sha256 not in json.dumps(trace.manifest)
    with pytest.raises(MetricError, match="--redact-text"):
        _ = trace.tokens


def test_resume_keeps_what_is_there_and_refuses_what_differs(tmp_path):
    model = build("llama")
    record(model, None, [SOURCE], OPTIONS, out=tmp_path)
    other = Source("two", tokens=tuple(range(4, 29)))
    assert len(record(model, None, [SOURCE, other], OPTIONS, out=tmp_path, resume=True)) == 2
    assert torch.equal(Trace.open(tmp_path / "two").tokens[:20], torch.arange(4, 24))
    for changed in (replace(OPTIONS, decode=4), replace(OPTIONS, continuation="teacher")):
        with pytest.raises(InputError, match="recorded from another text, model or options"):
            record(model, None, [SOURCE], changed, out=tmp_path, resume=True)
    with pytest.raises(InputError, match="recorded from another text"):
        record(model, None, [replace(other, name="one")], OPTIONS, out=tmp_path, resume=True)


def test_redacted_traces_are_kept_by_their_name_and_it_says_so(tmp_path):
    options = replace(OPTIONS, redact_text=True)
    first = record(build("llama"), None, [SOURCE], options, out=tmp_path)
    with pytest.warns(UserWarning, match="is redacted and kept by its name"):
        again = record(build("llama"), None, [SOURCE], options, out=tmp_path, resume=True)
    assert first == again


@pytest.mark.parametrize(
    "wrong", [{"heads": ()}, {"heads": (2, 0)}, {"layers": ()}, {"layers": (-1,)}, {"heads": (1, 1)}]
)
def test_layers_and_heads_are_ascending_numbers(wrong):
    with pytest.raises(InputError, match="in ascending order, each once"):
        replace(OPTIONS, **wrong)


def test_negative_token_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds token id -1"):
        record(build("llama"), None, [Source("ids", tokens=(-1,) * 30)], OPTIONS, out=tmp_path)


def test_model_of_a_precision_that_no_trace_holds_is_refused_before_it_runs(tmp_path):
    with pytest.raises(InputError, match=r"computes in torch.float64, .* load it in float32"):
        record(build("llama").double(), None, [SOURCE], OPTIONS, out=tmp_path)
    assert list(tmp_path.iterdir()) == []
