"""Who a model is: its weights, its config, its precision and an adapter's base; not the path it was loaded by."""

import json
import os
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import build, transformers_noise

from qevict_diag.analyses.reproduction import Request, Setting, record_missing
from qevict_diag.errors import InputError
from qevict_diag.measure.models import model_names, one_model
from qevict_diag.measure.traces import measure
from qevict_diag.models.fingerprint import fingerprint
from qevict_diag.models.identity import difference, same_model
from qevict_diag.models.load import load
from qevict_diag.models.state import state_sha256
from qevict_diag.progress import silent
from qevict_diag.record import RecordOptions, record
from qevict_diag.replay.settings import Settings
from qevict_diag.sweep.compute import compute
from qevict_diag.sweep.grid import Options, Sweep
from qevict_diag.sweep.tasks import tasks
from qevict_diag.texts.source import Source
from qevict_diag.trace.find import copies
from qevict_diag.trace.trace import Trace

pytestmark = transformers_noise

LENGTHS = RecordOptions(prefill=160, decode=40, continuation="teacher")


def text(seed=1):
    return Source("ids", tokens=tuple(seed * token % 127 for token in range(3, 240)))


IDS = text()


def saved(folder, seed=0, **changes):
    build("llama", seed=seed, **changes).save_pretrained(folder)
    return folder


def traced(name, out, source=IDS, **options):
    """A trace of the model called ``name``."""
    loaded = load(str(name), **options)
    (path,) = record(loaded.model, None, [source], LENGTHS, out=out, identity=loaded.identity)
    return Trace.open(path)


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """One model under two spellings, its name with other weights, and itself in half precision."""
    home = tmp_path_factory.mktemp("identity")
    before = os.getcwd()
    os.chdir(home)
    try:
        saved("m")
        found = {
            "m": traced("m", home / "a"),
            "./m": traced("./m", home / "b", text(2)),
            "half": traced("m", home / "c", text(3), dtype="fp16"),
        }
        saved("m", seed=1)
        found["other"] = traced("m", home / "d", text(4))
    finally:
        os.chdir(before)
    return found


def test_two_spellings_of_a_path_are_one_model(traces):
    one_model([traces["m"], traces["./m"]])
    assert model_names([traces["./m"], traces["m"]]) == ["./m", "./m"]


@pytest.mark.parametrize(("other", "word"), [("other", "weights"), ("half", "dtypes float32 and float16")])
def test_one_path_is_two_models_when_weights_or_precision_differ(traces, other, word):
    with pytest.raises(InputError, match=rf"traces of 2 models \(m, m \(2\); the first two differ in {word}"):
        one_model([traces["m"], traces[other]])


@pytest.fixture
def named(traces, tmp_path):
    """Copies of traces under names of their own, as articles have them."""

    def copies(*keys):
        for number, key in enumerate(keys):
            shutil.copytree(traces[key].path, tmp_path / f"article-{number}", dirs_exist_ok=True)
        return [Trace.open(tmp_path / f"article-{number}") for number in range(len(keys))]

    return copies


def test_rows_name_the_model_that_was_measured(named):
    rows = measure(named("m", "./m", "other"), ["R1"], ["churn"], Settings()).frame
    found = rows.select("trace", "model").unique().sort("trace")["model"].to_list()
    assert found == ["m", "m", "m (2)"]


def test_a_sweep_names_models_as_a_measurement_does(named):
    opened = named("m", "./m", "other")
    sweep = Sweep(tuple(str(trace.path) for trace in opened), ("R1",), options=Options(("churn",)))
    found = {task.trace: set(compute(task).measurements["model"]) for task in tasks(sweep, opened)}
    assert list(found.values()) == [{"m"}, {"m"}, {"m (2)"}]


