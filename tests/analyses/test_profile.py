"""Layer by layer and head by head: what means over them hide."""

import frames
import numpy as np
import polars as pl
import pytest

from qevict_diag.analyses import profile
from qevict_diag.figures import layers


@pytest.fixture(scope="module")
def frame():
    return frames.measurements(traces=3)


def test_a_layer_has_its_mean_and_that_of_each_article(frame):
    row = profile.by_layer(frame).filter(policy="R3", layer=2).row(0, named=True)
    own = frame.filter(metric="fmm", policy="R3", layer=2)
    assert row["estimate"] == pytest.approx(own["value"].mean())
    means = own.group_by("trace").agg(pl.col("value").mean()).sort("trace")["value"].to_list()
    assert row["by_article"] == pytest.approx(means)


def test_a_mass_ratio_is_a_ratio_of_sums(frame):
    row = profile.by_layer(frame, "mass_ratio", "pooled").filter(policy="R3", layer=1).row(0, named=True)
    own = frame.filter(metric="mass_ratio", policy="R3", layer=1)
    assert row["estimate"] == pytest.approx(own["numerator"].sum() / own["denominator"].sum())


def test_one_head_that_loses_everything_shows_although_the_mean_is_low(frame):
    lost = (pl.col("layer") == 3) & (pl.col("head") == 1) & (pl.col("metric") == "fmm") & (pl.col("policy") == "R3")
    row = profile.worst_heads(frame.with_columns(value=pl.when(lost).then(0.9).otherwise("value")))
    row = row.filter(policy="R3").row(0, named=True)
    assert (row["layer"], row["head"], row["worst"]) == (3, 1, pytest.approx(0.9))
    assert row["mean"] < 0.3
    assert row["head_50"] == pytest.approx(0.2, abs=0.01)
    assert row["event_90"] == pytest.approx(0.9)


def test_undefined_events_are_left_out_and_undefined_layers_are_null(frame):
    gone = (pl.col("layer") == 0) & (pl.col("metric") == "fmm")
    holed = frame.with_columns(value=pl.when(gone).then(np.nan).otherwise("value"))
    row = profile.by_layer(holed).filter(policy="R1", layer=0).row(0, named=True)
    assert (row["estimate"], row["by_article"]) == (None, [None] * 3)
    assert 0 not in profile.worst_heads(holed)["layer"]


def test_the_figure_draws_a_line_for_each_condition_and_a_dot_for_each_article(frame):
    left, middle, right = layers.figure_layers(frame).axes
    assert [line.get_label() for line in left.lines] == ["R1", "R2", "R3", "R4"]
    for ax in (middle, right):
        assert [line.get_label() for line in ax.lines if not line.get_label().startswith("_")] == ["R3", "R4"]
    bias = profile.by_layer(frame.filter(pl.col("policy").is_in(("R3", "R4"))), "logit_bias", "pooled")[
        "estimate"
    ].to_list()
    thin = [float(y) for line in right.lines if line.get_linewidth() == 0.6 for y in line.get_ydata()]
    assert thin == pytest.approx(bias)
    by_layer = profile.by_layer(frame).filter(policy="R3")
    assert left.lines[2].get_ydata() == pytest.approx(by_layer["estimate"].to_numpy() * 100)
    assert [len(dots.get_offsets()) for dots in left.collections] == [3 * 4] * 4
