"""The Triton kernels of `fused_sums`; only that module imports this one, where Triton is installed."""

import triton
import triton.language as tl


@triton.jit
def logits_of(q, k, positions, columns, scaling, softcap, keys, window):
    """Masked logits [rows, columns] of a tile of queries and a tile of keys."""
    logits = tl.dot(q, tl.trans(k), input_precision="ieee") * scaling
    if softcap > 0:
        logits = softcap * (2 * tl.sigmoid(2 * logits / softcap) - 1)
    distance = positions[:, None] - columns[None, :]
    seen = (distance >= 0) & (distance < window) & (columns < keys)[None, :]
    return tl.where(seen, logits, float("-inf"))


@triton.jit
def lse_kernel(
    query, key, lse, scaling, softcap, window, length, keys, offset, q_head, q_row, k_head, k_row,
    GROUP: tl.constexpr, WIDTH: tl.constexpr, PADDED_WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Log-sum-exp of a tile of queries of one head: keys pass by, the maximum and the sum are kept."""
    head = tl.program_id(1)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channels = tl.arange(0, PADDED_WIDTH)
    inside = (rows < length)[:, None] & (channels < WIDTH)[None, :]
    q = tl.load(query + head * q_head + rows[:, None] * q_row + channels[None, :], mask=inside, other=0.0)
    first = offset + tl.program_id(0) * ROWS
    top = tl.full([ROWS], -1e30, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    start = tl.maximum(first - window + 1, 0) // COLUMNS * COLUMNS
    for at in range(start, tl.minimum(first + ROWS, keys), COLUMNS):
        columns = at + tl.arange(0, COLUMNS)
        good = (columns < keys)[:, None] & (channels < WIDTH)[None, :]
        k = tl.load(key + head // GROUP * k_head + columns[:, None] * k_row + channels[None, :], mask=good, other=0.0)
        logits = logits_of(q, k, offset + rows, columns, scaling, softcap, keys, window)
        higher = tl.maximum(top, tl.max(logits, axis=1))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(logits - higher[:, None]), axis=1)
        top = higher
    tl.store(lse + head * length + rows, top + tl.log(total), mask=rows < length)


@triton.jit
def sums_kernel(
    query, key, lse, sums, scaling, softcap, window, length, keys, offset, q_head, q_row, k_head, k_row,
    GROUP: tl.constexpr, PADDED: tl.constexpr, WIDTH: tl.constexpr, PADDED_WIDTH: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Column sums of a tile of keys of one key-value head: queries pass by, their probabilities are added up."""
    kv_head = tl.program_id(1)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    channels = tl.arange(0, PADDED_WIDTH)
    good = (columns < keys)[:, None] & (channels < WIDTH)[None, :]
    k = tl.load(key + kv_head * k_head + columns[:, None] * k_row + channels[None, :], mask=good, other=0.0)
    within = tl.arange(0, PADDED * ROWS)
    head = kv_head * GROUP + within // ROWS
    real = within // ROWS < GROUP
    found = tl.zeros([PADDED, COLUMNS], tl.float32)
    first = tl.maximum(tl.program_id(0) * COLUMNS - offset, 0) // ROWS * ROWS
    last = tl.minimum(tl.program_id(0) * COLUMNS + COLUMNS + window - offset, length)
    for at in range(first, last, ROWS):
        rows = at + within % ROWS
        there = real & (rows < length)
        inside = there[:, None] & (channels < WIDTH)[None, :]
        q = tl.load(query + head[:, None] * q_head + rows[:, None] * q_row + channels[None, :], mask=inside, other=0.0)
        normal = tl.load(lse + head * length + rows, mask=there, other=float("inf"))
        logits = logits_of(q, k, offset + rows, columns, scaling, softcap, keys, window)
        p = tl.exp(logits - normal[:, None])
        found += tl.sum(tl.reshape(p, [PADDED, ROWS, COLUMNS]), axis=1)
    heads = tl.arange(0, PADDED)
    place = sums + (kv_head * GROUP + heads)[:, None] * keys + columns[None, :]
    tl.store(place, found, mask=(heads < GROUP)[:, None] & (columns < keys)[None, :])
