"""Column sums and log-sum-exp on CUDA: two Triton kernels that never store a logit.

The first gives each query's log-sum-exp. In the second a tile of keys stays on the chip while all later queries pass
by, all query heads of a group in one tile, and their probabilities are added up. `products.column_sums` is the
reference and the way taken otherwise. On machines without a GPU Triton's interpreter runs the same kernels (a test).
"""

import importlib.util
import math

import torch
from torch import Tensor

from qevict_diag.attention.spec import AttentionSpec
from qevict_diag.errors import InputError

_TILE_BYTES = 32 << 10  # of queries or keys on the chip at a time


def require(device: torch.device) -> None:
    """InputError unless the kernels can run on ``device``: it is CUDA, and Triton is there."""
    if device.type != "cuda" or importlib.util.find_spec("triton") is None:
        raise InputError("fused column sums need a CUDA device and Triton; use --column-sums exact")


def column_sums(query: Tensor, key: Tensor, spec: AttentionSpec, offset: int = 0) -> Tensor:
    """`products.column_sums` of neighbouring queries [H, S, d] from position ``offset`` on, float32 [H, n]."""
    from qevict_diag.attention.kernels import sums_kernel

    lse = row_lse(query, key, spec, offset)
    heads, length, width = query.shape
    kv_heads, keys = key.shape[:2]
    sums = torch.zeros((heads, keys), dtype=torch.float32, device=query.device)
    tile = _tile(width, query.element_size())
    padded = _power(heads // kv_heads)
    rows = max(16 // padded, tile // padded, 1)
    sums_kernel[(math.ceil(keys / tile), kv_heads)](
        *(query, key, lse, sums, *_numbers(spec), length, keys, offset),
        *(query.stride(0), query.stride(1), key.stride(0), key.stride(1)),
        GROUP=heads // kv_heads,
        PADDED=padded,
        WIDTH=width,
        PADDED_WIDTH=max(16, _power(width)),
        ROWS=rows,
        COLUMNS=tile,
    )
    return sums


def row_lse(query: Tensor, key: Tensor, spec: AttentionSpec, offset: int) -> Tensor:
    """`products.row_lse` of neighbouring queries, float32 [H, S]."""
    from qevict_diag.attention.kernels import lse_kernel

    heads, length, width = query.shape
    lse = torch.empty((heads, length), dtype=torch.float32, device=query.device)
    tile = _tile(width, query.element_size())
    lse_kernel[(math.ceil(length / tile), heads)](
        *(query, key, lse, *_numbers(spec), length, key.shape[1], offset),
        *(query.stride(0), query.stride(1), key.stride(0), key.stride(1)),
        GROUP=heads // key.shape[0],
        WIDTH=width,
        PADDED_WIDTH=max(16, _power(width)),
        ROWS=tile,
        COLUMNS=tile,
    )
    if spec.sink_logits is None:
        return lse
    return torch.logaddexp(lse, torch.tensor(spec.sink_logits, device=lse.device)[:, None])


def _numbers(spec: AttentionSpec) -> tuple[float, float, int]:
    """Scaling, softcap (0 for none) and sliding window (2^30 for none)."""
    return spec.scaling, spec.softcap or 0.0, spec.sliding_window or 1 << 30


def _power(number: int) -> int:
    return 1 << (number - 1).bit_length()


def _tile(width: int, element_size: int) -> int:
    return min(128, max(16, _power(_TILE_BYTES // (_power(width) * element_size)) // 2))
