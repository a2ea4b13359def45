"""Read a sweep back: two lazy frames, over parts that were checked against their receipts."""

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from qevict_diag.errors import SweepError
from qevict_diag.frames import BYTES, MEASUREMENTS
from qevict_diag.sweep.folder import SweepFolder
from qevict_diag.sweep.work import SWEPT

PEAKS = ("used_bytes", "used_share", "persistent_ratio", "persistent_ratio_with_ledger")
BYTE_COLUMNS: dict[str, pl.DataType] = {"model": pl.String(), **BYTES, **SWEPT}


@dataclass(frozen=True, eq=False)
class SweepFrames:
    """``measurements`` has the columns of `MEASUREMENTS` and `SWEPT`; ``bytes`` those of `BYTES`, `SWEPT` and model.

    Rows come in the order of the grid, whoever computed them.
    """

    measurements: pl.LazyFrame
    bytes: pl.LazyFrame

    def of(self, model: str | None) -> "SweepFrames":
        """The frames of one model alone; all of it for None."""
        if model is None:
            return self
        return SweepFrames(self.measurements.filter(model=model), self.bytes.filter(model=model))


def read(folder: str | Path, *, partial: bool = False) -> SweepFrames:
    """Open a sweep's results. SweepError when parts are missing or damaged, unless ``partial`` leaves those out."""
    target = SweepFolder(Path(folder))
    names = [str(name) for name in target.manifest().get("parts", [])]
    whole = [name for name in names if target.has(name)]
    if len(whole) < len(names) and not partial:
        raise SweepError(
            f"{folder}: {len(names) - len(whole)} of {len(names)} parts are missing or damaged; give the same sweep "
            "again to compute them"
        )
    used = [row for name in whole for row in (target.receipt(name) or {})["use"]]
    return SweepFrames(_measurements(target, whole), _peaks(pl.DataFrame(used, schema=BYTE_COLUMNS).lazy()))


def _measurements(target: SweepFolder, names: list[str]) -> pl.LazyFrame:
    if not names:
        return pl.LazyFrame(schema=MEASUREMENTS | SWEPT)
    return pl.scan_parquet([target.part(name) for name in names], glob=False)


def _peaks(used: pl.LazyFrame) -> pl.LazyFrame:
    """The largest use over the blocks of layers."""
    keys = [name for name in BYTE_COLUMNS if name not in PEAKS]
    return used.group_by(keys, maintain_order=True).agg(pl.col(PEAKS).max()).select(list(BYTE_COLUMNS))