def test_resume_takes_another_spelling_and_refuses_other_weights(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved("m")
    traced("m", tmp_path / "t")
    again = load("./m")
    (path,) = record(again.model, None, [IDS], LENGTHS, out=tmp_path / "t", identity=again.identity, resume=True)
    assert Trace.open(path).model_id == "m"
    saved("m", seed=1)
    other = load("m")
    with pytest.raises(InputError, match="from another text, model or options"):
        record(other.model, None, [IDS], LENGTHS, out=tmp_path / "t", identity=other.identity, resume=True)


def test_a_reproduction_refuses_traces_of_the_weights_that_were_there_before(tmp_path):
    short = Setting(24, 6, ())
    both = {"diagnostic": short, "promotion": short, "judged": (short, short)}
    texts = (IDS, replace(text(2), name="more"))
    request = Request(tmp_path / "out", str(saved(tmp_path / "m")), "teacher", sources=texts, **both)
    (opened,) = record_missing(request, silent).values()
    assert [trace.name for trace in opened] == ["ids", "more"]
    assert record_missing(replace(request, model=f"{tmp_path}/./m"), silent)  # another spelling
    saved(tmp_path / "m", seed=1)
    with pytest.raises(
        InputError, match=r"was recorded from another model \(weights .{8} and .{8}\); give another --out"
    ):
        record_missing(request, silent)


def test_a_reproduction_asks_for_positions_before_it_records(tmp_path):
    build("gpt2").save_pretrained(tmp_path / "m")
    few, many = Setting(24, 6, ()), Setting(24, 600, ())
    long = (Source("long", tokens=tuple(number % 128 for number in range(700))),)
    settings = {"diagnostic": few, "promotion": many, "judged": (few, many)}
    request = Request(tmp_path / "out", str(tmp_path / "m"), "teacher", sources=long, **settings)
    with pytest.raises(InputError, match="need 624 positions, GPT2LMHeadModel has 256"):
        record_missing(request, silent)
    assert not (tmp_path / "out").exists()


def test_what_a_config_computes_belongs_to_the_model(tmp_path):
    """Not who wrote it, nor in which precision."""
    folder = saved(tmp_path / "m")
    before = fingerprint(str(folder))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"transformers_version": "9", "dtype": "float16"}))
    assert fingerprint(str(folder)) == before
    (folder / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 1e-3}))
    assert fingerprint(str(folder))["weights_sha256"] == before["weights_sha256"]
    assert "configs" in difference(fingerprint(str(folder)), before)


def test_a_trainers_files_do_not_belong_to_the_model(tmp_path):
    folder = saved(tmp_path / "m")
    before = fingerprint(str(folder))
    (folder / "training_args.bin").write_bytes(b"anything")
    assert fingerprint(str(folder)) == before


def test_an_adapters_base_belongs_to_it(tmp_path):
    base, adapter = saved(tmp_path / "base"), tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(base), "r": 4}))
    weights = load_file(base / "model.safetensors")
    save_file(dict(list(weights.items())[:1]), adapter / "adapter_model.safetensors")
    before = fingerprint(str(adapter))
    saved(base, seed=1)
    after = fingerprint(str(adapter))
    assert after["weights_sha256"] != before["weights_sha256"]
    assert after["config_sha256"] == before["config_sha256"]


def test_models_in_memory_are_told_apart_by_what_they_compute(tmp_path):
    """By their weights and config: nobody said what they are called, so all of them are called by their class."""
    made = {"m": {}, "again": {}, "seed": {"seed": 1}, "base": {"rope_parameters": {"rope_theta": 5e5}}}
    traces = {}
    for number, (name, changes) in enumerate(made.items()):
        (path,) = record(build("llama", **changes), None, [text(number + 1)], LENGTHS, out=tmp_path / name)
        traces[name] = Trace.open(path)
    one_model([traces["m"], traces["again"]])
    for other in ("seed", "base"):
        with pytest.raises(InputError, match="the first two differ in weights"):
            one_model([traces["m"], traces[other]])


def test_other_models_in_memory_on_one_text_are_no_copies(tmp_path):
    found = [record(build("llama", seed=seed), None, [IDS], LENGTHS, out=tmp_path / str(seed))[0] for seed in (0, 1)]
    assert copies(map(Trace.open, found)) == {}


def test_one_weight_changed_by_one_bit_is_another_state():
    model = build("llama")
    before = state_sha256(model)
    assert state_sha256(build("llama")) == before
    with torch.no_grad():
        model.lm_head.weight[-1, -1] = torch.nextafter(model.lm_head.weight[-1, -1], torch.tensor(9.0))
    assert state_sha256(model) not in (None, before)
    assert state_sha256(model.to("meta")) is None


def test_what_only_one_knows_is_not_compared():
    known = {"id": "m", "weights_sha256": "a" * 64, "dtype": "float32", "revision": None}
    assert same_model(known, {"id": "m"})
    assert same_model(known, known | {"id": "elsewhere/m", "config_sha256": "b" * 64})
    assert not same_model(known, {"id": "n"})
    assert not same_model(known | {"revision": "1", "weights_sha256": None}, {"id": "m", "revision": "2"})


def test_a_model_that_is_not_here_has_no_fingerprint(tmp_path, monkeypatch):
    monkeypatch.setenv("QEVICT_DIAG_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert [fingerprint(name) for name in ("smollm2-135m", "gone.gguf", "nobody/none")] == [{}, {}, {}]
