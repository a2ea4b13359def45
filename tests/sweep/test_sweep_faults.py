"""What goes wrong in a sweep is told in one line, keeps what is finished, and never makes a wrong table."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from disk_traces import contents, small_sweep, write_traces
from typer.testing import CliRunner

from qevict_diag.cli.app import app
from qevict_diag.errors import QEvictError, SweepError
from qevict_diag.sweep import Engine, read, run
from qevict_diag.sweep.engine import LOST

COMMAND = "from qevict_diag.cli.app import main; main()"
GRID = (
    *("--policy", "R2", "--policy", "R3", "--budget", "2/5", "--budget", "1/2", "--window", "2", "--window", "4"),
    *(
        "--metric",
        "fmm",
        "--horizon",
        "8",
        "--sinks",
        "3",
        "--recent",
        "6",
        "--layers-per-task",
        "1",
    ),
)
PARTS = 32


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    return write_traces(tmp_path_factory.mktemp("traces"))


@pytest.fixture(scope="module")
def serial(traces, tmp_path_factory):
    folder = tmp_path_factory.mktemp("serial")
    assert CliRunner().invoke(app, ["sweep", *traces, *GRID, "--out", str(folder), "--quiet"]).exit_code == 0
    return contents(folder)


def start(traces, out, *more, before="pass"):
    """`qevict-diag sweep` in a process group of its own."""
    words = ["qevict-diag", "sweep", *traces, *GRID, "--out", str(out), "--quiet", *more]
    code = f"import sys; sys.argv = {words!r}; {before}; {COMMAND}"
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, start_new_session=True)


def receipts(folder):
    return sorted((folder / "parts").glob("[!.]*.json"))


def wait_for(true, seconds=60):
    for _ in range(seconds * 50):
        if true():
            return
        time.sleep(0.02)
    pytest.fail("it did not happen")


def loky_workers(parent=None):
    """Process ids of the loky workers of a process, by default this one."""
    table = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(parent or os.getpid())], capture_output=True, text=True
    )
    return [int(line.split()[0]) for line in table.stdout.splitlines() if "popen_loky_posix" in line]


def resume(traces, folder):
    """Give the same sweep again; how many parts it computed."""
    result = CliRunner().invoke(app, ["sweep", *traces, *GRID, "--out", str(folder), "--quiet", "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["computed"]


def test_a_sweep_killed_in_mid_run_continues_to_the_same_bytes(traces, serial, tmp_path):
    process = start(traces, tmp_path, "--workers", "2")
    wait_for(lambda: len(receipts(tmp_path)) >= 3)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    kept = {path: path.stat().st_mtime_ns for path in receipts(tmp_path)}
    assert 3 <= len(kept) < PARTS
    with pytest.raises(SweepError, match="parts are missing or damaged"):
        read(tmp_path)
    computed = resume(traces, tmp_path)
    assert computed <= PARTS - len(kept)
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in kept.items())  # none was computed twice
    assert contents(tmp_path) == serial


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def hidden(folder):
    return [path.name for path in (folder / "parts").glob(".*")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_sweep_that_is_told_to_end_leaves_no_workers_and_nothing_half_written(traces, serial, tmp_path, number):
    process = start(traces, tmp_path, "--workers", "2")
    wait_for(lambda: len(receipts(tmp_path)) >= 3)
    workers = loky_workers(process.pid)
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == 128 + number
    wait_for(lambda: not any(map(alive, workers)), 10)
    assert len(workers) == 2
    assert hidden(tmp_path) == []
    resume(traces, tmp_path)
    assert contents(tmp_path) == serial


def test_workers_end_when_their_sweep_alone_is_killed(traces, serial, tmp_path):
    process = start(traces, tmp_path, "--workers", "2")
    wait_for(lambda: len(receipts(tmp_path)) >= 3)
    workers = loky_workers(process.pid)
    process.kill()
    process.communicate(timeout=10)  # the workers hold the other end
    assert len(workers) == 2
    wait_for(lambda: not any(map(alive, workers)), 10)
    resume(traces, tmp_path)
    assert contents(tmp_path) == serial
    assert hidden(tmp_path) == []


def test_a_second_process_is_turned_away_while_the_first_sweeps(traces, tmp_path):
    def try_again(stage, done, total):
        if done == 1:
            _, told = start(traces, tmp_path).communicate(timeout=120)
            refusals.append(told)

    refusals = []
    assert run(small_sweep(traces), tmp_path, progress=try_again).computed == PARTS
    assert [told.startswith(f"error: another process sweeps into {tmp_path}") for told in refusals] == [True]


def test_a_full_disk_is_told_and_keeps_what_is_finished(traces, tmp_path):
    """The system refuses to write more than 1000 bytes into any file, from the sixth part on."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(stage, done, total):
        if done == 5:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))

    try:
        with pytest.raises(SweepError, match=r"cannot write a part into .*make room.*\. 5 of 32 parts are finished"):
            run(small_sweep(traces), tmp_path, progress=fill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(receipts(tmp_path)) == 5
    assert run(small_sweep(traces), tmp_path).computed == PARTS - 5


def test_a_trace_removed_in_mid_sweep_is_told_and_its_return_continues(traces, serial, tmp_path):
    moved = [str(shutil.copytree(trace, tmp_path / "traces" / Path(trace).name)) for trace in traces]
    sweep = small_sweep(tuple(moved))

    def remove(stage, done, total):
        if done == 5:
            shutil.rmtree(moved[1])

    with pytest.raises(SweepError, match=r"article-1 is no trace folder.*16 of 32 parts are finished and kept"):
        run(sweep, tmp_path / "out", progress=remove)
    shutil.copytree(traces[1], moved[1])
    assert run(sweep, tmp_path / "out").computed == 16


def test_a_trace_cut_in_mid_sweep_is_told(traces, tmp_path):
    moved = [str(shutil.copytree(trace, tmp_path / "traces" / Path(trace).name)) for trace in traces]

    def cut(stage, done, total):
        if done == 5:
            layer = Path(moved[1]) / "layer_001.safetensors"
            layer.write_bytes(layer.read_bytes()[:-100])

    with pytest.raises(SweepError, match=r"layer_001.*17 of 32 parts are finished and kept"):
        run(small_sweep(tuple(moved)), tmp_path / "out", progress=cut)


def test_a_dead_worker_is_told_and_the_sweep_continues(traces, tmp_path):
    sweep = small_sweep(traces)

    def kill_one(stage, done, total):
        if done == 3:
            os.kill(loky_workers()[0], signal.SIGKILL)

    with pytest.raises(SweepError, match=re.escape(LOST)):
        run(sweep, tmp_path, Engine(workers=2), kill_one)
    kept = len(receipts(tmp_path))
    assert 3 <= kept < PARTS
    assert run(sweep, tmp_path).computed == PARTS - kept
    assert read(tmp_path).bytes.collect().height > 0


def test_two_processes_without_locks_still_write_the_same_table(traces, serial, tmp_path):
    """As on a shared file system that has no locks: both compute, both write, nobody reads half a part."""
    unlocked = "import fcntl; fcntl.flock = lambda *_: (_ for _ in ()).throw(OSError(95, 'not supported'))"
    pair = [start(traces, tmp_path, before=unlocked) for _ in range(2)]
    told = [process.communicate(timeout=240)[1] for process in pair]
    assert told == ["", ""]
    assert contents(tmp_path) == serial


def test_impossible_settings_are_listed_and_skipped_on_request(traces, tmp_path):
    words = ["sweep", *traces, *GRID, "--budget", "1/20", "--out", str(tmp_path)]
    refused = CliRunner().invoke(app, words)
    assert isinstance(refused.exception, QEvictError)
    assert "settings do not fit" in str(refused.exception)
    planned = CliRunner().invoke(app, [*words, "--plan", "--json"])
    assert len(json.loads(planned.stdout)["does_not_fit"]) == 2 * 4
    assert not list(tmp_path.iterdir())


def test_the_plan_is_printed_for_people(traces, tmp_path):
    printed = CliRunner().invoke(app, ["sweep", *traces, *GRID, "--out", str(tmp_path / "new"), "--plan"])
    assert printed.exit_code == 0, printed.output
    for word in ("32 still to compute", "MiB", "worker"):
        assert word in printed.output.replace("\n", " ")
    assert not (tmp_path / "new").exists()
