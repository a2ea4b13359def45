"""The command line as a whole: its version, options under their old names, and notes of one line."""

import subprocess
import sys
import warnings
from importlib.metadata import version

import pytest

from qevict_diag.cli import app as cli
from qevict_diag.cli.renamed import renamed


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command line: (exit code, stdout, stderr)."""

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["qevict-diag", *words])
        try:
            cli.main()
            code = 0
        except SystemExit as exit:
            code = exit.code or 0
        return (code, *capsys.readouterr())

    return call


def test_version(run):
    assert run("--version") == (0, f"qevict-diag {version('qevict-diag')}\n", "")


OLD = {
    "storing": (["record", "--dtype", "fp16"], ["record", "--store-dtype", "fp16"]),
    "running": (["record", "--load-dtype=bf16"], ["record", "--run-dtype=bf16"]),
    "arithmetic": (["analyze", "t", "--dtype", "float64"], ["analyze", "t", "--arithmetic", "float64"]),
}


@pytest.mark.parametrize(("old", "new"), OLD.values(), ids=OLD)
def test_old_names_of_options_are_understood_with_a_word(capsys, old, new):
    assert renamed(old) == new
    assert capsys.readouterr().err.count("is now called") == 1
    assert renamed(new) == new
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("words", [[], ["--help"], ["verify", "--dtype"]])
def test_other_words_stay(words):
    assert renamed(words) == words


@pytest.mark.parametrize("command", ["record", "analyze", "replay", "sweep", "reproduce"])
def test_old_names_are_in_no_help(run, command):
    code, out, _ = run(command, "--help")
    assert code == 0
    assert "--dtype" not in out
    assert "--load-dtype" not in out


def test_a_warning_is_a_note_of_one_line(run, monkeypatch):
    def warn():
        warnings.simplefilter("always")
        warnings.warn("weights are left over", UserWarning, stacklevel=1)

    monkeypatch.setattr(cli, "app", warn)
    assert run() == (0, "", "note: weights are left over\n")


def test_reading_the_version_loads_nothing_heavy():
    code = "import sys; sys.argv = ['q', '--version']; from qevict_diag.cli.app import main\n"
    code += "try: main()\nexcept SystemExit: pass\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
