"""Write a comparison: the table in every format, the picture, and the rows behind them."""

from pathlib import Path

from qevict_diag import files
from qevict_diag.figures.comparison import figure
from qevict_diag.figures.report.write import write_table
from qevict_diag.figures.style import FORMATS, save
from qevict_diag.figures.tables.sheet import Sheet
from qevict_diag.frame_files import write_frame
from qevict_diag.measure.traces import Measurements


def write(made: Sheet, found: Measurements, out: Path) -> list[Path]:
    """Write everything into ``out``, all of it or nothing; the paths. InputError where that cannot be written."""
    drawn = figure(made.frame)
    with files.replacing_set(out) as folder:
        written = write_table(made, folder)
        written += [save(drawn, folder / f"compare.{ending}") for ending in FORMATS]
        written += [write_frame(found.frame, folder / "measurements.parquet")]
        written += [write_frame(found.bytes, folder / "bytes.parquet")]
    return [out / path.name for path in written]
