"""Counting true entries of large masks."""

import torch
from torch import Tensor


def count(mask: Tensor, axes: int = 1) -> Tensor:
    """Number of true entries over the last ``axes`` axes, int64; bytes are added, which is several times faster."""
    total = mask.contiguous().view(torch.uint8).sum(-1, dtype=torch.int32)
    return (total if axes == 1 else total.sum(tuple(range(-axes + 1, 0)))).long()


def ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Numerator / denominator, NaN where the denominator is 0 (undefined, and not counted)."""
    return torch.where(denominator == 0, torch.nan, numerator / torch.where(denominator == 0, 1, denominator))
