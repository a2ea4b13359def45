"""The search among combinations of readings finds the one that the numbers were made under."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from disk_traces import write_traces
from typer.testing import CliRunner

from qevict_diag.analyses import observation1, observation3
from qevict_diag.analyses.claims import sensitivity
from qevict_diag.analyses.claims.checks import Quantity
from qevict_diag.analyses.claims.grid import grid_of, needed, touching
from qevict_diag.analyses.claims.search import STAGE, ranked, search
from qevict_diag.analyses.claims.targets import Target, targets
from qevict_diag.cache.budget import Budget
from qevict_diag.cli.app import app
from qevict_diag.errors import InputError, ReadingError
from qevict_diag.measure.traces import measure
from qevict_diag.readings import READINGS, Readings
from qevict_diag.replay.settings import Settings
from qevict_diag.testing.traces import random_trace

SETTINGS = Settings(Budget("1/3", sinks=3, recent=6), horizon=8, min_inactive=2, dtype=torch.float64)
WORDS = ["score_queries", "score_age", "churn_set", "universe", "lir_episodes"]
PLANTED = Readings(score_age="per_query", churn_set="full", universe="accessible", lir_episodes="after_exit")
CHURN = Quantity("churn(R3)", "R3", "churn")
LIR = Quantity("LIR(policy)", "R3", "lir", "pooled", "policy", 2)
MOVES = Quantity("P01(1)", "R3", "transitions", "pooled", "01", 1)


@pytest.fixture(scope="module")
def given():
    named = enumerate([random_trace(seed, layers=2, prefill=70, decode=70) for seed in (1, 2, 3)])
    return sensitivity.by_setting([replace(trace, name=f"article-{number}") for number, trace in named])


@pytest.fixture(scope="module")
def planted(given):
    """The numbers under the planted combination, by the tables of the observations."""
    frame = measure(given["diagnostic"], ("R3",), ("all",), replace(SETTINGS, readings=PLANTED)).frame
    label = PLANTED.label()
    lir = observation3.lir(frame).filter(group="policy", lag=2, reading=label)["estimate"].item()
    moved = observation3.transitions(frame).filter(lag=1)["p01"].item()
    churn = observation1.churn(frame)["estimate"].item()
    return [Target(CHURN, churn), Target(LIR, lir), Target(MOVES, moved)]


@pytest.fixture(scope="module")
def found(given, planted):
    return search(given, SETTINGS, WORDS, planted, nearest=40)


def test_a_planted_combination_is_found_again(found):
    rows, tried = found
    assert tried == 2**5
    table = ranked(rows)
    first = table.row(0, named=True)
    assert (first["rank"], first["readings"]) == (1, PLANTED.label())
    assert first["distance"] == pytest.approx(0, abs=1e-9)
    known = table["distance"].drop_nans().to_list()
    assert known == sorted(known)
    assert table["distance"].tail(len(table) - len(known)).is_nan().all()  # undefined ones come last
    assert table["distance"][1] > 1e-3


def test_distances_are_in_half_widths_of_the_interval_where_nothing_is_varied(given, planted, found):
    usual = observation1.churn(measure(given["diagnostic"], ("R3",), ("churn",), SETTINGS).frame).row(0, named=True)
    rows = found[0].filter(readings="")
    row = rows.filter(number="churn(R3)").row(0, named=True)
    assert row["measured"] == pytest.approx(usual["estimate"])
    assert row["unit"] == pytest.approx((usual["high"] - usual["low"]) / 2)
    assert row["away"] == pytest.approx((usual["estimate"] - planted[0].published) / row["unit"])
    assert row["distance"] == pytest.approx(np.sqrt((rows["away"] ** 2).mean()))


def test_each_combination_measures_what_replaying_it_alone_measures(given, found):
    other = Readings(score_age="per_query", lir_episodes="after_exit")
    frame = measure(given["diagnostic"], ("R3",), ("transitions",), replace(SETTINGS, readings=other)).frame
    row = found[0].filter(readings=other.label(), number="P01(1)").row(0, named=True)
    assert row["measured"] == pytest.approx(observation3.transitions(frame).filter(lag=1)["p01"].item())


def test_where_nothing_is_varied_is_always_shown(given, planted):
    rows, _ = search(given, SETTINGS, ["score_queries", "churn_set"], planted, nearest=1)
    table = ranked(rows)
    assert table["readings"].to_list()[1:] == [""]
    assert table["rank"][1] > 1


def test_a_limit_is_met_by_any_value_below_it():
    below = Target(CHURN, 1.0, limit=True)
    assert (below.away(0.9), below.away(1.25)) == (0.0, 0.25)
    assert np.isnan(below.away(float("nan")))


def test_every_target_is_a_number_of_the_paper_at_its_lengths():
    early = {one.quantity.label: one.published for one in targets() if one.setting == "diagnostic"}
    assert (early["churn(R1)"], early["QSA(R3)"], early["P10(8)"], early["LIR(policy, m=3)"]) == (
        *(0.017, 0.9824, 0.2212, 0.0618),
    )
    late = {one.quantity.label: one.published for one in targets() if one.setting == "promotion"}
    assert (late["FMM(R3)"], late["R_Q(R3-one-way)"]) == (0.161, 0.887)


def test_words_say_what_is_varied_and_what_is_fixed():
    known = touching([CHURN, LIR])
    assert set(grid_of(["score_age"], known).varied) == {"score_age"}
    both = grid_of(["score_age", "score_queries=event"], known)
    assert [one.label() for one in both.combinations()] == [
        "score_queries=event",
        "score_queries=event,score_age=per_query",
    ]
    usual = set(grid_of([], known).varied)
    assert usual == {r.name for r in READINGS if r.stage == "replay"} - {"scope"} | {
        "churn_set",
        "universe",
        "lir_episodes",
    }
    assert "scope" in grid_of(["scope"], known).varied
    assert "levels" not in grid_of(["levels=clipped"], known).varied
    for words, told in ((["lag"], "changes no"), (["nothing"], "changes no"), (["levels", "levels=clipped"], "both")):
        with pytest.raises(ReadingError, match=told):
            grid_of(words, known)


def test_readings_that_a_number_does_not_depend_on_are_not_measured_again():
    one, two = Readings(churn_set="full", lag="first_passage"), Readings(churn_set="full", levels="clipped")
    r1 = Quantity("churn(R1)", "R1", "churn")
    assert needed(one, r1) == needed(two, r1) == Readings(churn_set="full")
    assert needed(two, CHURN) != needed(one, CHURN)


def test_one_article_has_no_unit(given, planted):
    one = {"diagnostic": given["diagnostic"][:1], "promotion": ()}
    with pytest.raises(InputError, match=r"one article at the diagnostic lengths \(article-0\) gives no interval"):
        search(one, SETTINGS, ["score_age"], planted)


def test_progress_reaches_its_total(given, planted):
    seen = []
    search(given, SETTINGS, ["score_age"], planted, progress=lambda *done: seen.append(done))
    assert seen[-1] == (STAGE, 3, 3)


def test_the_command_prints_the_nearest_and_that_it_is_not_identified(tmp_path):
    write_traces(tmp_path, layers=2, prefill=56, decode=48)
    words = ["readings", str(tmp_path), "--search", "--reading", "score_age", "--reading", "lag", "--quiet"]
    chosen = ["--budget", "1/2", "--horizon", "8", "--recent", "6"]
    told = CliRunner().invoke(app, [*words, *chosen])
    assert told.exit_code == 0, told.output
    assert "(nothing varied)" in told.output
    assert "Nearest is not identified: 4 combinations" in " ".join(told.output.split())
    rows = pl.DataFrame(json.loads(CliRunner().invoke(app, [*words, *chosen, "--json"]).stdout))
    assert rows["readings"].n_unique() == 4
    assert rows.filter(rank=1)["number"].is_unique().all()
    refused = CliRunner().invoke(app, [*words, *chosen, "--window", "4"])
    assert isinstance(refused.exception, InputError) or "--window" in refused.output
