"""`analyze`, `replay` and the catalogues, as a user calls them."""

import json

import polars as pl
import pytest
from disk_traces import write_trace
from typer.testing import CliRunner

from qevict_diag.cli.app import app
from qevict_diag.errors import InputError, QEvictError
from qevict_diag.measure.traces import metric_names


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    for seed, name in enumerate(("a", "b")):
        write_trace(folder / name, seed, prefill=150, decode=90)
    return folder


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_every_metric_is_summarized(traces):
    done = run("analyze", traces, "--metric", "all", "--budget", "1/2", "--quiet")
    assert done.exit_code == 0, done.output
    told = run("analyze", traces, "--metric", "all", "--budget", "1/2", "--quiet", "--json")
    assert {row["metric"] for row in json.loads(told.stdout)} == set(metric_names(["all"])) - {"chance"}


def test_json_and_rows_hold_the_same_policies_and_the_optimum(traces, tmp_path):
    out = tmp_path / "rows.parquet"
    done = run("analyze", traces, "--metric", "fmm", "--policy", "R2", "--regret", "--json", "--quiet", "--out", out)
    rows = json.loads(done.stdout)
    assert {row["policy"] for row in rows} == set(pl.read_parquet(out)["policy"])
    assert {"R2", "R2[irreversible]"} == {row["policy"] for row in rows}
    assert next(row for row in rows if row["policy"] == "R2")["regret"] is not None


def test_decisions_are_written(traces, tmp_path):
    out = tmp_path / "decisions.csv"
    assert run("replay", traces, "--policy", "R3", "--budget", "1/2", "--out", out, "--quiet").exit_code == 0
    assert set(pl.read_csv(out)["tier"]) <= {"full", "quantized", "evicted", "local"}


@pytest.mark.parametrize("words", [["policies"], ["metrics"], ["readings"], ["budget"], ["budget", "--head-dim", "64"]])
def test_catalogues_print_and_give_json(words):
    assert run(*words).exit_code == 0
    assert json.loads(run(*words, "--json").stdout)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--metric", "nothing"], "nothing"),
        (["--policy", "R9"], "R9"),
        (["--budget", "1/100"], "no history"),
        (["--window", "5000"], "window 5000"),
        (["--reading", "scope=x"], "scope=x"),
        (["--device", "nowhere"], "nowhere"),
        (["--out", "rows.txt"], "rows.txt"),
        (["--arithmetic", "int8"], "int8"),
    ],
)
def test_bad_input_is_one_error(traces, words, said):
    done = run("analyze", traces, "--quiet", *words)
    assert isinstance(done.exception, QEvictError)
    assert said in str(done.exception)
    assert "\n" not in str(done.exception)


def test_policies_that_are_their_window_keep_it(traces):
    words = ("analyze", traces, "--metric", "fmm", "--budget", "1/2", "--window", 4, "--quiet", "--json")
    mixed, alone = run(*words, "--policy", "R1", "--policy", "R3"), run(*words, "--policy", "R1")
    assert mixed.exit_code == 0, mixed.output
    usual = run("analyze", traces, "--metric", "fmm", "--budget", "1/2", "--policy", "R1", "--quiet", "--json")
    value = [
        next(row["estimate"] for row in json.loads(done.stdout) if row["policy"] == "R1") for done in (mixed, usual)
    ]
    assert value[0] == value[1]
    assert isinstance(alone.exception, InputError)
    assert "R1 are defined by their windows" in str(alone.exception)


def test_a_policy_named_twice_is_measured_once(traces):
    words = ("--metric", "churn", "--budget", "1/2", "--quiet", "--json")
    once, twice = (run("analyze", traces, *words, *["--policy", "R3"] * times).stdout for times in (1, 2))
    assert json.loads(once) == json.loads(twice)


def test_a_metric_without_rows_is_said(traces):
    words = ("analyze", traces, "--budget", "1/2", "--policy", "R2", "--quiet", "--json")
    done = run(*words, "--metric", "qsa", "--metric", "churn")
    assert done.exit_code == 0, done.output
    assert "no rows of qsa for R2; QSA and R_Q need a quantized tier" in done.stderr
    assert {row["metric"] for row in json.loads(done.stdout)} == {"churn"}
    assert "need a quantized tier" in str(run(*words, "--metric", "qsa").exception)


def test_a_horizon_that_no_event_has_is_refused(traces):
    done = run("analyze", traces, "--metric", "fmm", "--horizon", 1000, "--budget", "1/2", "--quiet")
    assert "has 90 decode queries" in str(done.exception)


def test_the_figure_of_returns_is_drawn_under_its_reading(traces, tmp_path):
    pictures = []
    for number, reading in enumerate(("lir_episodes=literal", "lir_episodes=after_exit", "scope=head")):
        out = tmp_path / f"{number}.svg"
        words = ("--budget", "1/2", "--min-inactive", 1, "--reading", reading, "--quiet")
        done = run("figure", "returns", traces, "--out", out, *words)
        assert done.exit_code == 0, done.output
        pictures.append(out.read_bytes())
    assert len(set(pictures)) == 3


@pytest.mark.parametrize("words", [("--head-dim", 0), ("--prefill", -5), ("--element-size", -2), ("--window", 0)])
def test_a_geometry_that_cannot_be_is_refused(words):
    done = run("budget", *words)
    assert isinstance(done.exception, InputError)


def test_two_tiers_have_no_quantized_bits():
    rows = {row["policy"]: row for row in json.loads(run("budget", "--json").stdout)}
    assert rows["R1"]["bits_per_quantized_element"] is None
    assert rows["R3"]["bits_per_quantized_element"] == pytest.approx(4.125)


def test_readings_take_one_article_at_two_lengths(tmp_path):
    """Promotion is measured on traces that decode more than they prefill: the same texts, recorded once more."""
    for folder, prefill, decode in (("early", 150, 90), ("late", 90, 150)):
        for seed, name in enumerate(("a", "b")):
            write_trace(tmp_path / folder / name, seed, prefill=prefill, decode=decode)
    words = ("readings", tmp_path / "early", tmp_path / "late", "--budget", "1/2", "--reading", "scope=head", "--quiet")
    done = run(*words, "--json")
    assert done.exit_code == 0, done.output
    assert {row["reading"] for row in json.loads(done.stdout)} == {"", "scope=head"}
    again = run("readings", tmp_path / "early", tmp_path / "early", "--budget", "1/2", "--quiet")
    assert "stands twice" in str(again.exception)
