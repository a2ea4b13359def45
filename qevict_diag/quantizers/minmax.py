"""Asymmetric min-max quantization with really packed codes (definitions.md, section 5).

    scale = (max - min) / (2^b - 1),  zero = min,  code = round_half_even((x - zero) / scale),  x̂ = zero + scale · code

Scale and zero are stored in fp16, and the *stored* values serve both directions; arithmetic is float32. A group whose
stored scale is 0 (constant, or a range below fp16's resolution) has codes 0 and reconstructs to its stored zero.
Keys are grouped per channel over the tokens of a window, values per token over the channels (KIVI's two axes).
Deviation: a zero or scale beyond fp16's range saturates at its largest finite value instead of becoming infinite.
"""

from math import prod

import torch
from torch import Tensor

from qevict_diag.quantizers.codes import Codes, pack, unpack

FP16_MAX = torch.finfo(torch.float16).max
TOKEN_AXIS, CHANNEL_AXIS = -2, -1


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
