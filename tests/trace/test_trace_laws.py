"""A trace whose checksums are in order but whose numbers cannot be attention is refused: by loading, or by `verify`."""

import shutil

import pytest
import torch
from edit_trace import edit, rewrite
from tiny_models import build, transformers_noise

from qevict_diag.attention.sums import column_sums
from qevict_diag.errors import TraceError
from qevict_diag.record import RecordOptions, record
from qevict_diag.texts.source import Source
from qevict_diag.trace.trace import Trace

pytestmark = transformers_noise
NAN, INFINITY = float("nan"), float("inf")
OPTIONS = RecordOptions(prefill=20, decode=5, prompt_queries=4, store_attention=True)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    out = tmp_path_factory.mktemp("trace")
    return record(build("gemma3"), None, [Source("one", tokens=tuple(range(3, 28)))], OPTIONS, out=out)[0]


@pytest.fixture
def copy(original, tmp_path):
    return shutil.copytree(original, tmp_path / "copy")


# layers 1 and 3 of the model see everything, 0 and 2 the last eight positions


def huge(tensors):
    tensors["query"].fill_(1e30)
    tensors["key"].fill_(1e30)


def shift(name, by):
    return lambda tensors: tensors.update({name: tensors[name].roll(by, -1).contiguous()})


AT_LOAD = {
    "mass NaN": (lambda t: t["prompt_mass"].view(-1)[3].fill_(NAN), "column sums hold NaN"),
    "mass infinite": (lambda t: t["prompt_mass"].view(-1)[3].fill_(INFINITY), "column sums"),
    "mass absurd": (lambda t: t["prompt_mass"].view(-1)[3].fill_(1e9), "do not add up to 20 per head"),
    "mass larger": (lambda t: t["prompt_mass"].mul_(1.01), "do not add up to 20 per head"),
    "mass smaller": (lambda t: t["prompt_mass"].mul_(0.99), "do not add up to 20 per head"),
    "mass below 0": (lambda t: (t["prompt_mass"][0, 0].sub_(9), t["prompt_mass"][0, 1].add_(9)), "less than 0"),
    "lse": (lambda t: t["lse"].add_(1), "lse disagrees"),
    "lse of one row": (lambda t: t["lse"][0, 2].add_(0.01), "lse disagrees"),
    "lse NaN": (lambda t: t["lse"].fill_(NAN), "lse disagrees"),
    "lse infinite": (lambda t: t["lse"].fill_(INFINITY), "lse disagrees"),
    "query": (lambda t: t["query"][0, 2].neg_(), "lse disagrees"),
    "key": (lambda t: t["key"][0].mul_(1.1), "lse disagrees"),
    "key infinite": (lambda t: t["key"].view(-1)[5].fill_(INFINITY), "key holds NaN or infinity"),
    "queries and keys that overflow": (huge, "lse disagrees"),
}
IN_FULL = {
    "lse between the rows that loading looks at": (lambda t: t["lse"][0, 1].add_(0.01), "lse disagrees"),
    "query between them": (lambda t: t["query"][0, 3].neg_(), "lse disagrees"),
    "value NaN": (lambda t: t["value"].view(-1)[5].fill_(NAN), "value holds NaN or infinity"),
    "prompt query NaN": (lambda t: t["prompt_query"].view(-1)[5].fill_(NAN), "prompt_query holds NaN"),
    "mass backwards": (lambda t: t.update(prompt_mass=t["prompt_mass"].flip(-1).contiguous()), "prompt queries"),
    "mass moved by one": (shift("prompt_mass", 1), "prompt queries disagree"),
    "mass of another head": (lambda t: t.update(prompt_mass=t["prompt_mass"].roll(1, 0)), "prompt queries disagree"),
    "mass moved between the last positions": (
        lambda t: (t["prompt_mass"][0, -1].sub_(0.01), t["prompt_mass"][0, -2].add_(0.01)),
        "prompt queries disagree",
    ),
    "mass taken from an early position": (
        lambda t: (t["prompt_mass"][0, 1].add_(t["prompt_mass"][0, 2]), t["prompt_mass"][0, 2].zero_()),
        "prompt queries disagree",
    ),
    "prompt queries random": (lambda t: t["prompt_query"].normal_(), "prompt queries disagree"),
    "prompt queries in another order": (
        lambda t: t.update(prompt_query=t["prompt_query"].flip(1).contiguous()),
        "prompt queries disagree",
    ),
    "stored rows": (lambda t: t["neg_log_attention"].fill_(3), "stored decode rows disagree"),
}


@pytest.mark.parametrize(("change", "message"), AT_LOAD.values(), ids=AT_LOAD)
def test_loading_refuses_numbers_that_break_a_law_at_first_sight(copy, change, message):
    rewrite(copy, "layer_001.safetensors", change)
    trace = Trace.open(copy)
    assert trace.layer_file(1).read("key").shape == (2, 25, 16)  # checksums are in order
    for ask in (lambda: trace.layer(1), trace.verify):
        with pytest.raises(TraceError, match=f"copy: layer 1: .*{message}"):
            ask()


