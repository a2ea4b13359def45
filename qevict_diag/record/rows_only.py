"""Layers without queries, keys and values: decode rows and sums alone, for traces that must not hold them.

They are stored as rows from elsewhere are (`qevict_diag.trace.rows`): a query holds the logarithms of a row, or the
logits where a sink takes a share of it, and key i is the i-th unit vector, so that ``exp(q·k - lse)`` is the row again.
What remains can still be compared with a guess of the text by anyone who has the model.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from qevict_diag.attention.spec import AttentionSpec
from qevict_diag.record.capture import CapturedLayer
from qevict_diag.record.probe import LayerPlan
from qevict_diag.trace.layer import IMPORTED, LayerTrace
from qevict_diag.trace.rows import ZERO, stand_ins

_ROWS = 32  # decode rows that are made at a time


def rows_plans(plans: Sequence[LayerPlan], length: int) -> tuple[LayerPlan, ...]:
    """The plans as they are stored: every key-value head has T unit vectors, the first layer's for all like it."""
    first: dict[tuple[object, ...], int] = {}
    stored = []
    for plan in plans:
        number = plan.spec.layer
        owner = first.setdefault((plan.kv_heads, plan.spec.kv_head_numbers), number)
        spec = AttentionSpec(
            number,
            scaling=1.0,
            sliding_window=plan.spec.sliding_window,
            sink_logits=plan.spec.sink_logits,
            rope=IMPORTED,
            head_numbers=plan.spec.head_numbers,
            kv_head_numbers=plan.spec.kv_head_numbers,
            kv_of=None if owner == number else owner,
        )
        stored.append(replace(plan, spec=spec, head_dim=length, value_dim=1))
    return tuple(stored)


def rows_tensors(layer: CapturedLayer, spec: AttentionSpec, stored: AttentionSpec) -> dict[str, Tensor]:
    """The tensors of a layer's file; ``spec`` is what the model does, ``stored`` what is left of it."""
    names = ("query", "key", "value", "prompt_mass", "lse")
    trace = LayerTrace(spec, **{name: getattr(layer, name).cpu() for name in names})
    own = stand_ins(trace.key.shape[1], trace.key.shape[0]) if stored.kv_of is None else {}
    shift = torch.zeros_like(trace.lse) if spec.sink_logits is not None else trace.lse
    rows = torch.cat([_rows(trace, shift, start) for start in range(0, trace.decode, _ROWS)], dim=1)
    return own | {"query": rows, "prompt_mass": trace.prompt_mass, "lse": trace.lse - shift}


def _rows(trace: LayerTrace, shift: Tensor, start: int) -> Tensor:
    some = slice(start, start + _ROWS)
    return (trace.logits(some) - shift[:, some, None]).clamp_min(ZERO)
