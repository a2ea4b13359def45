"""Sums over (article, layer) cells: means count what is defined, pooled rates add up, pairs share their draws."""

import math

import frames
import numpy as np
import polars as pl
import pytest
import scipy

from qevict_diag.analyses import estimates as cells
from qevict_diag.errors import MetricError
from qevict_diag.statistics.intervals import NOTHING, ONE_ARTICLE, minus


@pytest.fixture(scope="module")
def frame():
    return frames.measurements(policies=("R1", "R3"))


def rows(values, metric="fmm"):
    base = frames.measurements(traces=1, layers=1, heads=1, decode=8 * len(values), policies=("R2",))
    return base.filter(pl.col("metric") == metric).with_columns(value=pl.Series(values))


def test_a_mean_leaves_undefined_values_out_and_counts_them():
    measured = rows([0.2, math.nan, 0.4])
    found = cells.estimates(measured, cells.sample(measured), ("policy",), "mean").row(0, named=True)
    assert found["estimate"] == pytest.approx(0.3)
    assert (found["count"], found["undefined"]) == (2, 1)


def test_all_undefined_is_undefined():
    measured = rows([math.nan, math.nan])
    found = cells.estimates(measured, cells.sample(measured), ("policy",), "mean").row(0, named=True)
    assert math.isnan(found["estimate"])


def test_mean_of_ratios_and_ratio_of_sums_differ():
    measured = rows([0.5, 0.0]).with_columns(numerator=pl.Series([1.0, 0.0]), denominator=pl.Series([2.0, 98.0]))
    over = cells.sample(measured)
    mean, pooled = (cells.estimates(measured, over, ("policy",), how)["estimate"][0] for how in ("mean", "pooled"))
    assert mean == pytest.approx(0.25)
    assert pooled == pytest.approx(0.01)


def test_the_sample_holds_every_article_and_layer(frame):
    over = cells.sample(frame)
    assert (over.traces, over.layers) == (("article-0", "article-1"), (0, 1, 2, 3))


def test_cells_land_where_they_belong(frame):
    over = cells.sample(frame)
    fmm = cells.rows_of(frame, "fmm")
    block = cells.cells(fmm, over, ("policy",), "mean")
    for at, (policy,) in enumerate(block.keys.rows()):
        for a, trace in enumerate(over.traces):
            for b, layer in enumerate(over.layers):
                part = fmm.filter(policy=policy, trace=trace, layer=layer)
                assert block.numerator[at, a, b] == pytest.approx(part["value"].sum())
                assert block.denominator[at, a, b] == len(part)


def test_the_order_of_the_rows_does_not_matter(frame):
    shuffled = frame.sample(fraction=1, shuffle=True, seed=1)
    fmm = [cells.estimates(cells.rows_of(f, "fmm"), cells.sample(f), ("policy",), "mean") for f in (frame, shuffled)]
    assert fmm[0].select("low", "high").to_numpy() == pytest.approx(fmm[1].select("low", "high").to_numpy())


def test_a_mean_has_the_t_interval_of_its_article_means(frame):
    found = cells.estimates(cells.rows_of(frame, "fmm", policy="R3"), cells.sample(frame), ("policy",), "mean")
    means = frame.filter(metric="fmm", policy="R3").group_by("trace").agg(pl.col("value").mean())["value"].to_numpy()
    expected = scipy.stats.ttest_1samp(means, 0).confidence_interval(0.95)
    assert found.select("low", "high").row(0) == pytest.approx((expected.low, expected.high))


def test_the_spread_over_layers_is_that_of_the_layers_means(frame):
    found = cells.estimates(cells.rows_of(frame, "fmm", policy="R3"), cells.sample(frame), ("policy",), "mean")
    means = frame.filter(metric="fmm", policy="R3").group_by("layer").agg(pl.col("value").mean())["value"].to_numpy()
    assert found["layer_sd"][0] == pytest.approx(np.std(means))


def test_stacked_quantities_are_compared_on_the_same_articles(frame):
    over = cells.sample(frame)
    parts = [cells.cells(cells.rows_of(frame, "fmm", policy=name), over, ("policy",), "mean") for name in ("R1", "R3")]
    found = cells.stacked(parts).statistic(minus)
    fmm = frame.filter(metric="fmm").group_by("policy", "trace").agg(pl.col("value").mean()).sort("policy", "trace")
    first, second = (fmm.filter(policy=name)["value"].to_numpy() for name in ("R1", "R3"))
    assert found.alone == pytest.approx(first - second)
    assert found.p_value() == pytest.approx(scipy.stats.ttest_rel(first, second).pvalue)


def test_the_window_is_read_off_steps_and_events(frame):
    assert dict(cells.window_of(frame).rows()) == {"R1": 1, "R3": 8}


def test_what_was_not_measured_is_an_error(frame):
    with pytest.raises(MetricError, match="no measurement of metric qsa, policy R1; measure it first"):
        cells.rows_of(frame, "qsa", policy="R1")
    with pytest.raises(MetricError, match="no measurement to analyse"):
        cells.sample(frame.clear())


def test_articles_without_a_row_are_not_counted(frame):
    """A setting that one of two articles has not been measured at has one article, and so no interval."""
    both = cells.sample(frame)
    one = frame.filter(pl.col("metric") == "fmm", pl.col("trace") == "article-0")
    found = cells.estimates(one, both, ("policy",), "mean")
    assert found["n"].to_list() == [1, 1]
    assert found["low"].is_nan().all()
    assert set(found["method"]) == {ONE_ARTICLE}
    nothing = cells.estimates(one.with_columns(value=pl.lit(math.nan)), both, ("policy",), "mean")
    assert set(nothing["method"]) == {NOTHING}
