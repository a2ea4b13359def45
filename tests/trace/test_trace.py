"""A trace: written whole or not at all, opened lazily, treated as hostile."""

import fcntl
import json
import os
import pickle
import shutil
import stat
import time
from dataclasses import replace

import pytest
import safetensors.torch
import torch
from edit_trace import edit, rewrite
from tiny_models import build, transformers_noise

from qevict_diag.errors import InputError, MetricError, TraceError
from qevict_diag.record import RecordOptions, record
from qevict_diag.texts.source import Source
from qevict_diag.trace.summary import summary
from qevict_diag.trace.trace import Trace
from qevict_diag.trace.writer import TraceWriter

pytestmark = transformers_noise
OPTIONS = RecordOptions(prefill=20, decode=5, prompt_queries=4, store_attention=True)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    out = tmp_path_factory.mktemp("trace")
    return record(build("gemma3"), None, [Source("one", tokens=tuple(range(3, 28)))], OPTIONS, out=out)[0]


@pytest.fixture
def copy(original, tmp_path):
    return shutil.copytree(original, tmp_path / "copy")


def test_shapes_and_names(original):
    trace = Trace.open(original)
    layer = trace.layer(1)
    assert trace.name == "one"
    assert trace.layers == (0, 1, 2, 3)
    assert trace.shape.length == 25
    assert trace.tokens.shape == (25,)
    assert layer.query.shape == (4, 5, 16)
    assert layer.key.shape == layer.value.shape == (2, 25, 16)
    assert layer.prompt_mass.shape == (4, 20)
    assert layer.prompt_query.shape == (4, 4, 16)
    assert layer.cos.shape == layer.sin.shape == (25, 16)
    assert layer.spec.rope == "rope1"
    assert trace.layer(0).spec.sliding_window == 8


def test_a_process_in_another_folder_finds_a_pickled_trace(copy, monkeypatch):
    monkeypatch.chdir(copy.parent)
    sent = pickle.dumps(Trace.open("copy"))
    monkeypatch.chdir("/")
    assert pickle.loads(sent).layer(0).query.shape == (4, 5, 16)


def test_safetensors_reads_what_we_write(original):
    trace = Trace.open(original)
    stored = safetensors.torch.load_file(original / "layer_002.safetensors")
    assert set(stored) == {"query", "key", "value", "prompt_mass", "prompt_query", "lse", "neg_log_attention"}
    for name in ("query", "key", "value", "prompt_mass", "prompt_query", "lse"):
        assert torch.equal(stored[name], getattr(trace.layer(2), name))


def test_opening_reads_the_manifest_only(copy):
    for path in copy.glob("*.safetensors"):
        path.unlink()
    trace = Trace.open(copy)
    with pytest.raises(TraceError, match=r"layer_000.safetensors cannot be opened \(No such file"):
        trace.layer(0)


def test_tensors_can_be_changed_without_touching_the_file(copy):
    before = (copy / "layer_000.safetensors").read_bytes()
    trace = Trace.open(copy)
    trace.layer(0).key.zero_()
    assert (copy / "layer_000.safetensors").read_bytes() == before


def test_whole_trace_verifies(original):
    Trace.open(original).verify()


def test_trace_moves(copy, tmp_path):
    moved = copy.rename(tmp_path / "elsewhere")
    Trace.open(moved).verify()


def test_missing_folder():
    with pytest.raises(TraceError, match="is no trace folder"):
        Trace.open("/no/such/folder")


def test_folder_without_manifest(tmp_path):
    with pytest.raises(TraceError, match=r"has no manifest.json"):
        Trace.open(tmp_path)


def test_layer_that_was_not_recorded(original):
    with pytest.raises(TraceError, match=r"layer 7 is not in .*; recorded are 0, 1, 2, 3"):
        Trace.open(original).layer(7)


@pytest.mark.parametrize("version", [2, 0, "1", None, 1.0, True])
def test_unknown_version_is_refused(copy, version):
    edit(copy, lambda manifest: manifest.update(version=version))
    with pytest.raises(TraceError, match="this program reads 1"):
        Trace.open(copy)


