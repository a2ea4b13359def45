"""Heat maps show the frame's means by layer and head, all policies on one scale, darker where there is more."""

import frames
import numpy as np
import polars as pl
import pytest
from matplotlib.colors import rgb_to_hsv

from qevict_diag.errors import MetricError
from qevict_diag.figures.heatmap import plot_heatmaps
from qevict_diag.figures.maps import HEAT, UNDEFINED


@pytest.fixture(scope="module")
def frame():
    return frames.measurements(layers=3, heads=4, policies=("R2", "R3"))


def cells(ax):
    return ax.collections[0].get_array()


def title(ax):
    return ax.get_title(loc="left")


def panels(figure):
    return [ax for ax in figure.axes if title(ax)]


def test_each_policy_has_a_map_of_means_over_articles_and_events(frame):
    axes = panels(plot_heatmaps(frame))
    assert [title(ax) for ax in axes] == ["R2", "R3"]
    for ax in axes:
        assert cells(ax).shape == (3, 4)
        own = frame.filter(metric="fmm", policy=title(ax), layer=2, head=1)
        assert cells(ax)[2, 1] == pytest.approx(own["value"].mean() * 100)


def test_all_maps_have_one_scale_from_the_least_to_the_largest_value(frame):
    axes = panels(plot_heatmaps(frame))
    drawn = np.concatenate([cells(ax).ravel() for ax in axes])
    assert {ax.collections[0].get_clim() for ax in axes} == {(drawn.min(), drawn.max())}


def test_pooled_metrics_are_ratios_of_sums(frame):
    (ax,) = panels(plot_heatmaps(frame, "mass_ratio"))
    own = frame.filter(metric="mass_ratio", policy="R3", layer=0, head=3)
    assert cells(ax)[0, 3] == pytest.approx(own["numerator"].sum() / own["denominator"].sum())


def test_without_heads_it_is_over_events_or_lags_of_the_shown_group(frame):
    churn, lir = (panels(plot_heatmaps(frame, name))[-1] for name in ("churn", "lir"))
    assert (churn.get_xlabel(), lir.get_xlabel()) == ("event", "lag")
    assert cells(lir)[0, 0] == pytest.approx(100 * 12 / 200)  # the policy's own selection, literal episodes


def test_what_is_undefined_has_a_colour_of_its_own(frame):
    hidden = (pl.col("layer") == 1) & (pl.col("head") == 2) & (pl.col("metric") == "fmm")
    partly = frame.with_columns(value=pl.when(hidden).then(float("nan")).otherwise("value"))
    ax = panels(plot_heatmaps(partly))[0]
    assert np.ma.getmaskarray(cells(ax))[1, 2]
    assert np.ma.getmaskarray(cells(ax)).sum() == 1
    hues = {rgb_to_hsv(HEAT(place)[:3])[0] for place in (0.3, 0.6, 0.9)}
    assert min(abs(hue - rgb_to_hsv(ax.get_facecolor()[:3])[0]) for hue in hues) > 0.3
    assert ax.get_facecolor()[:3] == pytest.approx([int(UNDEFINED[at : at + 2], 16) / 255 for at in (1, 3, 5)])


def test_colours_darken_steadily_so_that_they_read_without_colour():
    """Luminance falls all the way: hue carries nothing, whichever cones see it."""
    red, green, blue = HEAT(np.linspace(0, 1, 64))[:, :3].T
    luminance = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2
    assert (np.diff(luminance) < 0).all()
    assert luminance[0] - luminance[-1] > 0.8


def test_what_was_not_measured_is_told(frame):
    with pytest.raises(MetricError, match="no measurement of metric chance"):
        plot_heatmaps(frame, "chance")
