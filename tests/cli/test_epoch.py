"""SOURCE_DATE_EPOCH: seconds since 1970, or one line from every command."""

import subprocess
import sys
from datetime import UTC, datetime

import pytest

from qevict_diag.epoch import source_date
from qevict_diag.errors import InputError


def test_seconds_since_1970_and_nothing(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert source_date() == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    assert source_date() is None


@pytest.mark.parametrize("odd", ["abc", "", "1.5", "1e9", "9" * 20, "9" * 5000, "-" + "9" * 20])
def test_anything_else_is_refused(monkeypatch, odd):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", odd)
    with pytest.raises(InputError, match="give seconds since 1970, or unset it") as told:
        source_date()
    assert len(str(told.value)) < 120


def test_a_command_says_it_in_one_line(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "abc")
    done = subprocess.run(
        [sys.executable, "-c", "from qevict_diag.cli.app import main; main()", "policies"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr == "error: SOURCE_DATE_EPOCH is 'abc'; give seconds since 1970, or unset it\n"
