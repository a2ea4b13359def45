"""Random traces on disk, written through the recorder's writer; and small sweeps over them."""

from dataclasses import asdict
from pathlib import Path

import torch

from qevict_diag.sweep import Sweep
from qevict_diag.sweep.grid import Options
from qevict_diag.testing.traces import MemoryTrace, random_trace
from qevict_diag.trace.manifest import FORMAT, VERSION, spec_to_json
from qevict_diag.trace.writer import TraceWriter

SMALL = Options(("fmm", "churn", "qsa"), min_inactive=2, horizon=8, sinks=3, recent=6)


def write_trace(folder: Path, seed: int = 0, model: str = "random", **shape: object) -> Path:
    """A random trace at ``folder``, as `record` would have left it."""
    trace = random_trace(seed, **shape)
    with TraceWriter(folder) as writer:
        for part in trace.parts:
            writer.write_layer(part.spec.layer, _tensors(part))
        writer.write_tokens(torch.arange(trace.shape.length) % trace.shape.vocab)
        rotated = trace.parts[0]
        if rotated.cos is not None:
            writer.write_rope({"cos.r0": rotated.cos, "sin.r0": rotated.sin})
        return writer.publish(_manifest(trace, model))


def write_traces(folder: Path, count: int = 2, **shape: object) -> tuple[str, ...]:
    """Several random traces of one shape: ``folder/article-0``, .."""
    return tuple(str(write_trace(folder / f"article-{seed}", seed, **shape)) for seed in range(count))


def small_sweep(traces: tuple[str, ...], **choices: object) -> Sweep:
    """A grid of few and short tasks."""
    grid = {"policies": ("R2", "R3"), "budgets": ("2/5", "1/2"), "windows": (2, 4), "layers_per_task": 1}
    return Sweep(traces, **{**grid, "options": SMALL, **choices})


def contents(folder: Path) -> dict[str, bytes]:
    """Every part of a sweep and its receipt, by name."""
    return {path.name: path.read_bytes() for path in sorted((folder / "parts").iterdir())}


def _tensors(part):
    return {
        "query": part.query,
        "key": part.key,
        "value": part.value,
        "prompt_mass": part.prompt_mass.float(),
        "prompt_query": part.prompt_query,
        "lse": part.lse.float(),
    }


def _manifest(trace: MemoryTrace, model: str) -> dict:
    positions = trace.parts[0].prompt_query_positions
    return {
        "format": FORMAT,
        "version": VERSION,
        "shape": asdict(trace.shape),
        "model": {"id": model},
        "prompt_queries": {"first": positions[0], "count": len(positions)},
        "attention": [spec_to_json(part.spec) for part in trace.parts],
    }
