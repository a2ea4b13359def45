"""The science against the interpretation: verdicts under every reading are those of measuring everything anew."""

from dataclasses import replace

import polars as pl
import pytest
import torch
from typer.testing import CliRunner

from qevict_diag.analyses.claims import evaluate as claims
from qevict_diag.analyses.claims import sensitivity, verdicts
from qevict_diag.analyses.claims.checks import checks
from qevict_diag.cache.budget import Budget
from qevict_diag.cli.app import app
from qevict_diag.errors import InputError, ReadingError
from qevict_diag.measure.traces import measure
from qevict_diag.readings import READINGS, Readings
from qevict_diag.replay.settings import Settings
from qevict_diag.testing.traces import random_trace

SETTINGS = Settings(Budget("1/2", sinks=3, recent=6), horizon=8, dtype=torch.float64)
POLICIES = ("R1", "R2", "R3", "R4", "R3-full-only")


@pytest.fixture(scope="module")
def traces():
    named = enumerate([random_trace(seed, layers=1, prefill=56, decode=48) for seed in (1, 2)])
    return [replace(trace, name=f"article-{number}") for number, trace in named]


@pytest.fixture(scope="module")
def compared(traces):
    labels = [reading.name + "=" + reading.values[-1] for reading in READINGS if reading.stage == "metric"]
    return sensitivity.compare(sensitivity.by_setting(traces), SETTINGS, [*labels, sensitivity.FORCED])


def test_every_value_but_the_defaults_is_an_alternative():
    assert len(sensitivity.alternatives()) == sum(len(reading.values) - 1 for reading in READINGS)


def test_exactly_the_readings_that_leave_decisions_alone_take_the_shortcut():
    assert set(sensitivity.TOUCHED) == {reading.name for reading in READINGS if reading.stage == "metric"}


@pytest.mark.parametrize("name", sensitivity.TOUCHED)
def test_the_shortcut_gives_what_measuring_everything_gives(traces, compared, name):
    label = next(one for one in compared["reading"].unique() if one.startswith(name))
    settings = replace(SETTINGS, readings=Readings.parse([label]))
    frame = measure(traces, POLICIES, ["all"], settings).frame
    expected = verdicts.summary(claims.evaluate(frame))
    got = compared.filter(reading=label)
    for column in ("claim", "verdict", "sign", "numbers"):
        assert got[column].to_list() == expected[column].to_list()


def test_the_default_is_compared_with_itself_first(compared):
    first = compared.head(12)
    assert set(first["reading"]) == {""}
    assert not first["changed"].any()
    assert first["verdict"].to_list() == first["default"].to_list()
    assert (compared["changed"] == (compared["verdict"] != compared["default"])).all()
    assert sensitivity.matrix(compared).shape == (11, 14)


def test_forced_admission_of_r1_alone_moves_only_what_r1_enters(compared):
    usual, forced, alone = (
        dict(compared.filter(reading=label).select("claim", "numbers").rows())
        for label in ("", sensitivity.FORCED, sensitivity.FORCED_R1)
    )
    of_r1 = {check.claim for check in checks() if any(q.policy == "R1" for q in check.quantities)}
    assert {claim for claim in usual if usual[claim] != alone[claim]} == of_r1 == {"I-a", "I-b"}
    assert forced["I-b"] != usual["I-b"]
    assert _number(alone["I-b"], "churn(R1)") == _number(forced["I-b"], "churn(R1)")
    assert _number(alone["I-b"], "churn(R3)") == _number(usual["I-b"], "churn(R3)")


def _number(told, label):
    return next(part for part in told.split(", ") if part.startswith(label))


def test_traces_are_sorted_by_what_their_lengths_are_about(traces):
    late = random_trace(3, prefill=40, decode=48)
    found = sensitivity.by_setting([*traces, late])
    assert found == {"diagnostic": tuple(traces), "promotion": (late,)}
    with pytest.raises(InputError, match="name at least one"):
        sensitivity.by_setting([])


def test_only_what_the_claims_ask_for_is_measured(traces):
    churn = sensitivity.needed("churn_set=full", "diagnostic")
    assert churn == dict.fromkeys(("R1", "R3", "R4"), ("churn",))
    assert not sensitivity.needed("ledger_bytes=counted", "diagnostic")
    assert set(sensitivity.needed("scope=head", "promotion")) == {"R3", "R3-one-way"}


def test_unknown_readings_are_refused(traces):
    with pytest.raises(ReadingError):
        sensitivity.compare(sensitivity.by_setting(traces), SETTINGS, ["scope=token"])


def test_progress_reaches_its_total(traces):
    seen = []
    sensitivity.compare(
        sensitivity.by_setting(traces), SETTINGS, ["lag=first_passage"], progress=lambda *done: seen.append(done)
    )
    assert seen[-1] == (sensitivity.STAGE, 2, 2)
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


def test_the_command_lists_without_traces_and_tests_with_them(tmp_path):
    from disk_traces import write_traces

    listed = CliRunner().invoke(app, ["readings"])
    assert listed.exit_code == 0
    assert all(reading.name in listed.output for reading in READINGS)
    write_traces(tmp_path, layers=1, prefill=56, decode=48)
    chosen = ["--reading", "lag=first_passage", "--budget", "1/2", "--horizon", "8", "--recent", "6"]
    tested = CliRunner().invoke(app, ["readings", str(tmp_path), *chosen, "--quiet"])
    assert tested.exit_code == 0, tested.output
    assert "(defaults)" in tested.output
    assert "N lag=first_passage" in tested.output
    one = CliRunner().invoke(app, ["readings", str(next(tmp_path.iterdir())), *chosen, "--quiet"])
    assert one.exit_code == 0, one.output
    first = next(line for line in one.output.splitlines() if "(defaults)" in line).split()
    assert {"(+)", "(-)"} & set(first)  # one article decides nothing, but its estimates have signs
    assert "?" not in first
    assert "under 1 of 1 readings (n = 1)" in one.output
    as_json = CliRunner().invoke(app, ["readings", str(tmp_path), *chosen, "--quiet", "--json"])
    assert pl.read_json(as_json.stdout.encode()).height == 24
