"""Traces to polars, parquet and xarray, and rows from elsewhere."""

from fractions import Fraction

import polars as pl
import pytest
import torch
from safetensors.torch import save_file
from tiny_models import build, transformers_noise

from qevict_diag.cache.budget import Budget
from qevict_diag.errors import InputError, MetricError, TraceError
from qevict_diag.measure.traces import measure
from qevict_diag.record import RecordOptions, record
from qevict_diag.replay.settings import Settings
from qevict_diag.texts.source import Source
from qevict_diag.trace.export import attention_frame, export_parquet, mass_frame
from qevict_diag.trace.rows import import_rows
from qevict_diag.trace.trace import Trace

pytestmark = transformers_noise
OPTIONS = RecordOptions(prefill=20, decode=5, prompt_queries=4)


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    out = tmp_path_factory.mktemp("trace")
    return Trace.open(record(build("gemma3"), None, [Source("one", tokens=tuple(range(3, 28)))], OPTIONS, out=out)[0])


@pytest.fixture
def rows(trace, tmp_path):
    tensors = {f"attention.{n}": trace.layer(n).attention() for n in (1, 3)}
    tensors |= {f"prompt_mass.{n}": trace.layer(n).prompt_mass.clone() for n in (1, 3)}
    return tensors | {"token_ids": trace.tokens.clone()}, tmp_path / "rows.safetensors"


def test_attention_frame_holds_every_visible_probability(trace):
    frame, attention = trace.to_polars(0), trace.layer(0).attention()
    assert frame.columns == ["layer", "head", "step", "position", "attention"]
    assert len(frame) == int((attention > 0).sum()) == 4 * 5 * 8  # the window of layer 0
    row = frame.row(37, named=True)
    assert row["attention"] == float(attention[row["head"], row["step"], row["position"]])
    sums = frame.group_by("head", "step").agg(pl.col("attention").sum())["attention"]
    assert sums.to_list() == pytest.approx([1.0] * 20, abs=1e-5)


def test_parquet(trace, tmp_path):
    paths = export_parquet(trace, tmp_path / "out", layers=(1,))
    assert [path.name for path in paths] == ["prompt_mass.parquet", "layer_001.parquet"]
    assert pl.read_parquet(paths[1]).equals(attention_frame(trace, 1))
    mass = pl.read_parquet(paths[0])
    assert mass.equals(mass_frame(trace))
    assert mass["prompt_mass"].sum() == pytest.approx(4 * 4 * 20, rel=1e-5)
    with pytest.raises(InputError, match="a folder that does not exist yet"):
        export_parquet(trace, tmp_path / "out")


def test_xarray_has_named_axes(trace):
    pytest.importorskip("xarray")
    data = trace.to_xarray(layers=(1, 2))
    assert data["attention"].dims == ("layer", "head", "step", "position")
    found = data["attention"].sel(layer=2, position=7).values
    assert torch.equal(torch.from_numpy(found), trace.layer(2).attention()[..., 7])
    assert data.attrs["model"] == trace.model_id