def test_changed_manifest_is_refused(copy):
    path = copy / "manifest.json"
    path.write_text(path.read_text().replace('"prefill": 20', '"prefill": 21'))
    with pytest.raises(TraceError, match="it was changed after it was written"):
        Trace.open(copy)


def test_manifest_without_checksum_is_read(copy):
    content = json.loads((copy / "manifest.json").read_text())
    del content["checksum"]
    (copy / "manifest.json").write_text(json.dumps(content))
    Trace.open(copy).verify()


def test_unknown_entries_are_ignored(copy):
    edit(copy, lambda manifest: (manifest.update(novelty=1), manifest["attention"][0].update(news=[2])))
    Trace.open(copy).verify()


WRONG_MANIFESTS = {
    "format": lambda m: m.update(format="zip"),
    "no shape": lambda m: m.pop("shape"),
    "shape of strings": lambda m: m["shape"].update(heads="4"),
    "no heads": lambda m: m["shape"].update(heads=0),
    "negative": lambda m: m["shape"].update(prefill=-20),
    "true heads": lambda m: m["shape"].update(kv_heads=True),
    "huge": lambda m: m["shape"].update(prefill=1 << 40),
    "ungrouped": lambda m: m["shape"].update(heads=3),
    "no attention": lambda m: m.update(attention=[]),
    "attention object": lambda m: m.update(attention={}),
    "layer twice": lambda m: m["attention"][1].update(layer=0),
    "layer outside": lambda m: m["attention"][1].update(layer=4),
    "scaling": lambda m: m["attention"][0].update(scaling="0.25"),
    "scaling 0": lambda m: m["attention"][0].update(scaling=0),
    "scaling below 0": lambda m: m["attention"][0].update(scaling=-0.25),
    "scaling absurd": lambda m: m["attention"][0].update(scaling=1e308),
    "window": lambda m: m["attention"][0].update(sliding_window=0),
    "softcap": lambda m: m["attention"][0].update(softcap=-5.0),
    "softcap beyond float32": lambda m: m["attention"][0].update(softcap=1e39),
    "softcap absurd": lambda m: m["attention"][0].update(softcap=1e300),
    "sinks absurd": lambda m: m["attention"][0].update(sink_logits=[0.0, 0.0, 0.0, 1e308]),
    "sinks": lambda m: m["attention"][0].update(sink_logits=[1.0]),
    "sink text": lambda m: m["attention"][0].update(sink_logits=["a"] * 4),
    "keys of no layer": lambda m: m["attention"][1].update(kv_of=9),
    "keys of itself": lambda m: m["attention"][1].update(kv_of=1),
    "keys of a sharer": lambda m: (m["attention"][1].update(kv_of=0), m["attention"][0].update(kv_of=1)),
    "shared widths": lambda m: m["attention"][1].update(kv_of=0, kv_heads=1),
    "head numbers": lambda m: m["attention"][0].update(head_numbers=[0, 1]),
    "head numbers order": lambda m: m["attention"][0].update(head_numbers=[0, 2, 1, 3]),
    "head numbers too large": lambda m: [e.update(head_numbers=[0, 1, 2, 1 << 16]) for e in m["attention"]],
    "heads too many": lambda m: m["shape"].update(heads=1 << 17),
    "style": lambda m: m["attention"][0].update(rope_style="spiral"),
    "rope path": lambda m: m["attention"][0].update(rope="../x"),
    "rotary width": lambda m: m["attention"][0].update(rotary_dim=18),
    "odd width": lambda m: m["attention"][0].update(rotary_dim=7),
    "file outside": lambda m: m["files"].update({"../../etc/passwd": m["files"]["tokens.safetensors"]}),
    "no files": lambda m: m.pop("files"),
    "layer file": lambda m: m["files"].pop("layer_001.safetensors"),
    "file of no layer": lambda m: m["files"].update({"layer_007.safetensors": m["files"]["layer_001.safetensors"]}),
    "file of a layer twice": lambda m: m["files"].update({"layer_0000.safetensors": m["files"]["tokens.safetensors"]}),
    "model a list": lambda m: m.update(model=["x"]),
    "model id a number": lambda m: m["model"].update(id=5),
    "model id half a character": lambda m: m["model"].update(id="a\ud83d"),
    "source a list": lambda m: m.update(source=[1]),
    "source text": lambda m: m.update(source="x"),
    "source name a list": lambda m: m["source"].update(name=["x"]),
    "4-grams text": lambda m: m["source"].update(distinct_4grams="0.5"),
    "redacted 1": lambda m: m["source"].update(redacted=1),
    "recorder a list": lambda m: m.update(recorder=[]),
    "options text": lambda m: m["recorder"].update(options="all"),
    "column sums text": lambda m: m["recorder"].update(column_sums={"relative_error": "0.1"}),
    "software text": lambda m: m.update(software="torch"),
    "created a number": lambda m: m.update(created=2026),
    "sha": lambda m: m["files"]["tokens.safetensors"].update(sha256="0"),
    "bytes": lambda m: m["files"]["tokens.safetensors"].update(bytes=-1),
    "crc": lambda m: m["files"]["tokens.safetensors"]["tensors"].update(token_ids=-1),
}


