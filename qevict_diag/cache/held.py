"""Contents of some of the windows: rows in memory, and which windows they belong to."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar, final

import torch
from torch import Tensor

from qevict_diag.quantizers.codes import Encoded

C = TypeVar("C", bound=Encoded)
Source = Callable[[Tensor], tuple[C, C]]  # keys and values of chosen windows, in the order of their ``nonzero()``


@final
@dataclass(frozen=True, eq=False)
class Exact(Encoded):
    """Windows as they are, [.., Ω, channel]."""

    data: Tensor


@dataclass(frozen=True, eq=False)
class Held(Generic[C]):
    """The windows of ``mask`` bool [lane, window] and nothing else: a row of ``key`` and ``value`` for each.

    Rows come in the order of ``mask.nonzero()``, so those of a lane lie together. What is dropped is freed: every
    change copies the rows that stay.
    """

    mask: Tensor
    key: C
    value: C

    @property
    def count(self) -> int:
        """How many windows."""
        return int(self.mask.sum())

    @property
    def nbytes(self) -> int:
        """Bytes of the memory behind keys and values."""
        return self.key.storage_bytes + self.value.storage_bytes

    def widened(self, windows: int) -> "Held[C]":
        """The same with room for ``windows`` windows in a lane."""
        return replace(self, mask=torch.nn.functional.pad(self.mask, (0, windows - self.mask.shape[-1])))

    def take(self, wanted: Tensor) -> tuple[C, C]:
        """Keys and values of the ``wanted`` windows, which are held, in the order of ``wanted.nonzero()``."""
        rows = _places(self.mask)[wanted]
        return self.key[rows], self.value[rows]

    def keep(self, wanted: Tensor) -> "Held[C]":
        """The ``wanted`` ones among those held."""
        kept = self.mask & wanted
        return self if torch.equal(kept, self.mask) else Held(kept, *self.take(kept))

    def add(self, new: Tensor, source: "Source[C]") -> "Held[C]":
        """These windows and the ``new`` ones, which are not held and come from ``source``, if there are any."""
        if not bool(new.any()):
            return self
        both, (key, value) = self.mask | new, source(new)
        rows = torch.where(new, self.count + _places(new), _places(self.mask))[both]
        return Held(both, self.key.append(key)[rows], self.value.append(value)[rows])

    def become(self, wanted: Tensor, source: "Source[C]") -> "Held[C]":
        """Exactly the ``wanted`` windows: those that are held stay, the others come from ``source``."""
        return self.keep(wanted).add(wanted & ~self.mask, source)


def _places(mask: Tensor) -> Tensor:
    """The place of every chosen window among the chosen: [lane, window]."""
    return (mask.flatten().cumsum(0) - 1).view_as(mask)
