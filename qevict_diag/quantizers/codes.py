"""Codes really packed: several to a byte, the first in the lowest bits, with the scales and zeros of their groups."""

from dataclasses import dataclass, fields, replace
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Encoded:
    """Windows as a quantizer stores them: every tensor field has the windows along its first axis."""

    @property
    def nbytes(self) -> int:
        """Codes and what is needed to read them, as they lie in memory."""
        return sum(tensor.nbytes for tensor in self._tensors().values())

    @property
    def storage_bytes(self) -> int:
        """Bytes of the memory that the tensors keep alive; a view keeps all of what it is a view of."""
        return sum(tensor.untyped_storage().nbytes() for tensor in self._tensors().values())

    def __getitem__(self, index: Tensor) -> Self:
        """Choose windows."""
        return replace(self, **{name: tensor[index] for name, tensor in self._tensors().items()})

    def append(self, more: Self) -> Self:
        """These windows followed by ``more``."""
        others = more._tensors()
        return replace(self, **{name: torch.cat((tensor, others[name])) for name, tensor in self._tensors().items()})

    def _tensors(self) -> dict[str, Tensor]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}


@dataclass(frozen=True, eq=False)
class Codes(Encoded):
    """Windows with one scale and zero per group: x̂ = zero + scale · (code + offset)."""

    packed: Tensor  # uint8 [.., bytes]
    scale: Tensor  # fp16, the grouped axis kept at 1
    zero: Tensor  # fp16, likewise
    bits: int
    tail: tuple[int, int]  # (Ω, channels) of one window
    offset: float = 0.0  # 1/2 where a code stands for the centre of its bin


def pack(codes: Tensor, bits: int) -> Tensor:
    """Pack uint8 codes [..., n] below 2^b into bytes [..., ceil(n·b/8)], the first code in the lowest bits."""
    per_byte = 8 // bits
    short = -codes.shape[-1] % per_byte
    padded = torch.unflatten(torch.nn.functional.pad(codes, (0, short)), -1, (-1, per_byte))
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=codes.device)
    return (padded << shifts).sum(-1, dtype=torch.uint8)


def unpack(packed: Tensor, bits: int, count: int) -> Tensor:
    """Inverse of `pack`: the first ``count`` codes [..., count] as uint8."""
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=packed.device)
    codes: Tensor = (packed[..., None] >> shifts) & (2**bits - 1)
    return codes.flatten(-2)[..., :count]
