"""Every figure of the table is drawn from measurements, and asked for by name."""

import pytest
from disk_traces import write_trace
from typer.testing import CliRunner

from qevict_diag.cli.app import app
from qevict_diag.errors import InputError
from qevict_diag.figures.catalogue import FIGURES, figure
from qevict_diag.metrics import METRICS
from qevict_diag.policies.catalogue import POLICIES


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return str(write_trace(tmp_path_factory.mktemp("traces") / "one", prefill=150, decode=72, layers=2))


def draw(trace, name, out, *more):
    under = ["--sinks", "3", "--recent", "6", "--horizon", "8", "--budget", "1/2", "--min-inactive", "1", "--quiet"]
    return CliRunner().invoke(app, ["figure", name, trace, "--out", str(out), *under, *more])


@pytest.mark.parametrize("made", FIGURES.values(), ids=FIGURES)
def test_what_it_needs_exists_and_is_enough(made, trace, tmp_path):
    assert set(made.needs.policies) <= set(POLICIES)
    assert set(made.needs.metrics) <= set(METRICS)
    done = draw(trace, made.name, tmp_path / "f.svg")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "f.svg").read_text(encoding="utf-8").startswith("<?xml")


@pytest.mark.parametrize("name", ["heatmap", "distribution"])
def test_other_policies_and_metrics_can_be_asked_for_where_a_figure_is_free(name, trace, tmp_path):
    done = draw(trace, name, tmp_path / "f.svg", "--policy", "R2", "--policy", "R3[decayed]", "--metric", "churn")
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("name", "more", "told"),
    [
        ("1", ("--policy", "R2"), "figure 1 is of R1, R2, R3, R4, R3-full-only by fmm, churn, mass_share; leave"),
        ("returns", ("--metric", "fmm"), "leave --policy and --metric out"),
        ("heatmap", ("--metric", "all"), "metric 'all': there are fmm"),
        ("heatmap", ("--policy", "R9"), "policy 'R9'"),
    ],
)
def test_what_a_figure_cannot_show_is_told(name, more, told, trace, tmp_path):
    done = draw(trace, name, tmp_path / "f.svg", *more)
    assert isinstance(done.exception, InputError)
    assert told in str(done.exception)


def test_the_report_shows_titled_figures_with_a_caption():
    shown = [made for made in FIGURES.values() if made.title]
    assert [made.name for made in shown] == ["1", "layers"]
    assert all(made.caption for made in shown)
    assert figure("1").file == "figure1"
