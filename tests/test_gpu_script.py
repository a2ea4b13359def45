"""The script for the day a GPU is at hand: it runs here in tiny shapes, and tells what fails and what did not run."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "gpu.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("gpu_script", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    sys.modules[spec.name] = module  # where its dataclasses look for it
    spec.loader.exec_module(module)
    yield module
    sys.path[:] = before
    del sys.modules[spec.name]


@pytest.mark.slow
def test_it_runs_dry(tmp_path):
    out = tmp_path / "deep" / "cuda.json"
    command = [sys.executable, str(SCRIPT), "--dry", "--json", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["name"]: row for row in json.loads(out.read_text())["checks"]}
    assert rows["replay, windows in the same tier"]["verdict"] == "ok"
    assert rows["tests on CUDA that failed"]["verdict"] == "ok"
    assert int(rows["tests on CUDA that ran"]["note"].removeprefix("of ")) > 10
    assert any(name.startswith("recording / plain, 64+8") and row["value"] > 0 for name, row in rows.items())
    assert done.stdout.count("\n") == len(rows) + 2  # the table alone
    if importlib.util.find_spec("triton"):
        assert all(rows[f"{name}, gap / tolerance"]["verdict"] == "ok" for name in ("row_lse", "column_sums"))


def test_without_a_gpu_it_says_so(script, monkeypatch, capsys):
    monkeypatch.setattr(script.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu.py"])
    with pytest.raises(SystemExit):
        script.main()
    assert "there is no CUDA device" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("limits", "value", "verdict"),
    [
        ({"at_most": 1.1}, 1.2, "FAILED"),
        ({"at_most": 1.1}, float("nan"), "FAILED"),
        ({"at_least": 0.999}, 0.9, "FAILED"),
        ({"at_most": 1.1}, 1.1, "ok"),
        ({"at_most": 1.1}, None, "not run"),
        ({}, 7.0, ""),
    ],
)
def test_verdicts(script, limits, value, verdict):
    assert script.Check("any", value, **limits).verdict == verdict


def test_a_stage_that_breaks_or_comes_too_late_did_not_run(script, monkeypatch):
    def broken(shape, device):
        yield script.Check("first", 1.0, at_most=2)
        raise RuntimeError("out of memory")

    monkeypatch.setattr(script, "STAGES", {"broken": broken, "whole": lambda *_: iter([script.Check("second", 1.0)])})
    found = list(script.checked(["broken", "whole"], script.TINY, "cpu", 7))
    assert [(one.name, one.verdict) for one in found] == [("first", "ok"), ("broken", "not run"), ("second", "")]
    assert [one.verdict for one in script.checked(["whole"], script.TINY, "cpu", -1)] == ["not run"]
