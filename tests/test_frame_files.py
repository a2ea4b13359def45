"""Frames as files: read back they are what they were, and a full disk under any writer is one line."""

import contextlib
import resource

import numpy as np
import polars as pl
import pytest
from disk_traces import write_trace
from matplotlib.figure import Figure
from polars.testing import assert_frame_equal

from qevict_diag import files, frame_files
from qevict_diag.errors import InputError
from qevict_diag.figures import style
from qevict_diag.trace.export import export_parquet
from qevict_diag.trace.trace import Trace

READERS = {".parquet": pl.read_parquet, ".csv": pl.read_csv, ".json": pl.read_json}


@pytest.fixture
def full():
    """A context in which no file grows beyond 2000 bytes, as on a disk that fills up."""

    @contextlib.contextmanager
    def limited():
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    return limited


@pytest.fixture(scope="module")
def large():
    rng = np.random.default_rng(0)
    return pl.DataFrame({"policy": ["R1", "R3[random:2]"] * 5000, "value": rng.random(10_000)})


@pytest.mark.parametrize("ending", frame_files.ENDINGS)
def test_a_frame_comes_back_as_it_was(large, tmp_path, ending):
    path = frame_files.write_frame(large, tmp_path / f"x{ending}")
    assert_frame_equal(READERS[ending](path), large)


def test_cells_of_a_csv_are_text():
    frame = pl.DataFrame({"trace": ["=1+1", "a\r\nb\x1b", None, "-1", "@x"], "value": [-1.0, 2.0, None, 4.0, 5.0]})
    found = pl.read_csv(frame_files.csv_text(frame).encode(), schema_overrides={"trace": pl.String})
    assert found["trace"].to_list() == ["'=1+1", "a b\ufffd", None, "-1", "'@x"]
    assert found["value"].to_list() == frame["value"].to_list()


def test_another_ending_is_refused_before_the_work(tmp_path):
    with pytest.raises(InputError, match=r"must end in one of \.parquet, \.csv, \.json"):
        frame_files.check_frame_file(tmp_path / "x.txt")


@pytest.mark.parametrize("ending", frame_files.ENDINGS)
def test_a_full_disk_under_a_frame_is_one_line(large, tmp_path, full, ending):
    path = tmp_path / f"x{ending}"
    with full(), pytest.raises(InputError, match=r"cannot write .*x\..* \([A-Z][a-z ]+\); make room") as told:
        frame_files.write_frame(large, path)
    assert "\n" not in str(told.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("rows", [1, 20, 100, 300, 1000])
def test_a_disk_that_fills_up_anywhere_in_a_frame_is_one_line(large, tmp_path, full, rows):
    """Within a page, polars tells of a transport that failed, and no more."""
    frame = pl.DataFrame({f"{name}{number}": large[name][:rows] for number in range(40) for name in large.columns})
    with full(), pytest.raises(InputError, match=r"cannot write .*x\.parquet \([A-Z].*\); make room"):
        frame_files.write_frame(frame, tmp_path / "x.parquet")


@pytest.mark.parametrize("ending", style.FORMATS)
def test_a_full_disk_under_a_picture_is_one_line(tmp_path, full, ending):
    figure = Figure()
    figure.add_subplot().plot(range(1000))
    with full(), pytest.raises(InputError, match=r"cannot write .* \(File too large\); make room"):
        style.save(figure, tmp_path / f"x.{ending}")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_under_an_export_is_one_line(tmp_path, full):
    trace = Trace.open(write_trace(tmp_path / "trace", prefill=60, decode=40))
    with full(), pytest.raises(InputError, match=r"cannot write .*new \(File too large\); make room"):
        export_parquet(trace, tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["trace"]


@pytest.mark.parametrize(
    ("size", "words"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1_234_567, "1.23 MB"), (999_600, "1 MB"), (5 * 10**12, "5000 GB")],
)
def test_sizes_in_words(size, words):
    assert files.size_in_words(size) == words
