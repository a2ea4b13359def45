"""Exact attention quantities of one sequence, in blocks: column sums, log-sum-exp and P·V.

Query heads are grouped on their key-value head in one product (no ``repeat_kv``); arrays over queries × positions
take at most ``block_bytes`` together. Shapes: query [H, S, d] at ascending ``positions`` (an offset stands for S
neighbours), key [KV, n, d], value [KV, n, d_v], all of one sequence; arithmetic in float32.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from qevict_diag.attention.logits import logits
from qevict_diag.attention.spec import AttentionSpec

BLOCK_BYTES = 32 << 20
_MOST_ROWS = 256


def column_sums(
    query: Tensor, key: Tensor, spec: AttentionSpec, positions: Tensor | int = 0, block_bytes: int = BLOCK_BYTES
) -> Tensor:
    """What the queries together give each position: ``Σ_s exp(logits[h,s,i] - lse[h,s])``, float32 [H, n]."""
    sums = query.new_zeros((query.shape[0], key.shape[1]), dtype=torch.float32)
    for block in _blocks(query, key, spec, positions, block_bytes):
        p = _softmax(block, spec)
        ones = p.new_ones((p.shape[0], 1, p.shape[1]))  # a product is several times faster than a sum
        sums[block.heads, block.columns] += torch.matmul(ones, p)[:, 0]
    return sums


def row_lse(
    query: Tensor, key: Tensor, spec: AttentionSpec, positions: Tensor | int, block_bytes: int = BLOCK_BYTES
) -> Tensor:
    """Log-sum-exp of each query's logits, the sink logit included where the layer has one: float32 [H, S]."""
    lse = query.new_empty(query.shape[:2], dtype=torch.float32)
    for block in _blocks(query, key, spec, positions, block_bytes):
        lse[block.heads, block.rows] = _lse(block, spec)
    return lse


def attention_output(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    spec: AttentionSpec,
    positions: Tensor | int,
    block_bytes: int = BLOCK_BYTES,
) -> Tensor:
    """P·V of the queries, float32 [H, S, d_v]: what the kernel should have returned."""
    output = query.new_empty((*query.shape[:2], value.shape[-1]), dtype=torch.float32)
    for block in _blocks(query, key, spec, positions, block_bytes):
        p, some_values = _softmax(block, spec), value[block.kv_heads, block.columns].float()
        rows = p.reshape(some_values.shape[0], -1, p.shape[-1]) @ some_values
        output[block.heads, block.rows] = rows.reshape(p.shape[0], p.shape[1], -1)
    return output


@dataclass(frozen=True, eq=False)
class _Block:
    """Logits [heads, rows, columns] of some query heads (those of ``kv_heads``), queries and positions."""

    heads: slice
    kv_heads: slice
    rows: slice
    columns: slice
    logits: Tensor


def _blocks(
    query: Tensor, key: Tensor, spec: AttentionSpec, positions: Tensor | int, block_bytes: int
) -> Iterator[_Block]:
    """Blocks of queries and, if need be, of heads; their logits lie in one workspace and are gone with the next."""
    heads, length, _ = query.shape
    if isinstance(positions, int):
        positions = torch.arange(positions, positions + length)
    group = heads // key.shape[0]
    kv_step, step = _block_shape(heads, key.shape[0], min(length, _MOST_ROWS), key.shape[1], block_bytes)
    workspace = query.new_empty(kv_step * group * step * key.shape[1], dtype=torch.float32)
    for kv in range(0, key.shape[0], kv_step):
        kv_heads = slice(kv, min(kv + kv_step, key.shape[0]))
        some_heads = slice(kv_heads.start * group, kv_heads.stop * group)
        for start in range(0, length, step):
            rows = slice(start, min(start + step, length))
            columns = _columns(positions[rows], spec.sliding_window)
            part, some_keys = query[some_heads, rows], key[kv_heads, columns]
            scores = logits(part, some_keys, spec, positions[rows], columns.start, workspace)
            yield _Block(some_heads, kv_heads, rows, columns, scores)


def _block_shape(heads: int, kv_heads: int, queries: int, length: int, block_bytes: int) -> tuple[int, int]:
    """Key-value heads and queries per block, so that logits and probabilities, 8 bytes per entry, fit."""
    entries = max(1, block_bytes // 8)
    step = entries // (heads * length)
    if step >= min(queries, 16):
        return kv_heads, min(step, queries)
    return 1, max(1, min(queries, entries // (heads // kv_heads * length)))


def _columns(positions: Tensor, sliding_window: int | None) -> slice:
    first, last = int(positions[0]), int(positions[-1])
    return slice(0 if sliding_window is None else max(0, first - sliding_window + 1), last + 1)


def _softmax(block: _Block, spec: AttentionSpec) -> Tensor:
    if spec.sink_logits is None:
        return torch.softmax(block.logits, dim=-1)
    return torch.exp(block.logits - _lse(block, spec)[..., None])


def _lse(block: _Block, spec: AttentionSpec) -> Tensor:
    lse = torch.logsumexp(block.logits, dim=-1)
    if spec.sink_logits is None:
        return lse
    return torch.logaddexp(lse, torch.tensor(spec.sink_logits[block.heads], device=lse.device)[:, None])