@pytest.mark.parametrize("change", WRONG_MANIFESTS.values(), ids=WRONG_MANIFESTS)
def test_wrong_manifest_is_refused_on_opening(copy, change):
    edit(copy, change)
    with pytest.raises(TraceError):
        Trace.open(copy)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"a": 1, "a": 2}', '{"format": NaN}', "[" * 100_000, '{"version": 1e999}', "\xff"]
)
def test_manifest_that_is_no_json_object(copy, text):
    (copy / "manifest.json").write_text(text, encoding="latin1")
    with pytest.raises(TraceError):
        Trace.open(copy)


def test_enormous_manifest_is_refused(copy):
    with (copy / "manifest.json").open("r+b") as file:
        file.truncate(1 << 40)  # sparse
    with pytest.raises(TraceError, match="no trace needs that many"):
        Trace.open(copy)


def test_declared_sizes_do_not_allocate(copy):
    """A manifest and a header that agree on an absurd size meet the file's real size first."""
    edit(
        copy, lambda m: (m["shape"].update(prefill=1 << 30), m["files"]["layer_000.safetensors"].update(bytes=1 << 50))
    )
    with pytest.raises(TraceError, match="the manifest says"):
        Trace.open(copy).layer(0)


def test_links_are_not_followed(copy, tmp_path):
    secret = (copy / "layer_000.safetensors").rename(tmp_path / "secret")
    (copy / "layer_000.safetensors").symlink_to(secret)
    with pytest.raises(TraceError, match="cannot be opened"):
        Trace.open(copy).layer(0)


def test_pipes_are_refused_without_waiting(copy):
    (copy / "layer_000.safetensors").unlink()
    os.mkfifo(copy / "layer_000.safetensors")
    with pytest.raises(TraceError, match="not a regular file"):
        Trace.open(copy).layer(0)


def test_flipped_bit_is_found_when_the_tensor_is_read(copy):
    path = copy / "layer_001.safetensors"
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    with pytest.raises(TraceError, match=r"layer_001.safetensors has a wrong checksum in tensor neg_log_attention"):
        Trace.open(copy).layer_file(1).read("neg_log_attention")
    with pytest.raises(TraceError, match="SHA-256"):
        Trace.open(copy).verify()


def test_swapped_layers_are_found(copy):
    one, two = (copy / f"layer_00{i}.safetensors" for i in (1, 2))
    data = one.read_bytes(), two.read_bytes()
    one.write_bytes(data[1])
    two.write_bytes(data[0])
    with pytest.raises(TraceError, match="wrong checksum"):
        Trace.open(copy).layer(1)


@pytest.mark.parametrize("length", range(0, 400, 7))
def test_truncated_file_is_refused(copy, length):
    """Even when the manifest agrees with the truncated size."""
    path = copy / "layer_000.safetensors"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(TraceError, match="the manifest says"):
        Trace.open(copy).layer(0)
    edit(copy, lambda m: m["files"]["layer_000.safetensors"].update(bytes=max(length, 8)))
    with pytest.raises(TraceError):
        Trace.open(copy).layer(0)


