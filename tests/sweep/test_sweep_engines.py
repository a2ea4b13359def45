"""Whoever computes a sweep, in whatever order, the bytes on disk are the same."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from disk_traces import contents, small_sweep, write_traces

from qevict_diag.errors import InputError, SweepError
from qevict_diag.sweep import Engine, run, tasks
from qevict_diag.sweep.compute import work
from qevict_diag.trace.trace import Trace


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    return small_sweep(write_traces(tmp_path_factory.mktemp("traces")), policies=("R2", "R3"), budgets=("1/2",))


@pytest.fixture(scope="module")
def serial(sweep, tmp_path_factory):
    folder = tmp_path_factory.mktemp("serial")
    run(sweep, folder)
    return contents(folder)


@pytest.fixture(scope="module")
def cluster():
    """A real Dask cluster: a scheduler and two worker processes of one thread each."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as made:
        yield made


def free_port():
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


def test_two_workers_write_the_bytes_of_one(sweep, serial, tmp_path):
    assert run(sweep, tmp_path, Engine(workers=2)).computed == 16
    assert contents(tmp_path) == serial


def test_any_order_writes_the_same_bytes(sweep, serial, tmp_path):
    for task in reversed(tasks(sweep, [Trace.open(path) for path in sweep.traces])):
        work(task, tmp_path)
    assert contents(tmp_path) == serial


def test_a_dask_worker_killed_in_mid_sweep_changes_no_byte(sweep, serial, cluster, tmp_path):
    seen, killed = [], []

    def kill_one(stage, done, total):
        seen.append((done, total))
        if done == 3:
            killed.append(next(iter(cluster.workers.values())).pid)
            os.kill(killed[0], signal.SIGKILL)

    run(sweep, tmp_path, Engine("dask", scheduler=cluster.scheduler_address), kill_one)
    assert len(killed) == 1
    assert contents(tmp_path) == serial
    assert seen == [(done, 16) for done in range(17)]


def test_a_scheduler_killed_in_mid_sweep_is_an_error_in_words_and_loses_nothing(sweep, serial, tmp_path):
    address = f"tcp://127.0.0.1:{free_port()}"
    commands = [["scheduler", "--port", address.rpartition(":")[2], "--no-dashboard"], ["worker", address]]
    started = [
        subprocess.Popen([sys.executable, "-m", "dask", *words], stderr=subprocess.DEVNULL) for words in commands
    ]
    try:
        with pytest.raises(SweepError, match=r"the scheduler died .* give the same sweep again to continue"):
            run(sweep, tmp_path, Engine("dask", scheduler=address), lambda _, done, __: done == 2 and started[0].kill())
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert run(sweep, tmp_path).computed <= 14
    assert contents(tmp_path) == serial


def test_no_scheduler_is_an_error_in_words(sweep, tmp_path, monkeypatch):
    monkeypatch.setattr("qevict_diag.sweep.engine.CONNECT_SECONDS", 0.5)
    with pytest.raises(SweepError, match=r"no Dask scheduler at tcp://127\.0\.0\.1:9"):
        run(sweep, tmp_path, Engine("dask", scheduler="tcp://127.0.0.1:9"))


@pytest.mark.parametrize(
    ("choices", "told"),
    [
        ({"kind": "slurm"}, "engine 'slurm': allowed are loky, dask, ray"),
        ({"workers": 0}, "workers 0"),
        ({"workers": 10**9}, "workers 1000000000: must be between 1 and 4096"),
        ({"kind": "dask"}, "needs --scheduler"),
        ({"scheduler": "tcp://host:8786"}, "engine loky has none"),
    ],
)
def test_an_engine_that_cannot_be_is_refused(choices, told):
    with pytest.raises(InputError, match=told):
        Engine(**choices)


@pytest.mark.ray
@pytest.mark.filterwarnings("default")
def test_ray_writes_the_same_bytes(sweep, serial, tmp_path):
    pytest.importorskip("ray", reason="the extra [ray] is not installed")
    run(sweep, tmp_path, Engine("ray"))
    assert contents(tmp_path) == serial


def test_ray_that_is_not_installed_is_an_error_in_words(sweep, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'qevict-diag\[ray\]'"):
        list(Engine("ray").map(print, []))


@pytest.mark.parametrize("workers", [1, 2])
def test_results_are_collected_in_the_order_that_was_asked_for(workers):
    """The first takes longest, so two workers finish the second before it."""
    finished = []
    found = Engine(workers=workers).collect(_after, [(0.4, "first"), (0.0, "second")], lambda: finished.append(1))
    assert (found, len(finished)) == (["first", "second"], 2)


def _after(seconds, told):
    time.sleep(seconds)
    return told
