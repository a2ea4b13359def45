"""A distribution shows every defined value of a metric, and each article's own number."""

import frames
import numpy as np
import polars as pl
import pytest
from matplotlib.colors import to_rgb

from qevict_diag.errors import MetricError
from qevict_diag.figures.distribution import plot_distribution
from qevict_diag.figures.style import POLICY_COLORS
from qevict_diag.replay.settings import Settings


@pytest.fixture(scope="module")
def frame():
    return frames.measurements(traces=3, policies=("R2", "R3"), noise=0.05)


@pytest.fixture(scope="module")
def ax(frame):
    return plot_distribution(frame)


def violins(ax):
    return [part for part in ax.collections if len(part.get_paths()) and not len(part.get_offsets()) > 1]


def dots(ax):
    """Points of each policy's articles."""
    return [part.get_offsets() for part in ax.collections if len(part.get_offsets()) > 1]


def test_a_violin_ends_where_the_values_do(ax, frame):
    shapes = violins(ax)
    assert len(shapes) == 2
    for shape, policy in zip(shapes, ("R2", "R3"), strict=True):
        values = frame.filter(metric="fmm", policy=policy)["value"].to_numpy() * 100
        ends = shape.get_paths()[0].vertices[:, 0]
        assert (ends.min(), ends.max()) == pytest.approx((values.min(), values.max()))
        assert tuple(shape.get_facecolor()[0][:3]) == pytest.approx(to_rgb(POLICY_COLORS[policy]))


def test_dashes_are_the_quartiles(ax, frame):
    values = frame.filter(metric="fmm", policy="R2")["value"].to_numpy() * 100
    drawn = sorted({line.get_xdata()[0] for line in ax.get_lines() if len(line.get_xdata())})[-3:]
    assert drawn == pytest.approx(np.quantile(values, (0.25, 0.5, 0.75)))


def test_dots_are_the_articles_own_means(ax, frame):
    for policy, points in zip(("R2", "R3"), dots(ax), strict=True):
        own = frame.filter(metric="fmm", policy=policy).group_by("trace").agg(pl.col("value").mean())["value"] * 100
        assert sorted(points[:, 0]) == pytest.approx(sorted(own))
    assert [label.get_text() for label in ax.get_yticklabels()] == ["R2", "R3"]


def test_an_articles_ratio_is_one_of_sums_where_counts_are_pooled(frame):
    (points,) = dots(plot_distribution(frame, "mass_ratio"))
    own = frame.filter(metric="mass_ratio").group_by("trace").agg(r=pl.col("numerator").sum() / pl.sum("denominator"))
    assert sorted(points[:, 0]) == pytest.approx(sorted(own["r"]))


def test_global_lir_is_of_the_policy_at_the_settings_m(frame):
    (points,) = dots(plot_distribution(frame, "lir", Settings(min_inactive=4)))
    assert points[:, 0].tolist() == pytest.approx([6.0] * 3)


def test_one_value_and_undefined_ones(frame):
    flat = frame.filter(metric="fmm", policy="R2").with_columns(value=pl.lit(0.25))
    points = dots(plot_distribution(flat))[0]
    assert points[:, 0].tolist() == pytest.approx([25.0] * 3)
    with pytest.raises(MetricError, match="no defined value of metric fmm"):
        plot_distribution(flat.with_columns(value=pl.lit(float("nan"))))
