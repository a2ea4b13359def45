"""Read a sweep back: two lazy frames, over parts that were checked against their receipts."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from qevict_diag.errors import InputError, SweepError
from qevict_diag.frames import over_layers
from qevict_diag.replay.settings import Settings
from qevict_diag.sweep.folder import SWEPT_BYTES, SWEPT_ROWS, SweepFolder


@dataclass(frozen=True, eq=False)
class SweepFrames:
    """``measurements`` has the columns of `MEASUREMENTS` and `SWEPT`; ``bytes`` those of `BYTES`, `SWEPT` and model.

    Rows come in the order of the grid, whoever computed them.
    """

    measurements: pl.LazyFrame
    bytes: pl.LazyFrame
    min_inactive: int = Settings.min_inactive  # m of Global LIR that the sweep was asked for

    def of(self, model: str | None) -> "SweepFrames":
        """The frames of one model alone, all of it for None; InputError for a model that the sweep has not."""
        if model is None:
            return self
        known = self.bytes.select("model").unique(maintain_order=True).collect()["model"].to_list()
        if model not in known:
            raise InputError(f"model {model!r} is not in this sweep; there are {', '.join(known)}")
        return replace(self, measurements=self.measurements.filter(model=model), bytes=self.bytes.filter(model=model))


def read(folder: str | Path, *, partial: bool = False) -> SweepFrames:
    """Open a sweep's results. SweepError when parts are missing or damaged, unless ``partial`` leaves those out."""
    target = SweepFolder(Path(folder))
    manifest = target.manifest()
    names = manifest["parts"]
    whole = [name for name in names if target.has(name)]
    if len(whole) < len(names) and not partial:
        raise SweepError(
            f"{folder}: {len(names) - len(whole)} of {len(names)} parts are missing or damaged; give the same sweep "
            "again to compute them"
        )
    used = [frame for name in whole if (frame := target.use(name)) is not None]
    frame = pl.concat(used) if used else pl.DataFrame(schema=SWEPT_BYTES)
    return SweepFrames(_measurements(target, whole), over_layers(frame.lazy()), _min_inactive(manifest["grid"]))


def _min_inactive(grid: dict[str, Any]) -> int:
    options = grid.get("options")
    found = options.get("min_inactive") if isinstance(options, dict) else None
    if type(found) is not int or found < 1:
        raise SweepError("the sweep's grid names no min_inactive; sweep anew into another folder")
    return found


def _measurements(target: SweepFolder, names: list[str]) -> pl.LazyFrame:
    if not names:
        return pl.LazyFrame(schema=SWEPT_ROWS)
    return pl.scan_parquet([target.part(name) for name in names], glob=False)
