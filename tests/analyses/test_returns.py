"""The survival curve of time to return, from measurements."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from qevict_diag.analyses.returns import curves, returned
from qevict_diag.cache.budget import Budget
from qevict_diag.errors import MetricError
from qevict_diag.figures.returns import plot_returns
from qevict_diag.measure.traces import measure
from qevict_diag.replay.settings import Settings
from qevict_diag.testing.traces import random_trace

SETTINGS = Settings(budget=Budget("1/2", sinks=2, recent=6), horizon=8)


@pytest.fixture(scope="module")
def frame():
    traces = [random_trace(seed, prefill=50, decode=40, name=f"t{seed}") for seed in (1, 2)]
    return measure(traces, ["R1", "R3"], ["lir"], replace(SETTINGS, min_inactive=2)).frame


def test_every_eligible_episode_is_in_the_curve_once(frame):
    for (name, reading, group, lag), curve in curves(frame).items():
        rows = frame.filter(metric="lir", policy=name, reading=reading, group=group, lag=lag)
        assert lag == 2
        assert curve.returned.sum() == rows["numerator"].sum()
        assert (curve.at_risk[0] if curve.time.size else 0) == rows["denominator"].sum()


def test_times_of_the_rescued_are_the_times_to_return(frame):
    where = {"policy": "R1", "group": "oracle", "lag": 2, "reading": ""}
    times = np.sort(frame.filter(metric="return_time", **where)["value"].to_numpy())
    curve = curves(frame)["R1", "", "oracle", 2]
    np.testing.assert_array_equal(np.repeat(curve.time, curve.returned), times)


def test_censoring_raises_the_share_that_returns_above_the_plain_rate(frame):
    """An open episode leaves the watch instead of counting as a failure."""
    rows = frame.filter(metric="lir", policy="R1", group="oracle", lag=2, reading="")
    plain = rows["numerator"].sum() / rows["denominator"].sum()
    last = returned(frame).filter(policy="R1", group="oracle", reading="")["returned"].max()
    assert plain < last <= 1


def test_without_episodes_there_is_nothing_to_draw(frame):
    with pytest.raises(MetricError, match="episodes"):
        curves(frame.filter(pl.col("metric") != "episodes"))


def test_the_picture_holds_the_curves(frame):
    axes = plot_returns(frame)
    table = returned(frame).filter(policy="R1", group="oracle", reading="")
    line = next(line for line in axes.get_lines() if line.get_label() == "R1, oracle")
    np.testing.assert_allclose(line.get_ydata()[1:], table["returned"].to_numpy() * 100)
    assert line.get_ydata()[0] == 0
    with pytest.raises(MetricError, match="eligible"):
        plot_returns(frame, reading="scope=head")
