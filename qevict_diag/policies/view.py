"""What a policy's cache shows it: the prompt once, then the attention of each interval of decode queries.

Axes: layer, unit (one set of windows each: the layer, a key-value head or a query head, reading A), head (within the
unit), query, window. Everything here a decoder running the policy would know itself; nothing looks ahead.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from qevict_diag.cache.windows import Grid
from qevict_diag.errors import MetricError
from qevict_diag.policies.allotment import Layers


@dataclass(frozen=True, eq=False)
class Prompt:
    """The prefill as the policy sees it: exact, since routing starts after it. All sums run over the unit's heads."""

    grid: Grid
    layers: Layers
    mass: Tensor  # [layer, unit, window] attention that the scored prompt queries together gave (all of them, or by L)
    scored: range  # positions of those queries
    reach: Tensor  # [layer] how many positions a query sees at most: a sliding window, or all of them
    rows: Callable[[], tuple[Tensor, Tensor]]  # stored prompt queries: [layer, unit, head, query, window], positions
    key_norm: Callable[[], Tensor]  # [layer, unit, window] mean L2 norm of the window's keys
    value_norm: Callable[[], Tensor]  # [layer, unit, window] mean L2 norm of the window's values

    @property
    def device(self) -> torch.device:
        """Where its numbers are."""
        return self.mass.device

    def sightings(self) -> Tensor:
        """How many of the scored queries could see a window, [layer, 1, window]."""
        return sightings(self.grid, self.scored, self.reach)


@dataclass(frozen=True, eq=False)
class Future:
    """What no decoder knows: how much of each horizon's attention every window will get. For oracles only.

    ``gain`` float64 [layer, unit, event, window] is m_r(w), the mean over the unit's heads of the FullKV mass that the
    queries of event r's horizon give w, over FMM's denominator; a horizon that reaches beyond the trace is cut there.
    """

    grid: Grid
    layers: Layers
    gain: Tensor
    keep: int  # K_f + K_q
    eligible: int  # events with a full horizon, the first ones; FMM counts no others

    @property
    def device(self) -> torch.device:
        """Where its numbers are."""
        return self.gain.device


@dataclass(frozen=True, eq=False)
class Interval:
    """One interval of decode queries under the policy's cache (definitions.md, section 3).

    With a = exp(s - lse) the FullKV mass of a window and â the same with its dequantized keys, the policy's
    probability is

        p(w) = x(w) / (always + Σ_accessible x),   x(w) = â(w) where the ledger holds w, else a(w)

    which is the softmax over the accessible positions. ``always`` is the share of sinks and of a sink logit.
    """

    grid: Grid
    positions: Tensor  # [query] absolute
    full: Tensor  # [layer, unit, head, query, window] FullKV mass a
    quantized: Tensor | None  # the same, â; None in a two-tier policy
    always: Tensor  # [layer, unit, head, query]
    accessible: Tensor  # bool [layer, unit, window]
    ledger: Tensor  # bool [layer, unit, window]
    reach: Tensor  # [layer] how many positions a query sees at most
    elapsed: int  # decode queries since the event, also where only some of them are here
    restricted: bool = (
        False  # reading C: FullKV probabilities of the accessible windows, neither replaced nor renormalized
    )

    def total(self, weight: Tensor | None = None) -> Tensor:
        """Σ over the unit's heads and the interval's queries of p(w), [layer, unit, window].

        ``weight`` [query] weighs the queries (all 1 by default).
        """
        scale = self._scale() if weight is None else self._scale() * weight
        parts = [use * _weighed(scale, mass) for mass, use in self._sources()]
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def sightings(self) -> Tensor:
        """How many of the interval's queries could see a window, [layer, 1, window]."""
        first = int(self.positions[0])
        return sightings(self.grid, range(first, first + len(self.positions)), self.reach)

    def rows(self) -> Tensor:
        """p(w) for each query, [layer, unit, head, query, window]."""
        mixed = sum(mass * use[:, :, None, None] for mass, use in self._sources())
        return mixed * self._scale()[..., None]

    def last(self) -> "Interval":
        """The interval's last query alone (reading B)."""
        return replace(
            self,
            positions=self.positions[-1:],
            full=self.full[..., -1:, :],
            quantized=None if self.quantized is None else self.quantized[..., -1:, :],
            always=self.always[..., -1:],
        )

    def _sources(self) -> list[tuple[Tensor, Tensor]]:
        if self.quantized is None or self.restricted:
            return [(self.full, self.accessible.to(self.full.dtype))]
        original = (self.accessible & ~self.ledger).to(self.full.dtype)
        replaced = (self.accessible & self.ledger).to(self.full.dtype)
        return [(self.full, original), (self.quantized, replaced)]

    def _scale(self) -> Tensor:
        """1 / (always + Σ_accessible x), [layer, unit, head, query]."""
        if self.restricted:
            return torch.ones_like(self.always)
        return reciprocal(sum((_over_windows(mass, use) for mass, use in self._sources()), start=self.always))


def sightings(grid: Grid, queries: range, reach: Tensor) -> Tensor:
    """How many of the queries at positions ``queries`` see the whole of each window, float64 [layer, 1, window].

    A query at p sees positions p - reach + 1 .. p, so it sees window [s, s + Ω) when s + Ω - 1 <= p < s + reach.
    """
    start = grid.sinks + grid.window * torch.arange(grid.count, device=reach.device)
    first = (start + grid.window - 1).clamp_min(queries.start)
    stop = (start + reach[:, None]).clamp_max(queries.stop)
    return (stop - first).clamp_min(0)[:, None].double()


def reciprocal(normalizer: Tensor) -> Tensor:
    """1 / normalizer, and 0 for a query that gives nothing at all to what is accessible.

    MetricError in single precision, where nothing and very little cannot be told apart.
    """
    inverse = 1 / normalizer
    if bool(torch.isfinite(inverse).all()):
        return inverse
    if normalizer.dtype != torch.float64:
        raise MetricError(
            "a query gives what the policy keeps less attention than single precision can hold; "
            "use --arithmetic float64"
        )
    return torch.where(normalizer > 0, 1 / normalizer, 0)


def _over_windows(mass: Tensor, use: Tensor) -> Tensor:
    """Σ_w mass · use: [l, u, h, q, w] and [l, u, w] -> [l, u, h, q]; a product of small matrices takes longer."""
    return (mass * use[:, :, None, None]).sum(-1)


def _weighed(scale: Tensor, mass: Tensor) -> Tensor:
    """Σ over heads and queries of scale · mass: [l, u, h, q] and [l, u, h, q, w] -> [l, u, w]."""
    return (scale[..., None, :] @ mass).squeeze(-2).sum(2)
