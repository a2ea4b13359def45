"""Killed at any moment, a recording leaves no trace or a whole one; what was killed is cleaned up by the next run."""

import os
import random
import signal
import sys
import time

import pytest
import torch
from children import forked, status_of
from tiny_models import build, transformers_noise

from qevict_diag.record import RecordOptions, record
from qevict_diag.texts.source import Source
from qevict_diag.trace.trace import Trace

pytestmark = [
    transformers_noise,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]
OPTIONS = RecordOptions(prefill=16, decode=4, prompt_queries=4)
SOURCES = [Source(name, tokens=tuple(range(first, first + 20))) for first, name in enumerate(("one", "two"), start=3)]
# everything that changes the file system and that Python announces: opening, making, renaming and changing files
EVENTS = ("open", "os.mkdir", "os.rename", "os.chmod", "os.remove", "os.rmdir", "tempfile.mkdtemp")


@pytest.fixture(scope="module")
def model():
    return build("llama")


def in_child(action):
    """A child process that runs ``action`` on one thread."""

    def alone():
        torch.set_num_threads(1)
        action()

    return forked(alone)


def whole_traces(folder):
    """Names of the traces in ``folder``, every one of which has to be whole; other names are hidden leftovers."""
    found = [path for path in folder.iterdir() if not path.name.startswith(".")]
    for path in found:
        Trace.open(path).verify()
    assert all(".partial-" in path.name for path in folder.iterdir() if path.name.startswith("."))
    return sorted(path.name for path in found)


def kill_at(number, folder):
    """Kill this process before its ``number``-th file operation below ``folder``."""
    seen = 0

    def hook(event, arguments):
        nonlocal seen
        ours = str(folder) in str(arguments) or ".safetensors" in str(arguments)
        if event in EVENTS and ours:
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def test_killed_before_every_file_operation(model, tmp_path):
    killed = finished = 0
    for number in range(1, 200):
        folder = tmp_path / str(number)
        folder.mkdir()

        def action(number=number, folder=folder):
            kill_at(number, folder)
            record(model, None, SOURCES, OPTIONS, out=folder)

        if status_of(in_child(action)) == 0:
            finished += 1
            break
        killed += 1
        whole_traces(folder)
    assert killed >= 25
    assert finished == 1
    assert whole_traces(folder) == ["one", "two"]


def test_killed_at_twenty_random_moments(model, tmp_path):
    started = time.monotonic()
    assert status_of(in_child(lambda: record(model, None, SOURCES, OPTIONS, out=tmp_path / "timing"))) == 0
    duration = time.monotonic() - started
    for number, share in enumerate(random.Random(0).random() for _ in range(20)):
        folder = tmp_path / str(number)
        folder.mkdir()
        child = in_child(lambda folder=folder: record(model, None, SOURCES, OPTIONS, out=folder))
        time.sleep(share * duration * 1.2)
        os.kill(child, signal.SIGKILL)
        status_of(child)
        whole_traces(folder)


def test_resume_finishes_what_a_killed_recording_began(model, tmp_path):
    def action():
        record(model, None, SOURCES[:1], OPTIONS, out=tmp_path)
        kill_at(12, tmp_path)
        record(model, None, SOURCES[1:], OPTIONS, out=tmp_path)

    assert status_of(in_child(action)) == -signal.SIGKILL
    assert whole_traces(tmp_path) == ["one"]
    assert len(list(tmp_path.iterdir())) == 2
    stamp = (tmp_path / "one" / "manifest.json").stat().st_mtime_ns
    paths = record(model, None, SOURCES, OPTIONS, out=tmp_path, resume=True)
    assert [path.name for path in paths] == ["one", "two"]
    assert whole_traces(tmp_path) == ["one", "two"]
    assert len(list(tmp_path.iterdir())) == 2  # the leftover is gone
    assert (tmp_path / "one" / "manifest.json").stat().st_mtime_ns == stamp
