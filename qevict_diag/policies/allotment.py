"""How a budget divides over the sets of windows of a layer: each set its own share, or one pool for all."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, final

import torch
from torch import Tensor

from qevict_diag.cache.routing import best, best_of_each
from qevict_diag.errors import within


@dataclass(frozen=True)
class Layers:
    """Which layers a block holds, ``numbers`` in its order, of how many in the model."""

    numbers: tuple[int, ...]
    total: int


class Allotment(ABC):
    """Chooses the windows of a tier: ``count`` for each set on average, never more than that for a layer."""

    across_layers: ClassVar[bool] = False  # whether only all layers together keep to it

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


@final
@dataclass(frozen=True)
class Adaptive(Allotment):
    """AdaKV as its code divides a layer's budget (Feng et al. 2024): each set's share of the best, above a floor.

        capacity_u = round(cnt_u · (1 - alpha) + int(count · alpha)),   cnt_u of the units · count best are of set u

    Halves are rounded to even and nothing is repaired afterwards, so that a layer may keep a few windows more or fewer
    than its budget; `Pooled` is the same idea without that.
    """

    alpha: float = 0.2

    def __post_init__(self) -> None:
        within("alpha", self.alpha, 0, 1)

    def choose(self, score: Tensor, among: Tensor, count: int, layers: Layers) -> Tensor:
        """Each set's best, as many as it is given."""
        units = score.shape[1]
        pooled = best(score.double().flatten(1), among.flatten(1), units * count).unflatten(1, (units, -1))
        given = (pooled.sum(-1) * (1 - self.alpha) + int(count * self.alpha)).round().long()
        return best_of_each(score, among, given)


@final
@dataclass(frozen=True)
class Pyramid(Allotment):
    """PyramidKV's arithmetic series of budgets, the first layer's largest (Cai et al. 2024).

        low = count // beta,  high = 2·count - low,  or high = W and low = 2·count - W where fewer windows W are there
        layer l of L keeps high - l·step,   step = (high - low) // (L - 1)

    The whole step overspends: 2.8% for 32 layers of 504 tokens. ``exact`` divides without rounding the step, and
    rounds each layer's count down, so that no model keeps more than L·count.
    """

    across_layers: ClassVar[bool] = True
    beta: int = 20
    exact: bool = True

    def __post_init__(self) -> None:
        within("beta", self.beta, 1)

    def choose(self, score: Tensor, among: Tensor, count: int, layers: Layers) -> Tensor:
        """The best of each set, as many as its layer is given."""
        given = [self.of_layer(number, layers.total, count, score.shape[-1]) for number in layers.numbers]
        return best_of_each(score, among, torch.tensor(given, device=score.device)[:, None])

    def of_layer(self, layer: int, layers: int, count: int, windows: int) -> int:
        """How many windows a layer keeps of ``windows``."""
        if layers == 1 or count >= windows:
            return count
        low = count // self.beta
        high = 2 * count - low
        if high >= windows:
            high, low = windows, 2 * count - windows
        step = Fraction(high - low, layers - 1)
        return int(high - layer * (step if self.exact else int(step)))


@final
@dataclass(frozen=True)
class FirstWhole(Allotment):
    """The first ``layers`` keep everything, the others each set's best."""

    layers: int = 2

    def __post_init__(self) -> None:
        within("whole layers", self.layers, 0)

    def choose(self, score: Tensor, among: Tensor, count: int, layers: Layers) -> Tensor:
        """All windows of the first layers, the best of each set of the others."""
        whole = torch.tensor([number < self.layers for number in layers.numbers], device=score.device)
        return torch.where(whole[:, None, None], among, best(score, among, count))
