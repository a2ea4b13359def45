"""What the README shows works as it stands: its Python runs, its commands parse, its words are the program's."""

import re
import shlex
from pathlib import Path

import pytest
from disk_traces import write_trace
from typer.main import get_command

from qevict_diag.cli.app import app
from qevict_diag.policies.catalogue import POLICIES
from qevict_diag.readings import Readings
from qevict_diag.trace.trace import Trace

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SIX_LINES = re.search(r"```python\n(.*?)```", README, re.DOTALL).group(1)
COMMANDS = re.findall(r"^    qevict-diag (.+)$", README, re.MULTILINE)


def test_the_six_lines_run(tmp_path, monkeypatch, capsys):
    for seed, name in enumerate(("the-eel", "the-eddystone")):
        write_trace(tmp_path / "out/traces/smollm2-135m-greedy/512+256" / name, seed, prefill=150, decode=90)
    monkeypatch.chdir(tmp_path)
    exec(compile(SIX_LINES, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "R3[random]" in printed
    assert len([line for line in SIX_LINES.splitlines() if line]) == 6


def test_the_ranking_of_the_readme_runs(tmp_path):
    example = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[1]
    trace = Trace.open(write_trace(tmp_path / "a", prefill=150, decode=90))
    scope = {"traces": [trace]}
    exec(compile(example, "README.md", "exec"), scope)
    run = scope["run"]
    assert run.policy.ranking == scope["LastInterval"]()
    assert run.retained.any()
    assert len([line for line in example.splitlines() if line]) <= 20


@pytest.mark.parametrize("line", COMMANDS)
def test_the_commands_parse(line):
    name, *words = shlex.split(line)
    command = get_command(app).commands[name]
    assert command.make_context(name, words, resilient_parsing=False).params


def test_there_are_commands_and_every_policy_is_in_the_glossary():
    assert len(COMMANDS) == 7
    assert all(name in README for name in POLICIES)
    Readings.parse(["admission=forced"])


def test_what_the_readme_points_to_is_there():
    for path in ("docs/figure1.png", "analyses/explore.ipynb", "LICENSE", "Makefile"):
        assert (ROOT / path).is_file()
