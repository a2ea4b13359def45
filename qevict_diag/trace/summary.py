"""A trace at a glance: where it comes from, how large it is, where its attention goes."""

from typing import Any

import torch

from qevict_diag.errors import TraceError
from qevict_diag.trace.layer import LayerTrace
from qevict_diag.trace.trace import Trace

_QUERIES = 64  # decode queries that the glance looks at, spread over all


def summary(trace: Trace) -> dict[str, Any]:
    """Facts about a trace, ready for JSON; ``layers`` has one entry per recorded layer."""
    model, source = trace.entry("model"), trace.entry("source")
    return {
        "trace": str(trace.path),
        "model": trace.model_id,
        "architecture": model.get("architecture"),
        "weights_sha256": model.get("weights_sha256"),
        "dtype": model.get("dtype"),
        "source": source.get("name"),
        "continuation": source.get("continuation"),
        "distinct_4grams": source.get("distinct_4grams"),
        "end_of_sequence_step": source.get("end_of_sequence_step"),
        "field": source.get("field"),
        "chat_template_sha256": source.get("chat_template_sha256"),
        "redaction": source.get("redaction"),
        "prefill": trace.shape.prefill,
        "decode": trace.shape.decode,
        "heads": trace.shape.heads,
        "kv_heads": trace.shape.kv_heads,
        "head_dim": trace.shape.head_dim,
        "recorded_layers": f"{len(trace.layers)} of {trace.shape.layers}",
        "bytes": sum(entry.bytes for entry in trace.files.values()),
        "options": trace.entry("recorder").get("options"),
        "first_tokens": None if source.get("redacted") is True else trace.tokens[:8].tolist(),
        "software": trace.manifest.get("software"),
        "created": trace.manifest.get("created"),
        "layers": [concentration(trace, number) for number in trace.layers],
    }


def concentration(trace: Trace, number: int) -> dict[str, Any]:
    """Mean share of a decode row's attention on its top 5% of positions, on the first 5 and on the last 32.

    TraceError when there is a row that is no attention.
    """
    layer = trace.layer(number)
    step = max(1, trace.shape.decode // _QUERIES)
    rows = layer.attention(slice(None, None, step))
    if not bool(torch.isfinite(rows).all()):
        raise TraceError(f"{trace.path}: layer {number}: decode rows hold NaN or infinity; record the trace again")
    count = max(1, trace.shape.length // 20)
    last = torch.stack(
        [
            rows[:, i, : trace.shape.prefill + t + 1][:, -32:].sum(-1)
            for i, t in enumerate(range(0, trace.shape.decode, step))
        ]
    )
    return {
        "layer": number,
        "sliding_window": layer.spec.sliding_window,
        "rotary": _rotary(layer),
        "pv_residual": layer.spec.pv_residual,
        "top_5_percent": float(rows.topk(count, dim=-1).values.sum(-1).mean()),
        "first_5": float(rows[..., :5].sum(-1).mean()),
        "last_32": float(last.mean()),
    }


def _rotary(layer: LayerTrace) -> str:
    if layer.imported:
        return "rows only"
    return "none" if layer.spec.rope is None else f"{layer.spec.rope_style or 'unknown'} {layer.spec.rotary_dim}"
