"""Codes really packed: several to a byte, the first in the lowest bits, with the scales and zeros of their groups."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Codes:
    """Quantized windows [.., window]: the leading axes are free, the last ones are those of one window."""

    packed: Tensor  # uint8 [.., bytes]
    scale: Tensor  # fp16, the grouped axis kept at 1
    zero: Tensor  # fp16, likewise
    bits: int
    tail: tuple[int, int]  # (Ω, channels) of one window

    @property
    def nbytes(self) -> int:
        """Codes, scales and zeros as they lie in memory."""
        return self.packed.nbytes + self.scale.nbytes + self.zero.nbytes

    def __getitem__(self, index: Tensor) -> "Codes":
        """Choose windows along the first axis."""
        return Codes(self.packed[index], self.scale[index], self.zero[index], self.bits, self.tail)

    def append(self, more: "Codes") -> "Codes":
        """These windows followed by ``more``, along the first axis."""
        packed, scale, zero = (torch.cat((getattr(self, x), getattr(more, x))) for x in ("packed", "scale", "zero"))
        return Codes(packed, scale, zero, self.bits, self.tail)


def pack(codes: Tensor, bits: int) -> Tensor:
    """Pack uint8 codes [..., n] below 2^b into bytes [..., ceil(n·b/8)], the first code in the lowest bits."""
    per_byte = 8 // bits
    short = -codes.shape[-1] % per_byte
    padded = torch.nn.functional.pad(codes, (0, short)).unflatten(-1, (-1, per_byte))
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=codes.device)
    return (padded << shifts).sum(-1, dtype=torch.uint8)


def unpack(packed: Tensor, bits: int, count: int) -> Tensor:
    """Inverse of `pack`: the first ``count`` codes [..., count] as uint8."""
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=packed.device)
    return ((packed[..., None] >> shifts) & (2**bits - 1)).flatten(-2)[..., :count]
