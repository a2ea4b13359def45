"""The options that commands share: one table, one object of settings, the same for every command."""

import json

import pytest
from disk_traces import write_trace
from typer.main import get_command
from typer.testing import CliRunner

from qevict_diag.cli import options
from qevict_diag.cli.app import app
from qevict_diag.replay.settings import Settings

ALL = {"--arithmetic" if name == "dtype" else "--" + name.replace("_", "-") for name in options.SHARED}
MEASURING = ("analyze", "figure", "table", "readings")


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    for seed, name in enumerate(("a", "b")):
        write_trace(folder / name, seed, prefill=150, decode=90)
    return folder


def run(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output or done.exception
    return done.stdout


def options_of(command):
    return {option for parameter in get_command(app).commands[command].params for option in parameter.opts}


def test_the_defaults_of_the_command_line_are_those_of_the_library():
    assert options.settings({}) == Settings()


@pytest.mark.parametrize("command", MEASURING)
def test_measuring_commands_take_the_same_options(command):
    assert ALL | {"--window"} <= options_of(command)


@pytest.mark.parametrize(
    ("command", "without"),
    [("replay", {"--horizon", "--min-inactive"}), ("budget", {"--horizon", "--device"}), ("reproduce", {"--budget"})],
)
def test_a_command_has_no_option_that_it_would_ignore(command, without):
    assert not options_of(command) & without


def test_options_become_settings():
    given = {"budget": "1/2", "sinks": 1, "min_inactive": 4, "dtype": "float64", "reading": ["scope=head"]}
    chosen = options.settings(given)
    assert (str(chosen.budget.ratio), chosen.budget.sinks, chosen.min_inactive) == ("1/2", 1, 4)
    assert (str(chosen.dtype), chosen.readings.label()) == ("torch.float64", "scope=head")


def test_a_table_is_that_of_analyze_under_the_same_options(traces):
    """FMM and churn of R2 and R3 with windows of 4, in double precision: Table 14 and `analyze` must agree."""
    words = ("--budget", "1/2", "--window", 4, "--arithmetic", "float64", "--horizon", 16, "--quiet")
    table = json.loads(run("table", 14, traces, *words, "--format", "json"))["rows"]
    metrics = ("--metric", "fmm", "--metric", "churn", "--policy", "R2", "--policy", "R3")
    told = json.loads(run("analyze", traces, *words, *metrics, "--json"))
    for metric in ("fmm", "churn"):
        analyzed = {row["policy"]: row["estimate"] for row in told if row["metric"] == metric}
        for policy in ("R2", "R3"):
            shown = next(row for row in table if row["policy"] == policy)
            assert shown["window"] == 4
            assert shown[metric] == pytest.approx(analyzed[policy], rel=1e-12)


def test_a_figure_is_drawn_with_the_window_asked_for(traces, tmp_path):
    out = tmp_path / "figure.svg"
    run("figure", 1, traces, "--out", out, "--budget", "1/2", "--window", 4, "--quiet")
    assert "R3, Ω = 4" in out.read_text(encoding="utf-8")


def test_readings_are_tested_with_the_options_given(traces):
    usual, wide = (
        json.loads(run("readings", traces, "--budget", "1/2", *more, "--reading", "scope=head", "--quiet", "--json"))
        for more in ((), ("--window", 16))
    )
    assert usual != wide
