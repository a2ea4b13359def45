"""Verify a trace: every byte against its checksum, every tensor against the laws of attention.

Checked per layer: SHA-256 of the files, CRC-32, shapes and dtypes (by reading); all numbers finite; the prompt's column
sums add up to P per head, or to at most P with sink logits; lse agrees with its recomputation from query and key, so
that rows add up to 1 (less with sinks); tokens lie in the vocabulary; tables are rotations.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from qevict_diag.attention.sums import row_lse
from qevict_diag.errors import TraceError
from qevict_diag.trace.layer import LayerTrace
from qevict_diag.trace.manifest import MANIFEST, layer_file_name

if TYPE_CHECKING:
    from qevict_diag.trace.trace import Trace

TOLERANCE = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}


def verify(trace: "Trace") -> None:
    """Check everything about ``trace``; TraceError names the first thing that is wrong."""
    _check_files(trace)
    _check_tokens(trace)
    for number in trace.layers:
        layer = trace.layer(number)
        _check_finite(trace, number, layer)
        _check_mass(trace, number, layer)
        _check_rows(trace, number, layer)
        _check_stored_rows(trace, number, layer)
        _check_tables(trace, number, layer)


def _check_files(trace: "Trace") -> None:
    present = {path.name for path in Path(trace.path).iterdir()} - {MANIFEST}
    if present != set(trace.files):
        raise _wrong(
            trace, f"the folder and its manifest disagree about {', '.join(sorted(present ^ set(trace.files)))[:200]}"
        )
    for name, file in _opened(trace):
        if file.sha256() != trace.files[name].sha256:
            raise _wrong(trace, f"{name} has another SHA-256 than its manifest says")


def _opened(trace: "Trace"):
    yield "tokens.safetensors", trace.token_file()
    if "rope.safetensors" in trace.files:
        yield "rope.safetensors", trace.rope_file()
    for number in trace.layers:
        yield layer_file_name(number), trace.layer_file(number)


def _check_tokens(trace: "Trace") -> None:
    if trace.entry("source").get("redacted") is True:
        return
    tokens = trace.tokens
    if int(tokens.min()) < 0 or int(tokens.max()) >= trace.shape.vocab:
        raise _wrong(trace, f"a token id lies outside the vocabulary of {trace.shape.vocab}")


def _check_finite(trace: "Trace", number: int, layer: LayerTrace) -> None:
    for name in ("query", "key", "value", "prompt_mass", "prompt_query", "lse"):
        tensor = getattr(layer, name)
        if tensor is not None and not bool(torch.isfinite(tensor).all()):
            raise _wrong(trace, f"layer {number}: {name} holds NaN or infinity")


def _check_mass(trace: "Trace", number: int, layer: LayerTrace) -> None:
    mass, prefill = layer.prompt_mass, trace.shape.prefill
    total, slack = mass.sum(dim=-1, dtype=torch.float64), 1e-4 * prefill
    if float(mass.min()) < 0 or _off(total, prefill, slack, layer):
        raise _wrong(trace, f"layer {number}: the prompt's column sums do not add up to {prefill} per head")


def _check_rows(trace: "Trace", number: int, layer: LayerTrace) -> None:
    tolerance = TOLERANCE[layer.query.dtype]
    again = row_lse(layer.query, layer.key, layer.spec, layer.prefill)
    if float((again - layer.lse).abs().max()) > tolerance * max(1.0, float(again.abs().max())):
        raise _wrong(trace, f"layer {number}: lse disagrees with its recomputation from queries and keys")


def _check_stored_rows(trace: "Trace", number: int, layer: LayerTrace) -> None:
    """Rows of --store-attention against the recomputed ones; 1/2048 in -ln p is half of what the code resolves."""
    file = trace.layer_file(number)
    if "neg_log_attention" not in file:
        return
    code = file.read("neg_log_attention").to(torch.float32)
    stored = torch.where(code == 65535, 0.0, torch.exp(-code / 2048))
    if float((stored - layer.attention()).abs().max()) > 1e-3 + TOLERANCE[layer.query.dtype]:
        raise _wrong(trace, f"layer {number}: the stored decode rows disagree with queries and keys")


def _check_tables(trace: "Trace", number: int, layer: LayerTrace) -> None:
    if layer.cos is None or layer.sin is None:
        return
    norm = layer.cos.square() + layer.sin.square()
    if not bool(torch.isfinite(norm).all()) or float(norm.min()) < 1e-3:
        raise _wrong(trace, f"layer {number}: its rotary tables are no rotation")


def _off(total: Tensor, expected: float, slack: float, layer: LayerTrace) -> bool:
    """Whether sums miss ``expected``; a sink logit may keep any share of them for itself."""
    too_much = float(total.max()) > expected + slack
    return too_much or (layer.spec.sink_logits is None and float(total.min()) < expected - slack)


def _wrong(trace: "Trace", what: str) -> TraceError:
    return TraceError(f"{trace.path}: {what}; the trace is damaged, record it again")
