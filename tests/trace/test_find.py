"""Which folders count as articles: every whole trace once, under its own name, and nothing else."""

import json
import os
import shutil

import pytest
from disk_traces import small_sweep, write_trace
from typer.testing import CliRunner

from qevict_diag.cli.app import app
from qevict_diag.errors import InputError, TraceError
from qevict_diag.sweep import run as run_sweep
from qevict_diag.trace.find import copies, find_traces
from qevict_diag.trace.trace import Trace

SHAPE = {"prefill": 60, "decode": 32}
ANALYZE = ("analyze", "--policy", "R2", "--metric", "fmm", "--horizon", 8, "--budget", "1/2", "--recent", 8, "--quiet")


@pytest.fixture
def traces(tmp_path):
    for seed, name in enumerate(("a", "b")):
        write_trace(tmp_path / "traces" / name, seed, **SHAPE)
    return tmp_path / "traces"


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def names(*paths):
    return [trace.name for trace in find_traces(paths)]


def test_a_folder_stands_for_the_traces_in_it(traces):
    assert names(traces) == names(traces / "a", traces / "b") == ["a", "b"]
    (traces / "notes").mkdir()
    assert names(traces) == ["a", "b"]
    with pytest.raises(TraceError, match="no trace given"):
        find_traces([])


@pytest.mark.parametrize("hidden", [".a.partial-ns32tzi1", ".a.partial-0f0f0f0f", ".backup"])
def test_hidden_folders_are_no_articles(traces, hidden):
    """A recording that is killed before its last rename leaves a whole trace under a hidden name."""
    shutil.copytree(traces / "a", traces / hidden)
    assert names(traces) == ["a", "b"]
    for command in (("verify", traces), (*ANALYZE, traces)):
        done = run(*command)
        assert (done.exit_code, hidden in done.output) == (0, False), done.output


def test_what_a_killed_recording_left_is_no_trace_even_by_name(traces):
    left = (traces / "a").rename(traces / ".a.partial-ns32tzi1")
    for door in (Trace.open, lambda path: find_traces([path])):
        with pytest.raises(TraceError, match="is what a killed recording left; record it again"):
            door(left)


def test_a_copy_is_told_and_is_no_further_article(traces):
    shutil.copytree(traces / "a", traces / "c")
    one = run(*ANALYZE, traces / "a", traces / "c", "--json")
    alone = run(*ANALYZE, traces / "a", "--json")
    assert one.stderr.splitlines()[0] == (
        f"left out: {traces / 'c'} holds the same recording as {traces / 'a'}, so it is no further article"
    )
    assert json.loads(one.stdout) == json.loads(alone.stdout)
    assert run("verify", traces / "a", traces / "c").exit_code == 0
    assert copies(find_traces([traces / "a", traces / "b"])) == {}


def test_a_sweep_refuses_a_copy(traces, tmp_path):
    shutil.copytree(traces / "a", traces / "c")
    with pytest.raises(InputError, match=r"c holds the same recording as .*a; leave one out"):
        run_sweep(small_sweep((str(traces / "a"), str(traces / "c"))), tmp_path / "sweep")


def test_two_names_that_are_no_text_do_not_become_one(traces):
    """A name of other bytes than UTF-8 would turn into the same replacement character in every frame."""
    for number, name in enumerate((b"caf\xe9", b"caf\xe8"), 5):
        written = write_trace(traces / str(number), number, **SHAPE)
        os.rename(written, os.path.join(os.fsencode(traces), name))
    for command in ((*ANALYZE, traces), ("verify", traces), ("sweep", traces, "--out", traces / "out")):
        done = run(*command)
        assert isinstance(done.exception, TraceError)
        assert "is not UTF-8; rename the folder" in str(done.exception)
        str(done.exception).encode("utf-8")  # the message itself can be printed


def test_names_of_other_letters_stay_apart(traces):
    for number, name in enumerate(("café", "cafe\u0301", "語", "a b"), 5):
        write_trace(traces / name, number, **SHAPE)
    done = run(*ANALYZE, traces, "--out", traces / "rows.json")
    assert done.exit_code == 0, done.output
    assert {row["trace"] for row in json.loads((traces / "rows.json").read_text())} == {
        "a", "b", "café", "cafe\u0301", "語", "a b"
    }  # fmt: skip
