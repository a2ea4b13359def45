"""What a command prints: text of a trace acts on nothing, whatever stands behind standard output."""

import json
import os
import re
import subprocess
import sys

import polars as pl
import pytest
from disk_traces import write_trace

from qevict_diag.cli import app, show
from qevict_diag.cli.progress import shown

ESCAPE = "\x1b"
EVIL = "[link=http://evil.example]click[/link] [/foo] :cat: r3[random] \x1b]0;pwn\x07\nerror: fake \u202e\x9b31m café"
HARMLESS = (
    "[link=http://evil.example]click[/link] [/foo] :cat: r3[random] \ufffd]0;pwn\ufffd error: fake \ufffd\ufffd31m café"
)
COMMAND = os.path.join(os.path.dirname(sys.executable), "qevict-diag")


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    write_trace(folder / "one\x1b[31m\ntwo", model=EVIL, prefill=60, decode=40)
    return folder


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command line as it is run from outside; the exit status, and what it has printed."""

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["qevict-diag", *map(str, words)])
        monkeypatch.setattr(app, "end_cleanly", lambda: None)
        try:
            app.main()
        except SystemExit as end:
            return end.code, *capsys.readouterr()
        raise AssertionError("a command line always exits")

    return call


@pytest.mark.parametrize("words", [("inspect",), ("verify",), ("inspect", "--json")])
def test_a_name_in_a_trace_acts_on_nothing(traces, run, words):
    (trace,) = traces.iterdir()
    code, out, err = run(*words, trace)
    assert (code, err) == (0, "")
    assert out.replace("\n", "").isprintable()
    if words == ("inspect",):
        assert HARMLESS in out
    if "--json" in words:
        assert out.isascii()
        assert json.loads(out)["model"] == EVIL


def test_an_error_is_one_line_whatever_it_quotes(traces, run):
    other = write_trace(traces.parent / f"{traces.name}-other" / "a", 1, prefill=60, decode=40)
    code, out, err = run("analyze", traces, other, "--quiet")
    assert (code, out) == (1, "")
    assert err.startswith("error: traces of 2 models")
    assert err.count("\n") == 1
    assert err.rstrip("\n").isprintable()


def test_cells_titles_and_heads_are_text(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "400")
    show.print_frame(pl.DataFrame({"[bold]x[/]": [EVIL, "[/]"]}), as_json=False, title="[red]t[/] \x1b[0m")
    out = capsys.readouterr().out
    assert HARMLESS in out
    assert "[bold]x[/]" in out
    assert "[red]t[/] \ufffd[0m" in out
    assert f"{ESCAPE}]" not in out  # no title of a window is set, no link is made


def test_json_of_a_frame_is_ascii_and_says_the_same(capsys):
    show.print_frame(pl.DataFrame({"x": ["Ω\x9b\u202e\N{CAT FACE}"]}), as_json=True)
    out = capsys.readouterr().out
    assert out.isascii()
    assert json.loads(out) == [{"x": "Ω\x9b\u202e\N{CAT FACE}"}]


def test_stages_of_progress_are_text(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "400")
    with shown(False, keep=True) as progress:
        progress("[red]x[/] \x1b]0;pwn\x07", 1, 1)
    assert "[red]x[/] \ufffd]0;pwn\ufffd" in capsys.readouterr().err


@pytest.mark.parametrize("color", [True, False])
def test_colours_are_for_terminals_that_want_them(capsys, monkeypatch, color):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if not color:
        monkeypatch.setenv("NO_COLOR", "1")
    show.say_table(("claim", "verdict"), [("I-a", "holds")], colors={"holds": "green"})
    assert (f"{ESCAPE}[32m" in capsys.readouterr().out) == color


@pytest.mark.parametrize("width", [20, 60, 200])
def test_no_word_is_folded_however_narrow_the_terminal(capsys, monkeypatch, width):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    rows = {
        "metric": ["fmm", "churn"],
        "policy": ["R3[random]", "R2"],
        "estimate": [0.4842, 0.5],
        "closed": [0.25, None],
    }
    show.print_frame(pl.DataFrame(rows | {"95% interval": ["0.4802–0.4902"] * 2}), as_json=False, title="found")
    printed = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out)  # NO_COLOR leaves bold
    for word in ("found", "metric", "estimate", "R3[random]", "0.4842", "0.4802–0.4902"):
        assert word in printed
    assert max(map(len, printed.splitlines())) <= width
    assert ("metric: fmm" in printed) == (width == 20)
    assert printed.count("closed") == 1  # a cell that is empty takes no line


def outside(words, **environment):
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONIOENCODING", "PYTHONUTF8")}
    return f"exec {COMMAND} {words}", {**clean, **environment}


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("words", ["readings", "readings --json", "--help"])
def test_a_full_disk_under_standard_output_is_one_line(words):
    command, environment = outside(f"{words} > /dev/full")
    done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_reader_who_goes_away_is_told_nothing():
    command, environment = outside("readings")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, shell=True, env=environment, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "ascii"])
def test_letters_that_an_encoding_lacks_are_replaced(encoding):
    """The policies, with Ω, ρ and Σ in their summaries, are listed under any encoding; what was done is told once."""
    command, environment = outside("policies", PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    done = subprocess.run(command, shell=True, env=environment, capture_output=True)
    assert done.returncode == 0
    assert "R3-one-way" in done.stdout.decode(encoding)
    assert b"similar ones, or ?, stand for them" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_an_encoding_that_has_all_letters_is_no_matter():
    command, environment = outside("policies", PYTHONIOENCODING="utf-8")
    done = subprocess.run(command, shell=True, env=environment, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "Ω" in done.stdout.decode()


def test_lookalikes_take_the_place_of_letters():
    """0.48–0.49 must not become 0.48?0.49."""
    words = "from qevict_diag.cli.streams import never_fail_to_encode as f; f(); print('0.48–0.49 −1 → Ω × é')"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run([sys.executable, "-c", words], env=environment, capture_output=True, check=True)
    assert done.stdout == b"0.48-0.49 -1 > ? x ?\n"
