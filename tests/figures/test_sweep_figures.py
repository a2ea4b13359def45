"""Pictures of a sweep show the frame's numbers: artists' data, not pixels."""

import math

import numpy as np
import polars as pl
import pytest
from disk_traces import SMALL, write_traces
from matplotlib.figure import Figure
from typer.testing import CliRunner

from qevict_diag.cli.app import app
from qevict_diag.errors import InputError, MetricError
from qevict_diag.figures.sweep.heatmap import plot_heatmap
from qevict_diag.figures.sweep.pareto import plot_pareto
from qevict_diag.figures.sweep.points import held, points, with_chance
from qevict_diag.figures.sweep.sensitivity import plot_sensitivities, plot_sensitivity
from qevict_diag.sweep import Sweep, SweepFolder, read, run
from qevict_diag.sweep.grid import Options


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two articles, two values of every axis."""
    traces = write_traces(tmp_path_factory.mktemp("traces"), layers=2)
    options = Options(("fmm", "churn"), 2, SMALL.horizon, SMALL.sinks, SMALL.recent)
    grid = {"policies": ("R2", "R3"), "budgets": ("2/5", "1/2"), "windows": (2, 4), "bits": (2, 4)}
    out = tmp_path_factory.mktemp("sweep")
    run(Sweep(traces, **grid, quantized_fractions=("1/4", "1/2"), options=options), out)
    return out


@pytest.fixture(scope="module")
def frame(folder):
    return read(folder).measurements.collect()


@pytest.fixture(scope="module")
def used(folder):
    return read(folder).bytes.collect()


def lines(ax):
    return {line.get_label(): line for line in ax.get_lines() if not line.get_label().startswith("_")}


def mean(frame, metric="fmm", **where):
    return frame.filter(metric=metric, **where)["value"].drop_nans().mean() * 100


WHERE = {"budget": "2/5", "window": 4, "quantized_fraction": "1/2", "bits": 2}


def test_points_are_means(frame):
    found = points(frame)
    row = found.filter(policy="R3", **WHERE).row(0, named=True)
    assert row["estimate"] == pytest.approx(mean(frame, policy="R3", **WHERE))
    assert row["low"] < row["estimate"] < row["high"]
    assert len(found) == 2 * 2 * (1 + 4)  # budgets, windows: two tiers, and three at q × bits


def test_chance_stands_beside_missed_mass_once_for_each_arm(frame):
    found = with_chance(frame)
    assert set(found["policy"]) == {"R2", "R3", "R2[chance]", "R3[chance]"}
    row = found.filter(policy="R3[chance]", **WHERE).row(0, named=True)
    assert row["estimate"] == pytest.approx(mean(frame, "chance", policy="R3", **WHERE))
    more = frame.filter(policy="R3").with_columns(policy=pl.lit("R3-one-way"))
    assert with_chance(pl.concat([frame, more]))["policy"].value_counts().filter(policy="R3-one-way[chance]").is_empty()
    assert set(with_chance(frame.filter(metric="fmm"))["policy"]) == {"R2", "R3"}
    assert set(with_chance(frame, "churn")["policy"]) == {"R2", "R3"}


def test_draws_of_a_random_policy_are_pooled(folder, tmp_path):
    traces = tuple(trace["path"] for trace in SweepFolder(folder).manifest()["traces"])
    options = Options(("fmm",), 2, SMALL.horizon, SMALL.sinks, SMALL.recent)
    run(Sweep(traces, ("R3[random]",), ("1/2",), (4,), draws=3, options=options), tmp_path)
    frame = read(tmp_path).measurements.collect()
    row = points(frame).row(0, named=True)
    assert frame["seed"].unique().sort().to_list() == [0, 1, 2]
    assert row["estimate"] == pytest.approx(mean(frame))


def test_what_a_picture_fixes_is_the_papers_value_where_there_is_one(frame):
    kept = held(points(frame), ("budget",)).filter(policy="R3")
    assert kept.select("window", "quantized_fraction", "bits").unique().rows() == [(2, "1/2", 2)]
    others = frame.filter(pl.col("bits") == 4, pl.col("quantized_fraction") == "1/4")
    assert held(points(others), ("budget",))["bits"].unique().to_list() == [4]


def test_pareto_has_a_line_and_a_band_for_each_policy_at_the_bytes_used(frame, used):
    ax = plot_pareto(frame, used)
    drawn = lines(ax)
    assert list(drawn) == ["R2", "R3", "R2[chance]", "R3[chance]"]
    assert len(ax.collections) == 4 + 1  # bands, and the settings off the lines
    where = {"policy": "R3", "window": 2, "quantized_fraction": "1/2", "bits": 2}
    shares = [used.filter(budget=b, **where)["share_peak"].mean() * 100 for b in ("2/5", "1/2")]
    np.testing.assert_allclose(drawn["R3"].get_xdata(), shares)
    values = [mean(frame, budget=b, **where) for b in ("2/5", "1/2")]
    np.testing.assert_allclose(drawn["R3"].get_ydata(), values)


def test_nothing_beats_the_front(frame, used):
    ax = plot_pareto(frame, used)
    front = next(line for line in ax.get_lines() if line.get_label() == "_front")
    x, y = front.get_xdata(), front.get_ydata()
    assert (np.diff(x) >= 0).all()
    assert (np.diff(y) < 0).all()
    bytes_of = used.group_by("policy", "budget", "window", "quantized_fraction", "bits").agg(
        share=pl.col("share_peak").mean() * 100
    )
    every = points(frame).join(
        bytes_of, on=["policy", "budget", "window", "quantized_fraction", "bits"], nulls_equal=True
    )
    for share, value in every.select("share", "estimate").rows():
        assert y[x <= share + 1e-9].min() <= value + 1e-9


@pytest.mark.parametrize(
    ("name", "ticks"), [("window", ["2", "4"]), ("quantized_fraction", ["1/4", "1/2"]), ("bits", ["2", "4"])]
)
def test_sensitivity_moves_one_axis_and_holds_the_others(frame, name, ticks):
    ax = plot_sensitivity(frame, name)
    assert [label.get_text() for label in ax.get_xticklabels()] == ticks
    fixed = {"budget": "2/5", "window": 2, "quantized_fraction": "1/2", "bits": 2}
    typed = [tick if name == "quantized_fraction" else int(tick) for tick in ticks]
    values = [mean(frame, policy="R3", **{**fixed, name: tick}) for tick in typed]
    np.testing.assert_allclose(lines(ax)["R3"].get_ydata(), values)
    assert ("R2" in lines(ax)) == (name == "window")  # two tiers have neither q nor bits


def test_all_sensitivities_share_one_figure(frame):
    figure = plot_sensitivities(frame)
    assert isinstance(figure, Figure)
    assert [ax.get_title(loc="left")[:3] for ax in figure.axes] == ["(a)", "(b)", "(c)"]


def test_one_value_of_an_axis_has_no_sensitivity(frame):
    with pytest.raises(InputError, match="one value of bits"):
        plot_sensitivity(frame.filter(pl.col("bits").is_null() | (pl.col("bits") == 2)), "bits")
    with pytest.raises(InputError, match="neither window"):
        plot_sensitivities(frame.filter(policy="R2", window=2))
    with pytest.raises(InputError, match="there are window"):
        plot_sensitivity(frame, "layer")


def test_the_heat_map_is_layer_by_head(frame):
    image = plot_heatmap(frame).collections[0].get_array()
    assert image.shape == (2, 4)
    fixed = {"policy": "R3", "budget": "2/5", "window": 2, "quantized_fraction": "1/2", "bits": 2}
    assert image[1, 3] == pytest.approx(mean(frame, layer=1, head=3, **fixed))


def test_a_metric_without_heads_is_mapped_over_events_or_lags(frame):
    churn = plot_heatmap(frame, "churn")
    assert churn.get_xlabel() == "event"


def test_a_pooled_metric_is_mapped_over_lags_as_ratios_of_sums(folder, tmp_path):
    traces = tuple(trace["path"] for trace in SweepFolder(folder).manifest()["traces"])
    options = Options(("lir",), 2, SMALL.horizon, SMALL.sinks, SMALL.recent)
    run(Sweep(traces, ("R3",), ("1/2",), (2,), options=options), tmp_path)
    frame = read(tmp_path).measurements.collect()
    drawn = plot_heatmap(frame, "lir")
    assert (drawn.get_xlabel(), drawn.collections[0].get_array().shape[0]) == ("lag", 2)
    rows = frame.filter(metric="lir", group="policy", policy="R3", lag=2, layer=0, reading="")
    expected = rows["numerator"].sum() / rows["denominator"].sum() * 100
    assert drawn.collections[0].get_array()[0, 1] == pytest.approx(expected)


def test_models_are_not_mixed(frame):
    other = frame.with_columns(model=pl.lit("another"))
    with pytest.raises(InputError, match="a sweep of 2 models"):
        points(pl.concat([frame, other]))
    with pytest.raises(MetricError, match="no measurement of metric qsa"):
        points(frame, "qsa")


def test_one_article_draws_no_band_and_says_so(frame, used):
    one = pl.col("trace") == "article-0"
    ax = plot_pareto(frame.filter(one), used.filter(one))
    assert math.isnan(points(frame.filter(one))["low"][0])
    assert any("one article: no interval" in text.get_text() for text in ax.texts)
    assert len(ax.collections) == 1


@pytest.mark.parametrize("kind", ["pareto", "sensitivity", "heatmap"])
def test_the_command_draws_each_kind(folder, tmp_path, kind):
    out = tmp_path / f"{kind}.svg"
    result = CliRunner().invoke(app, ["sweep-figure", kind, str(folder), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert out.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["pie", "{}", "--out", "x.png"], "there are pareto, sensitivity, heatmap"),
        (["heatmap", "{}", "--out", "x.bmp"], "ending must be one of"),
        (["heatmap", "{}", "--out", "x.png", "--metric", "nothing"], "metric 'nothing'"),
    ],
)
def test_the_command_refuses_what_it_cannot_draw(folder, words, told):
    result = CliRunner().invoke(app, ["sweep-figure", *(word.format(folder) for word in words)])
    assert isinstance(result.exception, InputError)
    assert told in str(result.exception)
