"""What a recording will cost, before anything runs."""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from qevict_diag.attention.sums import column_sums
from qevict_diag.errors import InputError
from qevict_diag.files import size_in_words
from qevict_diag.models.stepper import Stepper, input_device, quiet_model, vocabulary
from qevict_diag.record.lengths import refuse_lengths, teacher_chunk
from qevict_diag.record.options import RecordOptions
from qevict_diag.record.probe import LayerPlan, probe
from qevict_diag.record.rows_only import rows_plans
from qevict_diag.record.selection import wanted

_OVERHEAD = 1 << 16  # headers and manifest of a trace
_TIMED_TOKENS = 64
_TIMED_QUERIES = 512


@dataclass(frozen=True)
class Plan:
    """Bytes and work of a recording of ``traces`` traces; ``extra_flops`` is what recording adds to the plain run.

    ``seconds`` is a rough time of the plain run, ``extra_seconds`` one of what is added; None when nothing was timed.
    """

    traces: int
    layers: int
    bytes_queries: int
    bytes_keys: int
    bytes_values: int
    bytes_prompt_queries: int
    bytes_sums: int
    bytes_attention: int
    bytes_free: int
    extra_flops: int
    seconds: float | None = None
    extra_seconds: float | None = None

    @property
    def bytes_total(self) -> int:
        """Bytes of all traces together."""
        parts = ("queries", "keys", "values", "prompt_queries", "sums", "attention")
        each: list[int] = [getattr(self, f"bytes_{part}") for part in parts]
        return self.traces * (_OVERHEAD + sum(each))

    def to_json(self) -> dict[str, Any]:
        """The plan with its total."""
        return asdict(self) | {"bytes_total": self.bytes_total}


def plan(model: Any, options: RecordOptions, traces: int, out: Path, *, timed: bool = True) -> Plan:
    """The cost of recording ``traces`` prompts with ``options``; ``timed`` runs a few tokens to estimate the time."""
    model = getattr(model, "_orig_mod", model)
    plans = probe(model)
    refuse_lengths(model, plans, options)
    layers = wanted(plans, options)
    found = price(layers, model.dtype, options, traces, out)
    if not timed:
        return found
    extra = found.extra_flops * _seconds_per_flop(layers[0], model.dtype, input_device(model))
    return replace(found, seconds=_seconds(model, options, traces), extra_seconds=extra)


def price(
    layers: Sequence[LayerPlan],
    dtype: torch.dtype,
    options: RecordOptions,
    traces: int,
    out: Path,
) -> Plan:
    """`plan` from the layers that are wanted."""
    decode, length = options.decode, options.length
    width = (dtype if options.dtype is None else getattr(torch, options.dtype)).itemsize
    stored = layers
    if options.redact_keys:
        stored, width = rows_plans(layers, length), torch.float32.itemsize
    own = [layer for layer in stored if layer.spec.kv_of is None]
    heads = sum(layer.heads for layer in stored)
    query_channels = sum(layer.heads * layer.head_dim for layer in stored)
    return Plan(
        traces=traces,
        layers=len(layers),
        bytes_queries=query_channels * width * decode,
        bytes_keys=sum(layer.kv_heads * layer.head_dim for layer in own) * width * length,
        bytes_values=sum(layer.kv_heads * layer.value_dim for layer in own) * width * length,
        bytes_prompt_queries=query_channels * width * len(options.prompt_query_positions),
        bytes_sums=4 * heads * length,
        bytes_attention=2 * heads * decode * length if options.store_attention else 0,
        bytes_free=shutil.disk_usage(_existing(out)).free,
        extra_flops=traces * sum(_flops(layer, options, exact=layer is layers[0]) for layer in layers),
    )


def refuse_full_disk(plan: Plan, out: Path) -> None:
    """InputError when the traces do not fit on the disk."""
    if plan.bytes_total > plan.bytes_free:
        raise InputError(
            f"{plan.traces} traces need {size_in_words(plan.bytes_total)}, {out} has {size_in_words(plan.bytes_free)}; "
            "record fewer layers (--layers) or heads (--heads), in fp16 (--store-dtype fp16), or choose another --out"
        )


def _flops(layer: LayerPlan, options: RecordOptions, *, exact: bool) -> int:
    """Products of queries and keys that recording adds in one layer: column sums, log-sum-exp, and stored rows.

    Estimated column sums are ``exact`` in one layer too, to know their error.
    """
    share = 1.0 if options.probes is None else options.probes + exact
    prompt = share * _pairs(range(options.prefill), layer.spec.sliding_window)
    decode = _pairs(range(options.prefill, options.length), layer.spec.sliding_window)
    return round(2 * layer.heads * layer.head_dim * (prompt + decode * (1 + options.store_attention)))


def _pairs(queries: range, sliding_window: int | None) -> int:
    """How many positions the queries at these positions see together: Σ min(position + 1, window)."""
    return _pairs_before(queries.stop, sliding_window) - _pairs_before(queries.start, sliding_window)


def _pairs_before(count: int, sliding_window: int | None) -> int:
    growing = count if sliding_window is None else min(count, sliding_window)
    return growing * (growing + 1) // 2 + (count - growing) * (sliding_window or 0)


def _seconds_per_flop(layer: LayerPlan, dtype: torch.dtype, device: torch.device) -> float:
    """What a column sum takes here, from one of a few hundred random queries."""
    query, key = (
        torch.randn(heads, _TIMED_QUERIES, layer.head_dim, dtype=dtype, device=device)
        for heads in (layer.heads, layer.kv_heads)
    )
    work = 2 * layer.heads * layer.head_dim * _pairs(range(_TIMED_QUERIES), layer.spec.sliding_window)
    column_sums(query, key, layer.spec)
    return _timed(lambda: column_sums(query, key, layer.spec), device) / work


def _seconds(model: Any, options: RecordOptions, traces: int) -> float:
    """A rough time: that of a few prompt tokens and of one single token, times how many there are."""
    count = min(_TIMED_TOKENS, options.length)
    tokens = torch.arange(count, device=input_device(model))[None] % vocabulary(model)
    with quiet_model(model):
        _forward_seconds(model, tokens)  # the first pass pays for what comes once
        chunk, single = _forward_seconds(model, tokens) / count, _forward_seconds(model, tokens[:, :1])
    batches = -(-traces // options.batch)
    prompt = traces * options.prefill * chunk
    if options.continuation == "teacher":
        return prompt + traces * options.decode * (chunk if teacher_chunk(model, options) > 1 else single)
    return prompt + batches * options.decode * max(single, min(traces, options.batch) * chunk)


def _forward_seconds(model: Any, tokens: torch.Tensor) -> float:
    return _timed(lambda: Stepper(model)(tokens), tokens.device)


def _timed(work: Callable[[], object], device: torch.device) -> float:
    started = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def _existing(path: Path) -> Path:
    """``path`` or its nearest parent that exists."""
    path = Path(path).absolute()
    while not path.exists():
        path = path.parent
    return path