def test_shape_that_differs_from_the_manifest_is_refused(copy):
    rewrite(copy, "layer_000.safetensors", lambda t: t.update(key=t["key"][:, :24].contiguous()))
    with pytest.raises(TraceError, match=r"has key of shape \[2, 24, 16\], the manifest implies \[2, 25, 16\]"):
        Trace.open(copy).layer(0)


def test_dtype_that_does_not_belong_is_refused(copy):
    rewrite(copy, "layer_000.safetensors", lambda t: t.update(key=t["key"].to(torch.int64)))
    with pytest.raises(TraceError, match=r"type torch.int64 where torch.float32 belongs"):
        Trace.open(copy).layer(0)


def test_verify_finds_tokens_outside_the_vocabulary(copy):
    rewrite(copy, "tokens.safetensors", lambda t: t["token_ids"][3].fill_(128))
    with pytest.raises(TraceError, match="outside the vocabulary"):
        Trace.open(copy).verify()


def test_verify_finds_strangers(copy):
    (copy / "notes.txt").write_text("hello")
    with pytest.raises(TraceError, match=r"disagree about notes.txt"):
        Trace.open(copy).verify()


def test_unidentified_rotary_embedding_is_refused_where_it_matters(original):
    layer = Trace.open(original).layer(0)
    unknown = replace(layer, spec=replace(layer.spec, rope="unknown", rope_style=None), cos=None, sin=None)
    assert torch.equal(unknown.attention(), layer.attention())
    with pytest.raises(MetricError, match="did not identify"):
        unknown.key_pre_rope()
    with pytest.raises(MetricError, match="did not identify"):
        unknown.rotate(layer.key)


def test_summary_tells_what_was_recorded(original):
    facts = summary(Trace.open(original))
    assert facts["architecture"] == "Gemma3ForCausalLM"
    assert facts["recorded_layers"] == "4 of 4"
    assert facts["options"]["prefill"] == 20
    assert facts["first_tokens"] == list(range(3, 11))
    assert len(facts["layers"]) == 4
    for row in facts["layers"]:
        assert 0 <= row["first_5"] <= 1.0001
        assert 0.99 < row["last_32"] < 1.0001  # 25 positions: all of them
    json.dumps(facts, allow_nan=False)


def write(target, *steps):
    """A writer at ``target`` that goes through ``steps``."""
    with TraceWriter(target) as writer:
        for step in steps:
            step(writer)


def tokens(writer):
    writer.write_tokens(torch.arange(3))


def layer_zero(writer):
    writer.write_layer(0, {"key": torch.zeros(3)})


def publish(writer):
    writer.publish({})


def interrupt(writer):
    raise KeyboardInterrupt


def names(folder):
    return sorted(path.name.split("-")[0] for path in folder.iterdir())


def test_writer_leaves_nothing_when_it_is_interrupted(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "x", tokens, interrupt)
    assert names(tmp_path) == []


def test_writer_refuses_what_exists(tmp_path):
    (tmp_path / "x").symlink_to("nowhere")
    with pytest.raises(InputError, match="exists already"):
        write(tmp_path / "x", tokens)


def test_writer_refuses_a_parent_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="choose another --out"):
        write(tmp_path / "file" / "x", tokens)


def test_target_that_appears_meanwhile_is_not_overwritten(tmp_path):
    with pytest.raises(InputError, match="exists already"):
        write(tmp_path / "x", tokens, lambda writer: (tmp_path / "x").mkdir(), publish)
    assert names(tmp_path) == ["x"]
    assert names(tmp_path / "x") == []


def test_leftovers_of_killed_recordings_are_removed_and_running_ones_are_not(tmp_path):
    (tmp_path / ".x.partial-dead").mkdir()
    (tmp_path / ".y.partial-dead").mkdir()
    seen = []
    write(tmp_path / "x", lambda one: write(tmp_path / "x", lambda other: seen.append(names(tmp_path)), publish))
    assert seen == [[".x.partial", ".x.partial", ".y.partial"]]
    assert names(tmp_path) == [".y.partial", "x"]


