"""Exact attention quantities of one sequence, in blocks: column sums, log-sum-exp and P·V.

Query heads are grouped on their key-value head in one product (no ``repeat_kv``), and no array over queries × positions
is larger than ``block_bytes``. Shapes: query [H, S, d] of the positions ``offset .. offset+S-1``, key [KV, n, d],
value [KV, n, d_v], all of one sequence; arithmetic in float32.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from qevict_diag.layer_trace import AttentionSpec

BLOCK_BYTES = 32 << 20


def column_sums(
    query: Tensor, key: Tensor, spec: AttentionSpec, offset: int = 0, block_bytes: int = BLOCK_BYTES
) -> Tensor:
    """What the queries together give each position: ``Σ_s exp(logits[h,s,i] - lse[h,s])``, float32 [H, n]."""
    sums = query.new_zeros((query.shape[0], key.shape[1]), dtype=torch.float32)
    for heads, logits, columns in _blocks(query, key, spec, offset, block_bytes):
        ones = logits.new_ones((logits.shape[0], 1, logits.shape[1]))  # a product is several times faster than a sum
        sums[heads, columns] += torch.matmul(ones, _softmax(logits, spec, heads))[:, 0]
    return sums


def row_lse(query: Tensor, key: Tensor, spec: AttentionSpec, offset: int, block_bytes: int = BLOCK_BYTES) -> Tensor:
    """Log-sum-exp of each query's logits, the sink logit included where the layer has one: float32 [H, S]."""
    lse = query.new_empty(query.shape[:2], dtype=torch.float32)
    filled = dict.fromkeys(range(query.shape[0]), 0)
    for heads, logits, _ in _blocks(query, key, spec, offset, block_bytes):
        start = filled[heads.start]
        lse[heads, start : start + logits.shape[1]] = _lse(logits, spec, heads)
        filled[heads.start] = start + logits.shape[1]
    return lse


def attention_output(query: Tensor, key: Tensor, value: Tensor, spec: AttentionSpec, offset: int) -> Tensor:
    """P·V of the queries, float32 [H, S, d_v]: what the kernel should have returned."""
    rows = []
    kv_heads = key.shape[0]
    for heads, logits, columns in _blocks(query, key, spec, offset, 1 << 62):
        p = _softmax(logits, spec, heads)
        grouped = p.reshape(kv_heads, -1, p.shape[-1]) @ value[:, columns].float()
        rows.append(grouped.reshape(p.shape[0], p.shape[1], -1))
    return torch.cat(rows, dim=1)


def _blocks(
    query: Tensor, key: Tensor, spec: AttentionSpec, offset: int, block_bytes: int
) -> Iterator[tuple[slice, Tensor, slice]]:
    """(query heads, logits [heads, s, columns], columns) over blocks of queries and, if need be, of heads.

    The logits lie in one workspace: they are gone when the next block is asked for.
    """
    heads, length, _ = query.shape
    group = heads // key.shape[0]
    kv_step, step = _block_shape(heads, key.shape[0], min(length, 256), key.shape[1], block_bytes)
    workspace = query.new_empty(kv_step * group * step * key.shape[1], dtype=torch.float32)  # reused by every block
    for kv in range(0, key.shape[0], kv_step):
        some_heads = slice(kv * group, min(kv + kv_step, key.shape[0]) * group)
        for start in range(0, length, step):
            part, first = query[some_heads, start : start + step], offset + start
            columns = _columns(first, part.shape[1], spec.sliding_window)
            some_keys = key[kv : kv + kv_step, columns]
            yield some_heads, _logits(part, some_keys, spec, first, columns.start, workspace), columns


def _block_shape(heads: int, kv_heads: int, queries: int, length: int, block_bytes: int) -> tuple[int, int]:
    """Key-value heads and queries per block, so that logits and probabilities, 8 bytes per entry, fit."""
    entries = max(1, block_bytes // 8)
    step = entries // (heads * length)
    if step >= min(queries, 16):
        return kv_heads, min(step, queries)
    return 1, max(1, min(queries, entries // (heads // kv_heads * length)))


def _columns(first: int, count: int, sliding_window: int | None) -> slice:
    start = 0 if sliding_window is None else max(0, first - sliding_window + 1)
    return slice(start, first + count)


def _logits(
    query: Tensor, key: Tensor, spec: AttentionSpec, first: int, first_column: int, workspace: Tensor
) -> Tensor:
    heads, count, width = query.shape
    grouped = (query.float() * spec.scaling).reshape(key.shape[0], -1, width)
    logits = workspace[: heads * count * key.shape[1]].view(*grouped.shape[:2], -1)
    logits = torch.matmul(grouped, key.float().transpose(-1, -2), out=logits).view(heads, count, -1)
    if spec.softcap is not None:
        logits = logits.div_(spec.softcap).tanh_().mul_(spec.softcap)
    rows = torch.arange(first, first + count, device=query.device)[:, None]
    edge = slice(max(0, logits.shape[-1] - count), None)  # only here a query can be before a key
    columns = torch.arange(first_column, first_column + logits.shape[-1], device=query.device)
    logits[..., edge].masked_fill_(columns[edge] > rows, float("-inf"))
    if spec.sliding_window is not None:
        logits.masked_fill_(columns <= rows - spec.sliding_window, float("-inf"))
    return logits


def _softmax(logits: Tensor, spec: AttentionSpec, heads: slice) -> Tensor:
    if spec.sink_logits is None:
        return torch.softmax(logits, dim=-1)
    return torch.exp(logits - _lse(logits, spec, heads)[..., None])


def _lse(logits: Tensor, spec: AttentionSpec, heads: slice) -> Tensor:
    lse = torch.logsumexp(logits, dim=-1)
    if spec.sink_logits is None:
        return lse
    return torch.logaddexp(lse, torch.tensor(spec.sink_logits[heads], device=lse.device)[:, None])
