"""Make a trace of attention rows from elsewhere: engines that are not transformers can give rows, not keys.

The rows file is a safetensors file with, for every layer l,

    attention.l     [H, G, T]   probabilities of decode query t (position P + t) on position i; 0 after the query
    prompt_mass.l   [H, P]      what all prompt queries together gave each position
    token_ids       int64 [T]   optional

Rows have to add up to 1 and each head's prompt mass to P, to within 2%, and are normalized; so models with sink logits
cannot be imported. A row is stored as a query whose logits are the logarithms of its probabilities: key i is the i-th
unit vector, so that ``exp(q·k - lse)`` is the row again, and scores renormalized over a policy's cache are exact. The
keys behind the rows are unknown, so everything that needs them (the quantized tier) is refused.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from qevict_diag.attention.spec import AttentionSpec
from qevict_diag.errors import InputError
from qevict_diag.trace.layer import IMPORTED
from qevict_diag.trace.manifest import FORMAT, MAX_COUNT, VERSION, spec_to_json
from qevict_diag.trace.writer import TraceWriter

ZERO = -1e4  # the logarithm that stands for a probability of 0: exp of it is 0 in float32
SLACK = 0.02  # what low precision may take from or add to a sum of probabilities
_NAME = re.compile(r"(attention|prompt_mass)\.(\d{1,4})")


def import_rows(rows: Path, out: Path, *, model: str = "unknown") -> Path:
    """Write the trace ``out`` from a rows file; InputError when the file breaks the layout or the rows are no rows."""
    tensors = _read(rows)
    layers = sorted({int(found[2]) for name in tensors if (found := _NAME.fullmatch(name))})
    if not layers:
        raise InputError(f"{rows} has no tensor attention.0 [H, G, T]; see the layout in qevict_diag.trace_import")
    first = _layer(rows, tensors, layers[0])
    heads, decode, length = first[0].shape
    with TraceWriter(out) as writer:
        for number in layers:
            attention, mass = _layer(rows, tensors, number)
            if attention.shape != first[0].shape:
                raise InputError(f"{rows}: layer {number} has another shape than layer {layers[0]}")
            shared = stand_ins(length) if number == layers[0] else {}
            writer.write_layer(number, shared | _as_logits(attention, mass))
        tokens = tensors.get("token_ids", torch.zeros(length, dtype=torch.int64))
        writer.write_tokens(_tokens(rows, tokens, length))
        writer.write_rope({})
        shape = {"layers": layers[-1] + 1, "heads": heads, "kv_heads": 1, "head_dim": length, "value_dim": 1}
        shape |= {"prefill": length - decode, "decode": decode, "vocab": int(tokens.max()) + 1}
        return writer.publish(_manifest(rows, layers, shape, model, redacted="token_ids" not in tensors))


def _read(rows: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(rows)
    except (OSError, SafetensorError, ValueError) as error:
        raise InputError(f"cannot read {rows} as safetensors ({str(error)[:80]})") from error


def _layer(rows: Path, tensors: Mapping[str, Tensor], number: int) -> tuple[Tensor, Tensor]:
    """Checked rows [H, G, T] and prompt mass [H, P] of a layer, float32."""
    attention, mass = (tensors.get(f"{name}.{number}") for name in ("attention", "prompt_mass"))
    if attention is None or mass is None or attention.ndim != 3 or mass.ndim != 2:
        raise InputError(f"{rows}: layer {number} needs attention.{number} [H, G, T] and prompt_mass.{number} [H, P]")
    heads, decode, length = attention.shape
    if not 0 < decode < length or not heads:
        raise InputError(
            f"{rows}: attention.{number} is {list(attention.shape)}; H, G and P = T - G must be at least 1"
        )
    if mass.shape != (heads, length - decode):
        raise InputError(
            f"{rows}: prompt_mass.{number} is {list(mass.shape)}, attention.{number} implies {[heads, length - decode]}"
        )
    attention, mass = (tensor.to(torch.float32, copy=True) for tensor in (attention, mass))  # the file may yet change
    _check_rows(rows, number, attention, mass)
    return attention, mass


def _check_rows(rows: Path, number: int, attention: Tensor, mass: Tensor) -> None:
    _, decode, length = attention.shape
    future = torch.arange(length) > torch.arange(length - decode, length)[:, None]
    sums, total = attention.sum(-1), mass.sum(-1) / mass.shape[1]
    wrong = {
        "holds NaN, infinity or numbers below 0": not bool((attention >= 0).all() & (mass >= 0).all())
        or not bool(torch.isfinite(attention).all() & torch.isfinite(mass).all()),
        "gives attention to positions after the query": bool(attention[:, future].any()),
        "has rows that do not add up to 1": not bool(((sums - 1).abs() < SLACK).all()),
        "has a prompt mass that does not add up to P per head": not bool(((total - 1).abs() < SLACK).all()),
    }
    for what, found in wrong.items():
        if found:
            raise InputError(f"{rows}: layer {number} {what}; rows are probabilities of causal queries")


def _as_logits(attention: Tensor, mass: Tensor) -> dict[str, Tensor]:
    query = torch.where(attention > 0, attention.clamp_min(1e-38).log(), ZERO)
    mass = mass * (mass.shape[1] / mass.sum(dim=-1, keepdim=True))
    return {"query": query, "prompt_mass": mass, "lse": torch.logsumexp(query, dim=-1)}


def stand_ins(length: int, kv_heads: int = 1) -> dict[str, Tensor]:
    """Keys [KV, T, T] and values [KV, T, 1] of every layer, which the first one holds for all."""
    return {"key": torch.eye(length).repeat(kv_heads, 1, 1), "value": torch.zeros(kv_heads, length, 1)}


def _tokens(rows: Path, tokens: Tensor, length: int) -> Tensor:
    if (
        tokens.shape != (length,)
        or tokens.dtype != torch.int64
        or not 0 <= int(tokens.min()) <= int(tokens.max()) < MAX_COUNT - 1
    ):
        raise InputError(
            f"{rows}: token_ids is {tokens.dtype} {list(tokens.shape)}; int64 [{length}] from 0 to 2^31 - 2 is needed"
        )
    return tokens


def _manifest(rows: Path, layers: list[int], shape: Mapping[str, int], model: str, redacted: bool) -> dict[str, Any]:
    first, *others = layers
    specs = [AttentionSpec(first, 1.0, rope=IMPORTED)]
    specs += [AttentionSpec(number, 1.0, rope=IMPORTED, kv_of=first) for number in others]
    return {
        "format": FORMAT,
        "version": VERSION,
        "shape": dict(shape),
        "model": {"id": model, "architecture": None, "revision": None, "weights_sha256": None, "dtype": "float32"},
        "attention": [spec_to_json(spec) for spec in specs],
        "source": {"name": rows.stem, "text_sha256": None, "redacted": redacted, "imported": True},
        "recorder": {"options": {}},
        "software": {},
        "created": None,
    }
