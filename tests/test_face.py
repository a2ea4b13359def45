"""`import qevict_diag as qd`: every name of the face is there, is what its home says, and works in any order."""

import subprocess
import sys

import pytest
from disk_traces import write_trace

import qevict_diag as qd
from qevict_diag.measure.traces import measure
from qevict_diag.replay.loop import replay
from qevict_diag.testing.traces import random_trace
from qevict_diag.trace.trace import Trace

TRACE = random_trace(prefill=150, decode=40)


@pytest.mark.parametrize("name", qd.__all__)
def test_every_name_is_there_in_a_fresh_interpreter(name):
    told = f"import qevict_diag as qd; first = qd.{name}; assert qd.{name} is first; assert {name!r} in dir(qd)"
    subprocess.run([sys.executable, "-c", told], check=True)


def test_functions_that_share_a_name_with_a_folder_can_be_called():
    asked = ([TRACE], ["R1"], ["churn"], qd.Settings(qd.Budget("1/3")))
    assert qd.measure(*asked).frame.equals(measure(*asked).frame)
    runs = (play(TRACE, [qd.policy("R1")], asked[-1])[0] for play in (qd.replay, replay))
    assert next(runs).tier.equal(next(runs).tier)
    assert callable(qd.record)


def test_a_trace_is_opened_by_its_path(tmp_path):
    trace = qd.load(write_trace(tmp_path / "a", prefill=40, decode=8))
    assert isinstance(trace, Trace)
    assert trace.name == "a"


def test_another_name_is_no_attribute():
    with pytest.raises(AttributeError, match="'nothing'"):
        _ = qd.nothing
