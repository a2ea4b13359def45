"""Counting true entries of large masks."""

import torch
from torch import Tensor


def count(mask: Tensor, axes: int = 1) -> Tensor:
    """Number of true entries over the last ``axes`` axes, int64; bytes are added, which is several times faster."""
    total = mask.contiguous().view(torch.uint8).sum(-1, dtype=torch.int32)
    return (total if axes == 1 else total.sum(tuple(range(-axes + 1, 0)))).long()
