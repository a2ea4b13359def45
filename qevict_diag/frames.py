"""Tidy frames: their columns, and how labelled tensors become rows ."""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from torch import Tensor

POLICY: dict[str, pl.DataType] = {  # who was replayed; in every frame
    "policy": pl.String(),
    "base": pl.String(),
    "estimator": pl.String(),
    "seed": pl.Int64(),
}
SETTING: dict[str, pl.DataType] = {  # under which settings
    "budget": pl.String(),
    "window": pl.Int32(),
    "quantized_fraction": pl.String(),
    "bits": pl.Int32(),
    "horizon": pl.Int32(),
    "prefill": pl.Int32(),
    "decode": pl.Int32(),
}
MEASUREMENTS: dict[str, pl.DataType] = {
    "trace": pl.String(),
    "model": pl.String(),
    **POLICY,
    **SETTING,
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
    **POLICY,
    "layer": pl.Int32(),
    "event": pl.Int32(),
    "window": pl.Int32(),
    "tier": pl.String(),
}
ALLOWANCE: dict[str, pl.DataType] = {  # per layer and key-value head
    "full_windows": pl.Int32(),
    "quantized_windows": pl.Int32(),
    "history_bytes": pl.Int64(),
}
MOST: dict[str, pl.DataType] = {  # the largest over layers and events (of a run, and then of its layers)
    "used_bytes": pl.Int64(),
    "resident_bytes": pl.Int64(),
    "local_tokens": pl.Int32(),
    "local_tokens_peak": pl.Int32(),
}
MEAN: dict[str, pl.DataType] = {  # the largest over events (share_mean: the mean over queries), then mean over layers
    "share_of_allowance": pl.Float64(),
    "share_after_event": pl.Float64(),
    "share_peak": pl.Float64(),
    "share_peak_with_ledger": pl.Float64(),
    "share_peak_from_codes": pl.Float64(),
    "share_mean": pl.Float64(),
}
BYTES: dict[str, pl.DataType] = {"trace": pl.String(), **POLICY, **SETTING, **ALLOWANCE, **MOST, **MEAN}


def over_layers(used: pl.LazyFrame) -> pl.LazyFrame:
    """One row for each run of `BYTES`-like rows by layer: the largest of `MOST`, the mean of `MEAN`; in their order."""
    names = used.collect_schema().names()
    keys = [name for name in names if name not in MOST and name not in MEAN]
    found = used.group_by(keys, maintain_order=True).agg(pl.col(list(MOST)).max(), pl.col(list(MEAN)).mean())
    return found.select(names)


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


def rows_of_cases(
    cases: Mapping[str, Sequence[str | int]], axes: Mapping[str, Sequence[int | None]], **values: Tensor
) -> pl.DataFrame:
    """The same for several cases, the first axis of ``values``; ``cases`` has what columns say of each of them."""
    count = len(next(iter(cases.values())))
    frame = rows({"case": range(count), **axes}, **values)
    return frame.with_columns(**of_each(cases, frame["case"])).drop("case")


def of_each(cases: Mapping[str, Sequence[str | int]], number: pl.Series) -> dict[str, pl.Series]:
    """What the columns of the cases say, a value for each row; ``number`` is the row's case."""
    return {name: pl.Series(told).gather(number) for name, told in cases.items()}


def conform(frame: pl.DataFrame, schema: Mapping[str, pl.DataType], **constants: object) -> pl.DataFrame:
    """``frame`` with exactly the columns of ``schema``, constants added, missing columns null."""

    def column(name: str) -> pl.Expr:
        return pl.lit(constants[name]) if name in constants else pl.col(name) if name in frame.columns else pl.lit(None)

    return frame.select(column(name).cast(dtype).alias(name) for name, dtype in schema.items())


def _along(axis: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size if index == axis else 1 for index, size in enumerate(shape))
