"""The table of a sweep says what measuring each setting alone says, with what chance and foresight would miss."""

import json
from dataclasses import replace

import polars as pl
import pytest
from disk_traces import SMALL, small_sweep, write_traces
from typer.testing import CliRunner

from qevict_diag.analyses.regret import MEASURED, regret
from qevict_diag.analyses.sweeps import sweep_table
from qevict_diag.cli.app import app
from qevict_diag.errors import InputError
from qevict_diag.measure.traces import measure
from qevict_diag.policies.arms import BOUNDED, bounds
from qevict_diag.policies.catalogue import policies
from qevict_diag.sweep import read, run
from qevict_diag.trace.trace import Trace


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    traces = write_traces(tmp_path_factory.mktemp("traces"), layers=2)
    return small_sweep(traces, policies=("R2", "R3", "R3-one-way"), bits=(2, 4), regret=True)


@pytest.fixture(scope="module")
def folder(sweep, tmp_path_factory):
    out = tmp_path_factory.mktemp("sweep")
    run(sweep, out)
    return out


@pytest.fixture(scope="module")
def table(folder):
    frames = read(folder)
    return sweep_table(frames.measurements.collect(), frames.bytes.collect())


def test_every_setting_has_the_regret_that_measuring_it_alone_has(sweep, table):
    traces = [Trace.open(path) for path in sweep.traces]
    for setting in sweep.settings():
        chosen = policies([name for name in setting.policies if "[" not in name], window=setting.window)
        settings = setting.settings(SMALL)
        alone = measure(traces, chosen, MEASURED, settings, also=[(bounds(chosen), BOUNDED)]).frame
        expected = {row["policy"]: row for row in regret(alone).to_dicts()}
        here = pl.col("quantized_fraction").is_null() if setting.bits is None else pl.col("bits") == setting.bits
        found = table.filter(here, budget=str(setting.budget), window=setting.window)
        for one in chosen:
            row = found.filter(policy=one.name).row(0, named=True)
            for name in ("chance", "regret", "regret_low", "closed", "closed_high"):
                assert row[name] == pytest.approx(expected[one.name][name]), (setting, one.name, name)


def test_bounds_bound_themselves(table):
    optimum = table.filter(pl.col("policy").str.ends_with("[irreversible]"))
    assert optimum["regret"].abs().max() == 0
    assert (optimum["closed"] - 1).abs().max() == pytest.approx(0, abs=1e-12)
    assert set(optimum["policy"]) == {"R2[irreversible]", "R3[irreversible]"}
    assert table["regret"].min() >= 0
    assert (table["chance"] > optimum["estimate"].min()).all()


def test_a_sweep_that_replayed_random_policies_instead_of_chance_is_read_as_it_is(sweep, tmp_path):
    """What older sweeps hold: their chance is the mean over the draws."""
    older = replace(sweep, policies=("R2", "R3", "R2[random]", "R3[random]"), bits=(2,), budgets=("1/2",), draws=3)
    run(older, tmp_path)
    frames = read(tmp_path)
    table = sweep_table(frames.measurements.filter(metric="fmm").collect(), frames.bytes.collect())
    drawn = table.filter(pl.col("policy").str.ends_with("[random]"))
    assert len(drawn) == 2 * 2
    assert drawn["closed"].abs().max() == pytest.approx(0, abs=1e-12)
    assert drawn["chance"].to_list() == pytest.approx(drawn["estimate"].to_list())


def test_regret_needs_the_missed_mass(sweep):
    with pytest.raises(InputError, match="sweep the metric fmm too"):
        small_sweep(sweep.traces, options=type(SMALL)(("churn",)), regret=True)


def test_other_metrics_have_no_regret(folder):
    frames = read(folder)
    found = sweep_table(frames.measurements.collect(), frames.bytes.collect(), "churn")
    assert found["regret"].is_null().all()
    assert found["estimate"].is_not_null().all()


def test_the_command_prints_what_the_table_says(folder, table, tmp_path):
    out = tmp_path / "table.csv"
    result = CliRunner().invoke(app, ["sweep-table", str(folder), "--json", "--out", str(out)])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert [row["policy"] for row in rows] == table["policy"].to_list()
    assert pl.read_csv(out)["estimate"].to_list() == pytest.approx(table["estimate"].to_list())
    printed = CliRunner().invoke(app, ["sweep-table", str(folder)]).stdout
    assert "R3[irreversible]" in printed
    assert CliRunner().invoke(app, ["sweep-table", str(folder), "--metric", "nothing"]).exit_code != 0


def test_a_sweep_in_which_nothing_fits_is_refused(sweep, tmp_path):
    with pytest.raises(InputError, match="no setting of the sweep fits any trace"):
        run(small_sweep(sweep.traces, budgets=("1/50",), skip_impossible=True), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_device_that_is_not_there_claims_no_folder(sweep, tmp_path):
    with pytest.raises(InputError, match="device 'cuda:99' is not there"):
        run(small_sweep(sweep.traces, options=replace(SMALL, device="cuda:99")), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_model_that_the_sweep_has_not_names_those_it_has(folder):
    with pytest.raises(InputError, match="model 'other' is not in this sweep; there are random"):
        read(folder).of("other")


def test_policies_with_windows_of_their_own_don_t_hide_what_varies(sweep, tmp_path):
    traces = sweep.traces
    grid = small_sweep(traces, policies=("R2", "R3"), windows=(), bits=(2, 4), budgets=("1/2",))
    run(grid, tmp_path / "sweep")
    done = CliRunner().invoke(
        app, ["sweep-figure", "sensitivity", str(tmp_path / "sweep"), "--out", str(tmp_path / "x.svg")]
    )
    assert done.exit_code == 0, done.output


def test_the_m_that_the_sweep_was_asked_for_is_shown(sweep, tmp_path):
    options = replace(SMALL, metrics=("lir",), min_inactive=2)
    run(small_sweep(sweep.traces, policies=("R3",), budgets=("1/2",), windows=(4,), options=options), tmp_path / "lir")
    frames = read(tmp_path / "lir")
    assert frames.min_inactive == 2
    rows = frames.measurements.collect()
    table = sweep_table(rows, frames.bytes.collect(), "lir", frames.min_inactive).filter(policy="R3")
    shown = rows.filter(metric="lir", policy="R3", group="policy", reading="", lag=2)
    assert (table["lag"][0], table["group"][0]) == (2, "policy")
    assert table["estimate"][0] == pytest.approx(shown["numerator"].sum() / shown["denominator"].sum())
