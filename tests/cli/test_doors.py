"""Every door of the command line: a path that cannot be used is one line that names it, before any work."""

import os
import shutil
import subprocess
import sys

import pytest
from disk_traces import write_trace

from qevict_diag.cli import app

LONG = "x" * 300
READING = {
    "inspect": "inspect X",
    "verify": "verify X",
    "analyze": "analyze X --budget 1/2 --quiet",
    "table": "table 15 X --budget 1/2 --quiet",
    "figure": "figure 1 X --budget 1/2 --quiet --out new.svg",
    "replay": "replay X --budget 1/2 --quiet --out new.csv",
    "readings": "readings X --budget 1/2 --quiet",
    "export": "export X --parquet new",
    "import": "import X --out new",
    "sweep": "sweep X --budget 1/2 --quiet --out new",
    "sweep-table": "sweep-table X",
    "sweep-figure": "sweep-figure pareto X --out new.svg",
    "text": "record --text X --out new",
    "tokens": "record --tokens X --out new",
    "model": "record --model X.gguf --out new",
}
WRITING = {
    "analyze": "analyze traces --budget 1/2 --quiet --out X.csv",
    "replay": "replay traces --budget 1/2 --quiet --out X.csv",
    "table": "table 15 traces --budget 1/2 --quiet --out X.md",
    "figure": "figure 1 traces --budget 1/2 --quiet --out X.svg",
    "export": "export traces/a --parquet X",
    "sweep": "sweep traces --budget 1/2 --quiet --out X",
    "record": "record --model nowhere --out X",
    "reproduce": "reproduce --model nowhere --out X",
}
DOORS = {**READING, **{f"{name} --out": words for name, words in WRITING.items()}}
UNPRIVILEGED = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("doors")
    for seed, name in enumerate(("a", "b")):
        write_trace(folder / "traces" / name, seed, prefill=60, decode=40)
    return folder


@pytest.mark.parametrize("door", DOORS)
def test_a_name_that_no_file_can_have_is_one_line(folder, monkeypatch, capsys, door):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(app, "end_cleanly", lambda: None)
    monkeypatch.setattr(sys, "argv", ["qevict-diag", *DOORS[door].replace("X", LONG).split()])
    with pytest.raises(SystemExit) as end:
        app.main()
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (1, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert LONG in err
    assert sorted(os.listdir(folder)) == ["traces"]


def unprivileged():
    """What to run a command with so that permissions count; None where that cannot be had."""
    if os.geteuid():
        return ()
    return UNPRIVILEGED if shutil.which("setpriv") else None


@pytest.mark.skipif(unprivileged() is None, reason="root may read everything")
@pytest.mark.parametrize("door", ["inspect", "analyze", "text", "figure --out", "record --out"])
def test_what_may_not_be_read_or_written_is_one_line(folder, tmp_path, door):
    """A folder of somebody else; as root, of another user, and without root's right to pass by permissions."""
    (tmp_path / "shut").mkdir()
    if not os.geteuid():
        os.chown(tmp_path / "shut", 65534, 65534)
    (tmp_path / "shut").chmod(0o700 if not os.geteuid() else 0)
    words = DOORS[door].replace("X", str(tmp_path / "shut" / "x")).split()
    command = [*unprivileged(), sys.executable, "-c", "from qevict_diag.cli.app import main; main()", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    (tmp_path / "shut").chmod(0o700)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: cannot ")
    assert "shut" in done.stderr
    assert "(Permission denied)" in done.stderr or "no folder that can be written to" in done.stderr
    assert done.stderr.count("\n") == 1
