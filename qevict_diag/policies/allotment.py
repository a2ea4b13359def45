"""How a budget divides over the sets of windows of a layer: each set its own share, or one pool for all."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from qevict_diag.cache.routing import best
from qevict_diag.errors import within


@dataclass(frozen=True)
class Layers:
    """Which layers a block holds, ``numbers`` in its order, of how many in the model."""

    numbers: tuple[int, ...]
    total: int


class Allotment(ABC):
    """Chooses the windows of a tier: ``count`` for each set on average, never more than that for a layer."""

    @abstractmethod
    def choose(self, score: Tensor, among: Tensor, count: int, layers: Layers) -> Tensor:
        """Mask of the windows chosen ``among`` the given ones; all [layer, unit, window]. Ties: lower unit, window."""


@final
@dataclass(frozen=True)
class Equal(Allotment):
    """Every set keeps its own ``count`` best windows."""

    def choose(self, score: Tensor, among: Tensor, count: int, layers: Layers) -> Tensor:
        """The best of each set."""
        return best(score, among, count)


@final
@dataclass(frozen=True)
class Everything(Allotment):
    """No budget: every window is kept (R0)."""

    def choose(self, score: Tensor, among: Tensor, count: int, layers: Layers) -> Tensor:
        """All of them."""
        return among


@final
@dataclass(frozen=True)
class Pooled(Allotment):
    """The ``units · count`` best windows of a layer, whichever set they belong to; each set has ``floor`` of its own.

    The floor is a share of ``count``, rounded down: 0 pools everything, 1 is `Equal` (AdaKV, Feng et al. 2024).
    """

    floor: float = 0.0

    def __post_init__(self) -> None:
        within("floor", self.floor, 0, 1)

    def choose(self, score: Tensor, among: Tensor, count: int, layers: Layers) -> Tensor:
        """The floor of each set first, then the best of what is left, over all sets of the layer."""
        units = score.shape[1]
        own = best(score, among, int(count * self.floor))
        first = torch.where(own, float("inf"), score.double())
        return torch.unflatten(best(first.flatten(1), among.flatten(1), units * count), 1, (units, -1))
