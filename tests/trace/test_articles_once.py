"""A text that is recorded twice, or copied, is one article wherever traces are counted."""

import json
import shutil
from dataclasses import replace

import pytest
from disk_traces import write_trace, write_traces
from tiny_models import build, transformers_noise
from typer.testing import CliRunner

from qevict_diag.cache.budget import Budget
from qevict_diag.cli.app import app
from qevict_diag.measure.traces import measure
from qevict_diag.record import RecordOptions, record
from qevict_diag.replay.settings import Settings
from qevict_diag.testing.traces import random_trace
from qevict_diag.texts.source import Source
from qevict_diag.trace.find import articles
from qevict_diag.trace.trace import Trace

pytestmark = transformers_noise
OPTIONS = RecordOptions(prefill=30, decode=8, prompt_queries=4)
ONE, OTHER = tuple(range(3, 50)), tuple(range(60, 110))
BUDGET = ("--budget", "1/2", "--sinks", 2, "--recent", 6)
SETTINGS = Settings(Budget("1/2", sinks=2, recent=6), horizon=4)


def recorded(out, *sources, seed=0, **changes):
    """Traces of sources, each of its own recording, so that none warns."""
    model = build("llama", seed=seed)
    made = [record(model, None, [source], replace(OPTIONS, **changes), out=out / source.name) for source in sources]
    return [Trace.open(paths[0]) for paths in made]


def named(name, tokens=ONE):
    return Source(name, tokens=tokens)


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def names(traces):
    return [trace.name for trace in traces]


def test_a_text_given_five_times_is_one_article(tmp_path):
    traces = recorded(tmp_path, *(named(f"row-{i}") for i in range(5)), named("other", OTHER))
    with pytest.warns(UserWarning, match=r"row-1 and 3 more hold the same .*row-0, so they"):
        assert names(articles(traces)) == ["row-0", "other"]
    with pytest.warns(UserWarning, match="so they are no further articles"):
        frame = measure(traces, ["R1"], ["fmm"], SETTINGS).frame
    assert set(frame["trace"]) == {"row-0", "other"}


def test_the_command_line_counts_it_once_and_verifies_each(tmp_path):
    one, two = recorded(tmp_path, named("a"), named("b"))
    done = run("analyze", one.path, two.path, "--policy", "R1", "--metric", "churn", *BUDGET, "--json")
    assert done.exit_code == 0, done.output
    assert f"left out: {two.path} holds the same recording as {one.path}" in done.stderr
    assert {row["method"] for row in json.loads(done.stdout)} == {"none: one article gives no interval"}
    assert run("verify", one.path, two.path).stdout.count("whole") == 2


def test_texts_that_end_otherwise_behind_the_prompt_are_one_article(tmp_path):
    """Only P tokens are recorded; what a text goes on with is not in the trace."""
    with pytest.warns(UserWarning, match="b holds the same recording as .*a, so"):
        assert names(articles(recorded(tmp_path, named("a"), named("b", (*ONE[:30], *OTHER))))) == ["a"]


def test_a_copy_under_another_name_is_one_article(tmp_path):
    first = write_trace(tmp_path / "a", 0)
    shutil.copytree(first, tmp_path / "b")
    with pytest.warns(UserWarning, match="b holds the same recording as .*a, so"):
        assert names(articles([Trace.open(first), Trace.open(tmp_path / "b")])) == ["a"]


@pytest.mark.parametrize("redacted", ["redact_text", "redact_keys"])
def test_redacted_traces_are_told_apart_by_their_numbers(tmp_path, redacted):
    traces = recorded(tmp_path, named("a"), named("b"), named("c", OTHER), **{redacted: True})
    with pytest.warns(UserWarning, match="b holds the same recording as .*a, so"):
        assert names(articles(traces)) == ["a", "c"]


def test_other_lengths_models_continuations_and_texts_are_other_runs(tmp_path):
    traces = [
        *recorded(tmp_path / "1", named("a"), named("b", OTHER)),
        *recorded(tmp_path / "2", named("longer"), decode=9),
        *recorded(tmp_path / "3", named("model"), seed=1),
        *recorded(tmp_path / "4", named("teacher"), continuation="teacher"),
        *recorded(tmp_path / "5", named("layers"), layers=(0, 1)),
        *recorded(tmp_path / "8", named("heads"), heads=(0, 1)),
        *recorded(tmp_path / "6", named("seed-1"), continuation="sample", seed=0, temperature=9.0),
        *(Trace.open(path) for path in write_traces(tmp_path / "7", 2)),
        random_trace(0),
    ]
    assert names(articles(traces)) == names(traces)


def test_traces_in_memory_are_taken_as_they_are():
    traces = [random_trace(0, name="a"), random_trace(0, name="b")]
    assert articles(traces) == traces
