"""Take a trace elsewhere: polars frames, parquet files, xarray datasets. Plain numpy is ``tensor.numpy()``."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import torch

from qevict_diag import files
from qevict_diag.errors import InputError
from qevict_diag.frame_files import write
from qevict_diag.trace.manifest import layer_file_name

if TYPE_CHECKING:
    import xarray

    from qevict_diag.trace.trace import Trace


def attention_frame(trace: "Trace", layer: int) -> pl.DataFrame:
    """Decode attention of one layer: ``layer, head, step, position, attention``, without invisible positions."""
    recorded = trace.layer(layer)
    rows = recorded.attention()
    head, step, position = torch.nonzero(rows > 0, as_tuple=True)
    columns = {
        "head": (torch.tensor(recorded.head_numbers)[head], pl.UInt16),
        "step": (step, pl.UInt32),
        "position": (position, pl.UInt32),
    }
    frame = pl.DataFrame({name: pl.Series(values.numpy()).cast(kind) for name, (values, kind) in columns.items()})
    frame = frame.with_columns(pl.Series("attention", rows[head, step, position].numpy()))
    return frame.select(pl.lit(layer, pl.UInt16).alias("layer"), pl.all())


def mass_frame(trace: "Trace") -> pl.DataFrame:
    """The prompt's column sums as rows ``layer, head, position, prompt_mass``."""
    prefill = trace.shape.prefill
    frames = []
    for number in trace.layers:
        recorded = trace.layer(number)
        head = torch.tensor(recorded.head_numbers).repeat_interleave(prefill)
        position = torch.arange(prefill).repeat(len(recorded.head_numbers))
        columns = {"head": head, "position": position, "prompt_mass": recorded.prompt_mass.flatten()}
        frame = pl.DataFrame({name: values.numpy() for name, values in columns.items()})
        frames.append(frame.select(pl.lit(number, pl.Int64).alias("layer"), pl.all()))
    return pl.concat(frames)


def export_parquet(trace: "Trace", out: Path, layers: Sequence[int] | None = None) -> list[Path]:
    """Write ``prompt_mass.parquet`` and one file of attention rows per layer into the new folder ``out``."""
    names = ["prompt_mass.parquet"]
    with files.new_folder(out) as folder:
        write(mass_frame(trace), folder / names[0])
        for number in trace.layers if layers is None else layers:
            names.append(Path(layer_file_name(number)).with_suffix(".parquet").name)
            write(attention_frame(trace, number), folder / names[-1])
    return [out / name for name in names]


def to_xarray(trace: "Trace", layers: Sequence[int] | None = None) -> "xarray.Dataset":
    """Decode attention [layer, head, step, position] and prompt mass [layer, head, prompt_position] with their axes.

    Needs the extra ``xarray``; InputError without it, and when the layers differ in their heads. All chosen layers are
    in memory at once: choose few.
    """
    try:
        import xarray
    except ImportError as error:
        raise InputError("xarray is not installed; `pip install qevict-diag[xarray]`") from error
    chosen = list(trace.layers if layers is None else layers)
    traces = [trace.layer(number) for number in chosen]
    heads = {layer.head_numbers for layer in traces}
    if len(heads) > 1:
        raise InputError(f"the layers of {trace.path} differ in their heads; choose layers that have the same")
    coordinates = {
        "layer": chosen,
        "head": list(*heads),
        "position": range(trace.shape.length),
        "prompt_position": range(trace.shape.prefill),
    }
    data = {
        "attention": (("layer", "head", "step", "position"), torch.stack([t.attention() for t in traces]).numpy()),
        "prompt_mass": (("layer", "head", "prompt_position"), torch.stack([t.prompt_mass for t in traces]).numpy()),
    }
    facts = {"model": trace.model_id, "trace": trace.name, "prefill": trace.shape.prefill}
    return xarray.Dataset(data, coords=coordinates, attrs=facts)
