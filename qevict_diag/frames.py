"""Tidy frames: their columns, and how labelled tensors become rows (interface.md)."""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from torch import Tensor

MEASUREMENTS: dict[str, pl.DataType] = {
    "trace": pl.String(),
    "model": pl.String(),
    "policy": pl.String(),
    "budget": pl.String(),
    "metric": pl.String(),
    "reading": pl.String(),
    "layer": pl.Int32(),
    "head": pl.Int32(),
    "event": pl.Int32(),
    "step": pl.Int32(),
    "group": pl.String(),
    "lag": pl.Int32(),
    "value": pl.Float64(),
    "numerator": pl.Float64(),
    "denominator": pl.Float64(),
}
DECISIONS: dict[str, pl.DataType] = {
    "trace": pl.String(),
    "policy": pl.String(),
    "layer": pl.Int32(),
    "event": pl.Int32(),
    "window": pl.Int32(),
    "tier": pl.String(),
}
BYTES: dict[str, pl.DataType] = {
    "trace": pl.String(),
    "policy": pl.String(),
    "budget": pl.String(),
    "window": pl.Int32(),
    "full_windows": pl.Int32(),
    "quantized_windows": pl.Int32(),
    "history_bytes": pl.Int64(),
    "used_bytes": pl.Int64(),
    "used_share": pl.Float64(),
    "persistent_ratio": pl.Float64(),
    "persistent_ratio_with_ledger": pl.Float64(),
}

PEAKS = ("used_bytes", "used_share", "persistent_ratio", "persistent_ratio_with_ledger")  # of `BYTES`


def peaks(used: pl.LazyFrame) -> pl.LazyFrame:
    """The largest use over the blocks of layers: rows that agree in all but `PEAKS` become one, in their order."""
    names = used.collect_schema().names()
    keys = [name for name in names if name not in PEAKS]
    return used.group_by(keys, maintain_order=True).agg(pl.col(PEAKS).max()).select(names)


def rows(axes: Mapping[str, Sequence[int | None]], **values: Tensor) -> pl.DataFrame:
    """One row per entry of equally shaped tensors; ``axes`` names their axes, in order, with the labels along each.

    An axis whose only label is None gives no column.
    """
    shape = tuple(len(labels) for labels in axes.values())
    columns = {
        name: np.broadcast_to(np.asarray(labels, dtype=np.int32).reshape(_along(axis, shape)), shape).ravel()
        for axis, (name, labels) in enumerate(axes.items())
        if tuple(labels) != (None,)
    }
    numbers = {name: value.expand(shape).reshape(-1).double().cpu().numpy() for name, value in values.items()}
    return pl.DataFrame({**columns, **numbers})


def conform(frame: pl.DataFrame, schema: Mapping[str, pl.DataType], **constants: str) -> pl.DataFrame:
    """``frame`` with exactly the columns of ``schema``, constants added, missing columns null."""

    def column(name: str) -> pl.Expr:
        return pl.lit(constants[name]) if name in constants else pl.col(name) if name in frame.columns else pl.lit(None)

    return frame.select(column(name).cast(dtype).alias(name) for name, dtype in schema.items())


def _along(axis: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size if index == axis else 1 for index, size in enumerate(shape))