@pytest.mark.parametrize("failing", [layer_zero, publish])
def test_full_disk_is_one_line_and_leaves_nothing(tmp_path, monkeypatch, failing):
    def full(*args):
        raise OSError(28, "No space left on device")

    with pytest.raises(TraceError, match=r"No space left on device.*make room"):
        write(tmp_path / "x", tokens, lambda writer: monkeypatch.setattr(os, "fsync", full), failing)
    assert names(tmp_path) == []


def test_a_file_changed_after_it_was_read_changes_no_number(copy):
    trace = Trace.open(copy)
    layer = trace.layer(1)
    before = {name: getattr(layer, name).clone() for name in ("query", "key", "value", "prompt_mass", "lse", "cos")}
    for path in copy.glob("*.safetensors"):
        with path.open("r+b") as file:
            file.seek(path.stat().st_size // 2)
            file.write(b"\xff" * 100)
        os.truncate(path, path.stat().st_size // 2 + 50)  # a map of the file would end this process with SIGBUS
    assert all(torch.equal(getattr(layer, name), tensor) for name, tensor in before.items())


@pytest.mark.parametrize("change", ["overwritten", "cut", "removed"])
def test_a_file_changed_between_opening_and_reading_is_an_error(copy, change):
    path = copy / "layer_001.safetensors"
    file = Trace.open(copy).layer_file(1)
    file.read("query")
    if change == "overwritten":
        with path.open("r+b") as writer:
            writer.seek(path.stat().st_size - 200)
            writer.write(b"\xff" * 200)
    elif change == "cut":
        os.truncate(path, path.stat().st_size - 200)
    else:
        path.unlink()
    told = {"overwritten": "wrong checksum", "cut": "the manifest says", "removed": "cannot be opened"}[change]
    with pytest.raises(TraceError, match=rf"layer_001\.safetensors .*{told}"):
        file.read("neg_log_attention")
    assert file.read("query").shape == (4, 5, 16)


def test_a_file_cut_while_it_is_read_is_an_error(copy, monkeypatch):
    file, path = Trace.open(copy).layer_file(1), copy / "layer_001.safetensors"
    before = path.stat()
    os.truncate(path, 1000)
    monkeypatch.setattr(os, "fstat", lambda descriptor: before)  # as if it were cut a moment later
    with pytest.raises(TraceError, match=r"layer_001\.safetensors was cut while it was read"):
        file.read("lse")


def test_a_trace_of_many_layers_opens_in_linear_time(copy):
    """Eight times the layers take about eight times as long, and not sixty-four."""

    def seconds(layers):
        def widen(manifest):
            entry, file = manifest["attention"][0], manifest["files"]["layer_000.safetensors"]
            manifest["shape"]["layers"] = layers
            manifest["attention"] = [{**entry, "layer": number} for number in range(layers)]
            manifest["files"] |= {f"layer_{number:03d}.safetensors": file for number in range(layers)}

        edit(copy, widen)
        started = time.process_time()
        trace = Trace.open(copy)
        assert len({trace.layer_shape(number) for number in trace.layers}) == 1
        return time.process_time() - started

    few, many = (min(seconds(layers) for _ in range(3)) for layers in (1000, 8000))
    assert many < 24 * few


def test_a_glance_at_rows_that_are_no_attention_is_an_error(copy):
    """Loading looks at a few rows only, so NaN in another one would go into `inspect --json`, which is JSON."""
    rewrite(copy, "layer_001.safetensors", lambda tensors: tensors["lse"][0, 1].fill_(float("nan")))
    trace = Trace.open(copy)
    trace.layer(1)
    with pytest.raises(TraceError, match="layer 1: decode rows hold NaN or infinity"):
        summary(trace)


def test_the_writer_needs_no_locks(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    write(tmp_path / "x", tokens, publish)
    assert names(tmp_path) == ["x"]


def test_a_trace_has_the_permissions_that_the_umask_leaves(tmp_path):
    before = os.umask(0o077)
    try:
        write(tmp_path / "x", tokens, publish)
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "x", *(tmp_path / "x").iterdir())] == [
        0o700, 0o600, 0o600
    ]  # fmt: skip
