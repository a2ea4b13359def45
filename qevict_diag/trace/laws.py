"""The laws of attention that a recorded layer keeps, and what is said where one is broken.

`broken` is cheap and runs whenever a layer is loaded: the prompt's column sums are finite, not negative and add up to P
per head (to at most P with a sink logit); some decode rows, exp(logits - lse), add up to 1; rotary tables turn without
bending. `broken_in_full` runs in `verify` and looks at everything. NaN keeps no law: all comparisons are of the form
``not a <= b``.
"""

import torch
from torch import Tensor

from qevict_diag.attention.sums import column_sums, row_lse
from qevict_diag.trace.layer import LayerTrace

TOLERANCE = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
MASS_SLACK = 1e-4  # of P, for column sums in float32
TURN = (0.25, 16.0)  # cos² + sin², the square of an attention factor; models have 1 to 2
_BLOCK_BYTES = 4 << 20  # long keys are turned into float32 head by head
EVEN = 1.1  # most and least of cos² + sin² at one position; bfloat16 tables differ by 1%


def broken(layer: LayerTrace) -> str | None:
    """What is wrong with a layer at first sight; None for nothing."""
    last = layer.decode - 1
    some = torch.tensor(sorted({0, last // 2, last}))
    return _mass(layer) or _last_queries(layer) or _tables(layer) or _rows(layer, some)


def broken_in_full(layer: LayerTrace, *, exact_sums: bool) -> str | None:
    """What is wrong with a layer at all; ``exact_sums`` says that its column sums are no estimate."""
    wrong = _finite(layer) or _rows(layer, torch.arange(layer.decode))
    return wrong or (_prompt_queries(layer) if exact_sums else None)


def rows_differ(layer: LayerTrace, stored: Tensor) -> str | None:
    """Compare stored codes, uint16 [H, G, T], with the rows; 1/2048 in -ln p is half of what a code resolves."""
    code = stored.to(torch.float32)
    rows = torch.where(code == 65535, 0.0, torch.exp(-code / 2048))
    if not float((rows - layer.attention()).abs().max()) <= 1e-3 + TOLERANCE[layer.query.dtype]:
        return "the stored decode rows disagree with queries and keys"
    return None


def _finite(layer: LayerTrace) -> str | None:
    for name in ("query", "key", "value", "prompt_query"):
        tensor = getattr(layer, name)
        if tensor is not None and not bool(torch.isfinite(tensor).all()):
            return f"{name} holds NaN or infinity"
    return None


def _mass(layer: LayerTrace) -> str | None:
    """Σ_i prompt_mass[h, i] = P, with sink logits <= P: each prompt query gives away 1, or less beside a sink."""
    total, slack = layer.prompt_mass.sum(dim=-1, dtype=torch.float64), MASS_SLACK * layer.prefill
    least = 0.0 if layer.spec.sink_logits is not None else layer.prefill - slack
    right = float(layer.prompt_mass.min()) >= 0 and least <= float(total.min()) <= float(total.max())
    if not (right and float(total.max()) <= layer.prefill + slack):
        return f"the prompt's column sums hold NaN or less than 0, or do not add up to {layer.prefill} per head"
    return None


def _rows(layer: LayerTrace, which: Tensor) -> str | None:
    """Σ_i exp(logits[h, t, i] - lse[h, t]) = 1, as lse = log Σ exp(logits), for the decode queries ``which``."""
    again = row_lse(layer.query[:, which], layer.key, layer.spec, which + layer.prefill, _BLOCK_BYTES)
    error, size = (again - layer.lse[:, which]).abs().max(), again.abs().max()
    if not float(error) <= TOLERANCE[layer.query.dtype] * max(1.0, float(size)) < float("inf"):
        return _finite(layer) or "lse disagrees with its recomputation from queries and keys"
    return None


def _last_queries(layer: LayerTrace) -> str | None:
    if layer.prompt_query_positions and layer.prompt_query_positions[-1] != layer.prefill - 1:
        return "the stored prompt queries are not the prompt's last ones"
    return None


def _prompt_queries(layer: LayerTrace) -> str | None:
    """``prompt_mass`` is the column sums of the stored prompt queries where they alone see; elsewhere these are less.

    They are the prompt's last ones, so no other query sees the positions from the first of them on.
    """
    if layer.prompt_query is None:
        return None
    first, prefill = layer.prompt_query_positions[0], layer.prefill
    seen = column_sums(layer.prompt_query, layer.key[:, :prefill], layer.spec, first)
    slack = TOLERANCE[layer.query.dtype] * seen.clamp_min(1.0)
    more = seen - layer.prompt_mass
    if not bool((more <= slack).all()) or not bool((more[:, first:].abs() <= slack[:, first:]).all()):
        return "the stored prompt queries disagree with the prompt's column sums"
    return None


def _tables(layer: LayerTrace) -> str | None:
    """cos² + sin² is the same for all channels of a position: a rotation, times an attention factor near 1."""
    if layer.cos is None or layer.sin is None:
        return None
    norm = layer.cos.square() + layer.sin.square()
    least, most = norm.amin(dim=-1), norm.amax(dim=-1)
    plausible = TURN[0] <= float(least.min()) <= float(most.max()) <= TURN[1]
    if not plausible or not bool((most <= EVEN * least).all()):
        return "its rotary tables are no rotation"
    return None
