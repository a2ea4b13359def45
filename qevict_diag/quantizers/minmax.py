"""Asymmetric min-max quantization with really packed codes (definitions.md, section 5).

    scale = (max - min) / (2^b - 1),  zero = min,  code = round_half_even((x - zero) / scale),  x̂ = zero + scale · code

Scale and zero are stored in fp16, and the *stored* values serve both directions; arithmetic is float32. A group whose
stored scale is 0 (constant, or a range below fp16's resolution) has codes 0 and reconstructs to its stored zero.
Keys are grouped per channel over the tokens of a window, values per token over the channels (KIVI's two axes).
Deviation: a zero or scale beyond fp16's range saturates at its largest finite value instead of becoming infinite.

The paper says "asymmetric min-max" and no more, so where the levels lie is a reading (P): at the end points as above;
at the centres of 2^b bins, ``scale = (max - min) / 2^b``, ``code = floor``, ``x̂ = zero + scale · (code + 1/2)``; or
``clipped``, the same scale with the nearest level, so that the maximum is clipped to the last one.
"""

from math import prod

import torch
from torch import Tensor

from qevict_diag.errors import InputError
from qevict_diag.quantizers.codes import Codes, pack, unpack

LEVELS = ("end_points", "bin_centres", "clipped")
FP16_MAX = torch.finfo(torch.float16).max
TOKEN_AXIS, CHANNEL_AXIS = -2, -1


def quantize(x: Tensor, axis: int, bits: int, levels: str = "end_points") -> Codes:
    """Quantize windows ``x`` [..., Ω, channel] with one (scale, zero) per group along ``axis`` (-2 keys, -1 values).

    InputError for ``levels`` that are not in `LEVELS`.
    """
    if levels not in LEVELS:
        raise InputError(f"levels {levels!r}: allowed are {', '.join(LEVELS)}")
    x = x.float()
    low, high = x.amin(axis, keepdim=True), x.amax(axis, keepdim=True)
    steps = 2**bits - 1 if levels == "end_points" else 2**bits
    zero = low.clamp(-FP16_MAX, FP16_MAX).half()
    scale = ((high - low) / steps).clamp(max=FP16_MAX).half()
    place = (x - zero.float()) / torch.where(scale == 0, 1, scale.float())
    codes = (place.floor() if levels == "bin_centres" else place.round()).clamp(0, 2**bits - 1)
    codes = torch.where(scale == 0, 0, codes).to(torch.uint8)
    offset = 0.5 if levels == "bin_centres" else 0.0
    return Codes(pack(codes.flatten(-2), bits), scale, zero, bits, (x.shape[-2], x.shape[-1]), offset)


def dequantize(codes: Codes) -> Tensor:
    """x̂ = zero + scale · (code + offset), float32 [..., Ω, channel]."""
    levels = torch.unflatten(unpack(codes.packed, codes.bits, prod(codes.tail)), -1, codes.tail)
    return codes.zero.float() + codes.scale.float() * (levels + codes.offset if codes.offset else levels)