@pytest.mark.parametrize(("change", "message"), IN_FULL.values(), ids=IN_FULL)
def test_verify_finds_numbers_that_break_a_law(copy, change, message):
    rewrite(copy, "layer_001.safetensors", change)
    trace = Trace.open(copy)
    trace.layer(1)
    with pytest.raises(TraceError, match=f"copy: layer 1: .*{message}"):
        trace.verify()


SPECS = {
    "scaling doubled": lambda m: m["attention"][1].update(scaling=2 * m["attention"][1]["scaling"]),
    "scaling tiny": lambda m: m["attention"][1].update(scaling=1e-300),
    "another window": lambda m: m["attention"][1].update(sliding_window=7),
    "a softcap": lambda m: m["attention"][1].update(softcap=0.5),
    "sink logits": lambda m: m["attention"][1].update(sink_logits=[1.0] * 4),
    "prompt queries that are not the last": lambda m: m["prompt_queries"].update(first=10),
}


@pytest.mark.parametrize("change", SPECS.values(), ids=SPECS)
def test_loading_refuses_a_layer_that_attends_otherwise_than_its_numbers_say(copy, change):
    edit(copy, change)
    with pytest.raises(
        TraceError, match=r"layer 1: (lse disagrees|the stored prompt queries are not the prompt's last)"
    ):
        Trace.open(copy).layer(1)


def test_a_layer_that_shares_keys_has_none_of_its_own(copy):
    edit(copy, lambda m: m["attention"][3].update(kv_of=1))
    with pytest.raises(TraceError, match="layer 3 holds keys beside those it shares"):
        Trace.open(copy).layer(3)


TABLES = {
    "zero": lambda t: (t["cos.rope1"].zero_(), t["sin.rope1"].zero_()),
    "times 1e18": lambda t: (t["cos.rope1"].mul_(1e18), t["sin.rope1"].mul_(1e18)),
    "times 0.04": lambda t: (t["cos.rope1"].mul_(0.04), t["sin.rope1"].mul_(0.04)),
    "NaN": lambda t: t["cos.rope1"].view(-1)[7].fill_(NAN),
    "infinite": lambda t: t["sin.rope1"].view(-1)[7].fill_(INFINITY),
    "sine alone": lambda t: t["sin.rope1"].mul_(2),
    "one channel": lambda t: t["cos.rope1"][:, 3].mul_(1.5),
}


@pytest.mark.parametrize("change", TABLES.values(), ids=TABLES)
def test_loading_refuses_tables_that_are_no_rotation(copy, change):
    rewrite(copy, "rope.safetensors", change)
    with pytest.raises(TraceError, match="layer 1: its rotary tables are no rotation"):
        Trace.open(copy).layer(1)


def test_an_attention_factor_near_1_is_a_rotation(copy):
    """YaRN and LongRoPE multiply their tables, by up to 1.4 in released models; dtypes round them."""
    factor = lambda table: (1.4 * table).bfloat16().float()  # noqa: E731
    rewrite(copy, "rope.safetensors", lambda t: t.update({name: factor(table) for name, table in t.items()}))
    Trace.open(copy).layer(1)


def test_honest_prompt_queries_agree_to_rounding(original):
    """On the last positions, which only they see, the stored prompt queries give the recorded column sums."""
    trace = Trace.open(original)
    for number in trace.layers:
        layer = trace.layer(number)
        seen = column_sums(layer.prompt_query, layer.key[:, :20], layer.spec, 16)
        assert float((seen - layer.prompt_mass)[:, 16:].abs().max()) < 1e-6


@pytest.mark.parametrize("kind", ["half", "bfloat16"])
@pytest.mark.parametrize("stored", [None, "bfloat16"])
def test_honest_traces_of_low_precision_keep_the_laws(tmp_path, kind, stored):
    model = getattr(build("llama"), kind)()
    options = RecordOptions(prefill=40, decode=8, dtype=stored)
    record(model, None, [Source("one", tokens=tuple(range(3, 60)))], options, out=tmp_path)
    Trace.open(tmp_path / "one").verify()


@pytest.mark.parametrize("probes", [None, 0.25])
def test_estimated_column_sums_are_not_held_against_the_prompt_queries(tmp_path, probes):
    options = RecordOptions(prefill=40, decode=8, probes=probes)
    record(build("llama"), None, [Source("one", tokens=tuple(range(3, 60)))], options, out=tmp_path)
    trace = Trace.open(tmp_path / "one")
    trace.verify()
    layer = trace.layer(1)
    agrees = torch.allclose(column_sums(layer.prompt_query, layer.key[:, :40], layer.spec, 0), layer.prompt_mass)
    assert agrees is (probes is None)
