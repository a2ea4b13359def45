"""What goes into a trace: the tensors of its layers and its manifest."""

import datetime
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from typing import Any

import torch
from torch import Tensor

from qevict_diag.attention.spec import AttentionSpec
from qevict_diag.epoch import source_date
from qevict_diag.errors import InputError
from qevict_diag.record.capture import CapturedLayer
from qevict_diag.record.decode import distinct_ngrams, first_end
from qevict_diag.record.options import RecordOptions
from qevict_diag.record.probe import LayerPlan
from qevict_diag.texts.source import Source
from qevict_diag.trace.layer import LayerTrace
from qevict_diag.trace.manifest import FORMAT, VERSION, spec_to_json

_ROWS = 32  # decode rows whose codes are made at a time


def layer_tensors(layer: CapturedLayer, spec: AttentionSpec, options: RecordOptions) -> dict[str, Tensor]:
    """The tensors of a layer's file on the CPU, in their stored dtype; keys that it shares are in another's file."""
    stored = layer.query.dtype if options.dtype is None else getattr(torch, options.dtype)
    own = ("query", "key", "value") if spec.kv_of is None else ("query",)
    tensors = {name: getattr(layer, name).to(stored) for name in own}
    tensors["prompt_mass"] = layer.prompt_mass
    if layer.prompt_query.shape[1]:
        tensors["prompt_query"] = layer.prompt_query.to(stored)
    tensors["lse"] = layer.lse
    _refuse_overflow(layer.number, tensors)
    if options.store_attention:
        tensors["neg_log_attention"] = neg_log_attention(layer, spec)
    return on_cpu(tensors)


def _refuse_overflow(number: int, tensors: Mapping[str, Tensor]) -> None:
    """InputError when a stored dtype is too narrow for what the model computed, which was finite."""
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise InputError(
                f"layer {number}: its {name.replace('_', ' ')} does not fit into {tensor.dtype}; store it as bf16, or "
                "as the model has it (--store-dtype)"
            )


def neg_log_attention(layer: CapturedLayer, spec: AttentionSpec) -> Tensor:
    """``round(2048 · -ln p)`` as uint16 [H, G, T]; 65535 where p is below e^-32 or the position invisible."""
    names = ("query", "key", "value", "prompt_mass", "lse")
    trace = LayerTrace(spec, **{name: getattr(layer, name).cpu() for name in names})
    rows = []
    for start in range(0, trace.decode, _ROWS):
        some = slice(start, start + _ROWS)
        code = torch.round((trace.lse[:, some, None] - trace.logits(some)) * 2048).clamp(0, 65535)
        rows.append(code.to(torch.int32).to(torch.uint16))
    return torch.cat(rows, dim=1)


def on_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the CPU; from CUDA they come through pinned memory, all copies in flight at once."""
    if not any(tensor.is_cuda for tensor in tensors.values()):
        return {name: tensor.cpu() for name, tensor in tensors.items()}
    copies = {name: torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True) for name, tensor in tensors.items()}
    for name, tensor in tensors.items():
        copies[name].copy_(tensor, non_blocking=True)
    torch.cuda.synchronize()
    return copies


def manifest(
    plans: Sequence[LayerPlan], specs: Sequence[AttentionSpec], options: RecordOptions, model: Mapping[str, Any]
) -> dict[str, Any]:
    """The manifest but for source, files and the model's sizes; ``specs`` are those of the recorded layers."""
    kept, own = options.prompt_query_positions, {plan.spec.layer: _own_widths(plan, plans[0]) for plan in plans}
    return {
        "format": FORMAT,
        "version": VERSION,
        "model": dict(model),
        "attention": [spec_to_json(spec) | own[spec.layer] for spec in specs],
        "prompt_queries": {"first": kept.start, "count": len(kept)},
        "recorder": {"options": asdict(options)},
        "software": {name: metadata.version(name) for name in ("torch", "transformers", "qevict_diag")},
        "created": _now(),
    }


def shape(plan: LayerPlan, options: RecordOptions, layers: int, vocab: int) -> dict[str, int]:
    """The manifest's ``shape``; ``plan`` is the first layer's."""
    widths = {name: getattr(plan, name) for name in _WIDTHS}
    return {"layers": layers, **widths, "prefill": options.prefill, "decode": options.decode, "vocab": vocab}


def source_entry(
    source: Source, tokens: Sequence[int], options: RecordOptions, ends: Collection[int], template_sha256: str | None
) -> dict[str, Any]:
    """The manifest's ``source``; ``tokens`` are all T of the run, ``ends`` those that end a sequence for the model."""
    continuation = tokens[options.prefill :]
    share = distinct_ngrams(continuation)
    return {
        "name": source.name,
        "text_sha256": None if options.redacted else source.sha256,
        "redacted": options.redacted,
        **({"redaction": _REDACTION[options.redact_keys]} if options.redacted else {}),
        "field": source.field,
        "chat_template_sha256": template_sha256,
        "continuation": options.continuation,
        "seed": options.seed,
        "distinct_4grams": None if math.isnan(share) else share,
        "end_of_sequence_step": first_end(continuation, ends),
    }


_REDACTION = {  # what stays out of a trace, by whether keys do too, and what still tells the text
    False: "token ids and the text's checksum are left out; layer 0's keys name every token to anyone with the model",
    True: "token ids, queries, keys and values are left out; the rows can be compared with a guess of the text",
}


def estimate_entry(options: RecordOptions, layer: int, error: float) -> dict[str, Any]:
    """The manifest's ``recorder.column_sums`` of estimated sums, with the error that was measured in one layer."""
    return {"probes": options.probes, "relative_error": error, "measured_in_layer": layer}


_WIDTHS = ("heads", "kv_heads", "head_dim", "value_dim")


def _own_widths(plan: LayerPlan, first: LayerPlan) -> dict[str, int]:
    return {name: getattr(plan, name) for name in _WIDTHS if getattr(plan, name) != getattr(first, name)}


def _now() -> str:
    """The time in UTC, or SOURCE_DATE_EPOCH for reproducible traces."""
    return (source_date() or datetime.datetime.now(datetime.UTC)).isoformat(timespec="seconds")
