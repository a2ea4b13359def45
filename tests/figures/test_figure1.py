"""The artists hold the data: lines, bands, bars and labels are read back from the figure."""

import frames
import numpy as np
import polars as pl
import pytest
from matplotlib.collections import PolyCollection

from qevict_diag.analyses import observation1, observation2
from qevict_diag.errors import InputError
from qevict_diag.figures import figure1, style


@pytest.fixture(scope="module")
def frame():
    return frames.measurements(decode=64, policies=figure1.POLICIES)


@pytest.fixture(scope="module")
def left(frame):
    return figure1.plot_figure1(frame).axes[0]


@pytest.fixture(scope="module")
def right(frame):
    return figure1.plot_mass_shares(frame)


def lines(axes):
    return {line.get_label(): line for line in axes.get_lines() if not line.get_label().startswith("_")}


def test_one_line_for_each_policy_with_its_series_in_percent(frame, left):
    drawn, series = lines(left), observation1.series(frame).sort("step")
    assert set(drawn) == set(figure1.POLICIES)
    for policy, line in drawn.items():
        rows = series.filter(pl.col("policy") == policy)
        assert np.asarray(line.get_xdata()) == pytest.approx(rows["step"].to_numpy())
        assert np.asarray(line.get_ydata()) == pytest.approx(rows["estimate"].to_numpy() * 100)


def test_a_panel_shows_every_policy_it_is_given(frame):
    other = frame.filter(pl.col("policy") == "R3").with_columns(policy=pl.lit("R3[random]"))
    assert set(lines(figure1.plot_fmm(pl.concat([frame, other])))) == {*figure1.POLICIES, "R3[random]"}


def test_bands_are_the_intervals(frame, left):
    bands = [item for item in left.collections if isinstance(item, PolyCollection)]
    assert len(bands) == len(figure1.POLICIES)
    r1 = observation1.series(frame).filter(policy="R1")
    heights = bands[0].get_paths()[0].vertices[:, 1]
    assert heights.max() == pytest.approx(r1["high"].max() * 100)
    assert heights.min() == pytest.approx(r1["low"].min() * 100)


def test_churn_per_event_is_annotated(left):
    texts = [text.get_text() for text in left.texts]
    assert " churn 0.0170 per event" in texts
    assert any(text.startswith(" R4, Ω = 32") for text in texts)


def test_policies_keep_their_colours(left):
    for policy, line in lines(left).items():
        assert line.get_color() == style.POLICY_COLORS[policy]


def test_labels_do_not_collide(left):
    heights = sorted(text.xy[1] for text in left.texts if hasattr(text, "xy") and text.get_text().startswith(" R"))
    assert np.diff(heights).min() >= left.get_ylim()[1] * 0.114


def test_bars_are_the_shares_and_the_published_ones_stand_beneath(frame, right):
    widths = [bar.get_width() for bar in right.patches]
    shares = observation2.mass_shares(frame)
    expected = []
    for policy in ("R2", "R3"):
        rows = shares.filter(pl.col("policy") == policy)
        expected += [*(rows["estimate"] * 100), *(rows["published"] * 100)]
    assert widths == pytest.approx(expected)
    tops = [bar.get_x() + bar.get_width() for bar in right.patches[3::4]]
    assert tops == pytest.approx([100, 100, 100, 99.9], abs=0.11)


def test_one_article_has_no_band_and_says_so():
    axes = figure1.plot_fmm(frames.measurements(traces=1))
    assert not [item for item in axes.collections if isinstance(item, PolyCollection)]
    assert any("no interval" in text.get_text() for text in axes.texts)


def test_it_draws_where_it_is_told(frame, left):
    axes = style.axes_of(None)
    assert figure1.plot_mass_shares(frame, ax=axes) is axes
    assert left.figure is not axes.figure


@pytest.mark.parametrize("ending", style.FORMATS)
def test_a_figure_is_written_whole_and_the_same_each_time(frame, tmp_path, ending):
    figure = figure1.plot_figure1(frame)
    first, second = (style.save(figure, tmp_path / f"{n}.{ending}").read_bytes() for n in "ab")
    assert first == second
    assert len(list(tmp_path.iterdir())) == 2


def test_another_ending_is_refused(frame, tmp_path):
    with pytest.raises(InputError, match=r"\.pdf, \.png, \.svg"):
        style.save(figure1.plot_figure1(frame), tmp_path / "figure1.gif")


def test_labels_are_spread_apart_and_keep_their_order():
    placed = style.spread_apart([1.0, 1.1, 5.0, 0.9], 1.0)
    assert np.diff(np.array(placed)[[3, 0, 1, 2]]).min() >= 1 - 1e-6


def test_the_style_leaves_no_trace():
    import matplotlib as mpl

    before = mpl.rcParams["font.size"]
    with style.style():
        assert mpl.rcParams["font.size"] == 7
    assert mpl.rcParams["font.size"] == before


def test_figure1_shows_the_papers_conditions_alone():
    figure = figure1.plot_figure1(frames.measurements(decode=64))
    assert set(lines(figure.axes[0])) == set(figure1.POLICIES)
    assert "R3-one-way" in lines(figure1.plot_fmm(frames.measurements(decode=64)))
