"""What is said beside numbers that tell nothing: policies without windows, layers that see less than a budget holds."""

from dataclasses import replace

import pytest
from disk_traces import write_trace
from tiny_models import build
from typer.testing import CliRunner

from qevict_diag.cache.budget import Budget
from qevict_diag.cli.app import app
from qevict_diag.measure.notes import notes
from qevict_diag.policies.catalogue import policy
from qevict_diag.readings import Readings
from qevict_diag.record import RecordOptions, record
from qevict_diag.replay.settings import Settings
from qevict_diag.texts.source import Source
from qevict_diag.trace.trace import Trace

LENGTHS = {"layers": 4, "prefill": 60, "decode": 40}


def told(trace, budget, *names):
    settings = Settings(Budget(budget, sinks=2, recent=6), horizon=4)
    return list(notes([trace], [policy(name) for name in names], settings))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return Trace.open(write_trace(tmp_path_factory.mktemp("plain") / "a", **LENGTHS))


@pytest.mark.parametrize(("budget", "empty"), [("1/10", ["R2"]), ("15/100", ["R2"]), ("16/100", []), ("1/2", [])])
def test_a_policy_that_keeps_no_window_is_named(plain, budget, empty):
    """Of 100 tokens, 8 are sinks and recent ones; R2's windows have 8 tokens, R1's one."""
    assert [one.split()[0] for one in told(plain, budget, "R1", "R2")] == empty


def test_policies_that_set_aside_other_first_tokens_are_told(plain):
    """H2O protects no first token, R1 those of the budget: their shares are of different attention."""
    (found,) = told(plain, "1/2", "R1", "h2o")
    assert found.startswith("R1 (2), h2o (0) set aside different numbers of first tokens")
    alike = replace(Settings(Budget("1/2", sinks=2, recent=6), horizon=4), readings=Readings(fmm_denominator="sinks"))
    assert not list(notes([plain], [policy("R1"), policy("h2o")], alike))
    assert not told(plain, "1/2", "R1", "streaming_llm(sinks=2)")


def test_runs_that_continue_one_prompt_are_no_independent_articles(tmp_path):
    """Two draws from one prompt are two runs, of one text; another text, or another model, is another article."""
    sources = [Source(name, tokens=ids) for name, ids in (("one", tuple(range(3, 33))), ("other", tuple(range(4, 34))))]
    options = RecordOptions(prefill=30, decode=8, continuation="sample", temperature=9.0)
    paths = [
        *record(build("llama"), None, sources, options, out=tmp_path / "a"),
        *record(build("llama"), None, sources[:1], replace(options, seed=1), out=tmp_path / "b"),
        *record(build("qwen2"), None, sources[:1], options, out=tmp_path / "c"),
    ]
    found = list(notes([Trace.open(path) for path in paths], [], Settings(Budget("1/2", sinks=2, recent=6))))
    assert found == ["one, one continue one prompt: intervals take them for independent articles, which they are not"]


def sliding(trace, windows):
    specs = {layer: replace(spec, sliding_window=windows[layer]) for layer, spec in trace.specs.items()}
    return replace(trace, specs=specs)


@pytest.mark.parametrize(
    ("windows", "budget", "layers"),
    [
        ((None,) * 4, "1/2", None),
        ((50, 50, None, 50), "1/2", "layers 0-1, 3 look back 50 tokens and the budget holds 50"),
        ((51, 51, 51, 51), "1/2", None),
        ((8, None, 8, None), "1/5", "layers 0, 2 look back 8 tokens and the budget holds 20"),
        ((8, 8, 8, 8), "1", None),  # nothing has to go anywhere
    ],
)
def test_layers_that_see_no_more_than_the_budget_holds_are_named(plain, windows, budget, layers):
    found = told(sliding(plain, windows), budget, "R2")
    assert [one.split(":")[0] for one in found] == ([] if layers is None else [layers])


def test_commands_say_it_in_a_line(tmp_path):
    path = write_trace(tmp_path / "a", sliding_window=20, **LENGTHS)
    shared = (str(path), "--budget", "2/5", "--sinks", "2", "--recent", "6", "--horizon", "4", "--quiet")
    note = "note: layers 0-3 look back 20 tokens and the budget holds 40: nothing that they see has to go"
    for words in (("analyze", *shared, "--policy", "R1", "--metric", "fmm"), ("table", "15", *shared)):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        assert [line for line in done.stderr.splitlines() if line.startswith(note)]
