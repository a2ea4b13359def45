"""The one formula of attention logits: scaled products, softcap, and what a query does not see.

    logits[h, s, i] = cap(q[h, s]·k[h // (H/KV), i]),  q scaled;  cap(x) = c·tanh(x / c) where a layer has a softcap

Query heads are grouped on their key-value head in one product (no ``repeat_kv``); everything else happens in place.
"""

import torch
from torch import Tensor

from qevict_diag.attention.spec import AttentionSpec


def products(query: Tensor, key: Tensor, out: Tensor | None = None) -> Tensor:
    """q·k of grouped heads: [.., H, S, d] and [.., KV, n, d] -> [.., H, S, n]; in ``out``, flat and large enough."""
    *lead, heads, count, width = query.shape
    kv_heads, length = key.shape[-3:-1]
    grouped = query.reshape(*lead, kv_heads, -1, width)
    place = None if out is None else out[: heads * count * length].view(*grouped.shape[:-1], length)
    return torch.matmul(grouped, key.transpose(-1, -2), out=place).view(*lead, heads, count, length)


def cap_(logits: Tensor, spec: AttentionSpec) -> Tensor:
    """Apply a layer's softcap in place."""
    return logits if spec.softcap is None else logits.div_(spec.softcap).tanh_().mul_(spec.softcap)


def hide_(
    values: Tensor, positions: Tensor, spec: AttentionSpec, start: int = 0, fill: float = float("-inf")
) -> Tensor:
    """Fill, in place, what queries at ascending ``positions`` don't see of the positions from ``start`` on.

    ``values`` [.., query, position]: later positions, and in a sliding layer those that have slid out of sight.
    """
    rows = positions[:, None]
    columns = torch.arange(start, start + values.shape[-1], device=values.device)
    edge = slice(max(0, int(positions[0]) + 1 - start), None)  # before it every query sees every key
    values[..., edge].masked_fill_(columns[edge] > rows, fill)
    if spec.sliding_window is not None:
        values.masked_fill_(columns <= rows - spec.sliding_window, fill)
    return values


def logits(
    query: Tensor, key: Tensor, spec: AttentionSpec, positions: Tensor, start: int = 0, out: Tensor | None = None
) -> Tensor:
    """Logits [H, S, n] of queries [H, S, d] at ascending ``positions`` on keys [KV, n, d] from ``start`` on; float32.

    -inf where a position is invisible. ``out`` is a workspace to compute in.
    """
    raw = products(query.float() * spec.scaling, key.float(), out)
    return hide_(cap_(raw, spec), positions.to(query.device), spec, start)
