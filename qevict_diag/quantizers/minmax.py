"""Asymmetric min-max quantization with really packed codes (definitions.md, section 5).

    scale = (max - min) / (2^b - 1),  zero = min,  code = round_half_even((x - zero) / scale),  x̂ = zero + scale · code

Scale and zero are stored in fp16, and the *stored* values serve both directions; arithmetic is float32. A group whose
stored scale is 0 (constant, or a range below fp16's resolution) has codes 0 and reconstructs to its stored zero.
Keys are grouped per channel over the tokens of a window, values per token over the channels (KIVI's two axes).
Deviation: a zero or scale beyond fp16's range saturates at its largest finite value instead of becoming infinite.
"""

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

FP16_MAX = torch.finfo(torch.float16).max
TOKEN_AXIS, CHANNEL_AXIS = -2, -1


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


def quantize(x: Tensor, axis: int, bits: int) -> Codes:
    """Quantize windows ``x`` [..., Ω, channel] with one (scale, zero) per group along ``axis`` (-2 keys, -1 values)."""
    x = x.float()
    low, high = x.amin(axis, keepdim=True), x.amax(axis, keepdim=True)
    zero = low.clamp(-FP16_MAX, FP16_MAX).half()
    scale = ((high - low) / (2**bits - 1)).clamp(max=FP16_MAX).half()
    divisor = torch.where(scale == 0, 1, scale.float())
    codes = torch.round((x - zero.float()) / divisor).clamp(0, 2**bits - 1)
    codes = torch.where(scale == 0, 0, codes).to(torch.uint8)
    return Codes(pack(codes.flatten(-2), bits), scale, zero, bits, (x.shape[-2], x.shape[-1]))


def dequantize(codes: Codes) -> Tensor:
    """x̂ = zero + scale · code, float32 [..., Ω, channel]."""
    levels = unpack(codes.packed, codes.bits, prod(codes.tail)).unflatten(-1, codes.tail)
    return codes.zero.float() + codes.scale.float() * levels


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