def test_imported_rows_are_the_rows(trace, rows, tmp_path):
    tensors, path = rows
    save_file(tensors, path)
    imported = Trace.open(import_rows(path, tmp_path / "imported", model="elsewhere"))
    imported.verify()
    assert imported.layers == (1, 3)
    assert imported.model_id == "elsewhere"
    assert torch.equal(imported.tokens, trace.tokens)
    for number in imported.layers:
        layer = imported.layer(number)
        torch.testing.assert_close(layer.attention(), trace.layer(number).attention(), atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(layer.prompt_mass, trace.layer(number).prompt_mass, atol=1e-5, rtol=1e-5)
        with pytest.raises(MetricError, match="rows alone"):
            layer.key_pre_rope()


def test_imported_rows_measure_as_the_recorded_trace(tmp_path):
    """Two-tier policies need rows only, so they cannot tell where those come from; three tiers are refused."""
    source = Source("long", tokens=tuple(torch.randint(3, 128, (140,)).tolist()))
    options = RecordOptions(prefill=100, decode=40, continuation="teacher")
    recorded = Trace.open(record(build("llama"), None, [source], options, out=tmp_path)[0])
    tensors = {f"attention.{n}": recorded.layer(n).attention() for n in recorded.layers}
    tensors |= {f"prompt_mass.{n}": recorded.layer(n).prompt_mass.clone() for n in recorded.layers}
    save_file(tensors, tmp_path / "rows.safetensors")
    imported = Trace.open(import_rows(tmp_path / "rows.safetensors", tmp_path / "imported"))
    settings = Settings(Budget(ratio=Fraction(1, 2), sinks=3, recent=8))
    columns = ["policy", "metric", "layer", "head", "event", "group", "value"]
    one, other = (
        measure([trace], ["R1", "R2"], ["fmm", "churn", "mass_share", "lir"], settings).frame.select(columns)
        for trace in (recorded, imported)
    )
    assert one.drop("value").equals(other.drop("value"))
    assert one["value"].to_list() == pytest.approx(other["value"].to_list(), abs=1e-5, nan_ok=True)
    with pytest.raises(MetricError, match="rows alone"):
        measure([imported], ["R3"], ["fmm"], settings)


def test_imported_rows_without_tokens(rows, tmp_path):
    tensors, path = rows
    del tensors["token_ids"]
    save_file(tensors, path)
    imported = Trace.open(import_rows(path, tmp_path / "imported"))
    with pytest.raises(MetricError):
        _ = imported.tokens
    imported.verify()


WRONG_ROWS = {
    "future": (lambda t: t["attention.1"][0, 0, -1].fill_(0.001), "positions after the query"),
    "negative": (lambda t: t["attention.1"][0, 0, 0].sub_(1), "numbers below 0"),
    "NaN": (lambda t: t["attention.3"][0, 0, 0].fill_(float("nan")), "NaN"),
    "sums": (lambda t: t["attention.1"].mul_(0.9), "rows that do not add up to 1"),
    "mass": (lambda t: t["prompt_mass.1"].mul_(1.1), "prompt mass that does not add up to P"),
    "no mass": (lambda t: t.pop("prompt_mass.3"), r"layer 3 needs attention.3 \[H, G, T\] and prompt_mass.3"),
    "shape": (lambda t: t.update({"prompt_mass.1": torch.ones(4, 19)}), r"prompt_mass.1 is \[4, 19\]"),
    "no rows": (lambda t: [t.pop(name) for name in list(t) if name != "token_ids"], r"has no tensor attention.0"),
    "huge token": (lambda t: t["token_ids"].fill_(2**62), "from 0 to"),
    "tokens": (lambda t: t.update(token_ids=torch.zeros(3, dtype=torch.int64)), r"int64 \[25\] from 0 to"),
}


@pytest.mark.parametrize(("change", "message"), WRONG_ROWS.values(), ids=WRONG_ROWS)
def test_wrong_rows_are_refused_and_leave_nothing(rows, tmp_path, change, message):
    tensors, path = rows
    change(tensors)
    save_file(tensors, path)
    with pytest.raises(InputError, match=message):
        import_rows(path, tmp_path / "out" / "imported")
    assert not (tmp_path / "out").exists() or list((tmp_path / "out").iterdir()) == []


def test_file_that_is_no_safetensors(tmp_path):
    (tmp_path / "x").write_bytes(b"nothing")
    with pytest.raises(InputError, match="as safetensors"):
        import_rows(tmp_path / "x", tmp_path / "out")


def test_export_that_fails_leaves_nothing(trace, tmp_path):
    with pytest.raises(TraceError, match="layer 99 is not in"):
        export_parquet(trace, tmp_path / "out", layers=(1, 99))
    assert list(tmp_path.iterdir()) == []


def test_imported_layers_share_their_stand_ins(rows, tmp_path):
    tensors, path = rows
    save_file(tensors, path)
    imported = Trace.open(import_rows(path, tmp_path / "imported"))
    assert imported.specs[3].kv_of == 1
    assert "key" not in imported.layer_file(3)


@pytest.mark.parametrize("shape", [(2, 0, 5), (2, 5, 5), (0, 2, 5)])
def test_rows_without_queries_prompt_or_heads_are_refused(tmp_path, shape):
    heads, decode, length = shape
    tensors = {"attention.0": torch.zeros(shape), "prompt_mass.0": torch.zeros(heads, length - decode)}
    save_file(tensors, tmp_path / "rows")
    with pytest.raises(InputError, match="must be at least 1"):
        import_rows(tmp_path / "rows", tmp_path / "imported")
