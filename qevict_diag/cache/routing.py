"""The three tiers: routing between them, the write-once ledger, and their bytes (definitions.md, sections 5 and 6)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from qevict_diag.cache.budget import Capacity
from qevict_diag.cache.tier import Tier


@dataclass(frozen=True)
class Moves:
    """Which moves a policy may make besides demotion and eviction."""

    promotion: bool = True  # Q -> F
    recall: bool = False  # E -> F or Q: what no cache can do, and an oracle may


@dataclass(frozen=True, eq=False)
class Assignment:
    """Tiers after an event, and which windows have an entry in the quantized ledger: both [layer, unit, window]."""

    tier: Tensor  # uint8
    ledger: Tensor  # bool; grows only

    @classmethod
    def initial(cls, shape: tuple[int, ...], device: torch.device) -> "Assignment":
        """Everything local, nothing written."""
        return cls(
            torch.zeros(shape, dtype=torch.uint8, device=device), torch.zeros(shape, dtype=torch.bool, device=device)
        )

    @property
    def accessible(self) -> Tensor:
        """Windows a query can still attend to."""
        return self.tier != Tier.EVICTED

    def moved(self, tier: Tensor) -> "Assignment":
        """Every window in the tier given; what enters the quantized tier is written into the ledger."""
        return Assignment(tier, self.ledger | (tier == Tier.QUANTIZED))


Choose = Callable[[Tensor, Tensor, int], Tensor]  # (score, among, count) -> mask, all [layer, unit, window]


def route(
    score: Tensor,
    before: Assignment,
    historical: int,
    capacity: Capacity,
    moves: Moves,
    choose: Choose,
    *,
    forced: bool = False,
) -> Assignment:
    """One routing event: the K_f best candidates become F, the next K_q become Q, the rest E, for good.

    ``score`` [layer, unit, window]; the first ``historical`` windows are historical now, those among them that are
    still LOCAL are newcomers. Candidates are F ∪ Q ∪ newcomers. Without promotion a window of Q may only stay in Q or
    go. ``choose`` divides a count over the sets of a layer. ``forced`` (reading J) admits every newcomer and displaces
    the lowest of the others.
    """
    score, tier = score[..., :historical], before.tier[..., :historical]
    candidates = torch.ones_like(tier, dtype=torch.bool) if moves.recall else tier != Tier.EVICTED
    if forced:
        candidates = _admit(score, tier, candidates, capacity.kept, choose)
    may_be_full = candidates if moves.promotion else candidates & (tier != Tier.QUANTIZED)
    full = choose(score, may_be_full, capacity.full)
    quantized = choose(score, candidates & ~full, capacity.quantized)
    after = before.tier.clone()
    after[..., :historical] = _tiers(full, quantized)
    return before.moved(after)


def _tiers(full: Tensor, quantized: Tensor) -> Tensor:
    kept = torch.where(quantized, int(Tier.QUANTIZED), int(Tier.EVICTED))
    return torch.where(full, int(Tier.FULL), kept).to(torch.uint8)


def best(score: Tensor, among: Tensor, count: int) -> Tensor:
    """The ``count`` highest scores ``among`` the given windows, as a mask; ties go to the lower window id.

    The lowest score that is kept is found without sorting all of them.
    """
    if count >= score.shape[-1]:
        return among
    if count == 0:
        return torch.zeros_like(among)
    score = score.masked_fill(~among, float("-inf"))
    lowest = score.topk(count, dim=-1).values[..., -1:]
    kept = score >= lowest
    if bool((kept.sum(-1, dtype=torch.int32) > count).any()):
        above, tied = score > lowest, score == lowest
        left = count - above.sum(-1, keepdim=True)
        kept = above | (tied & (tied.cumsum(-1) <= left))
    return kept & among


def best_of_each(score: Tensor, among: Tensor, count: Tensor) -> Tensor:
    """The same with a count of its own for each set, ``count`` int64 [layer, unit] or what broadcasts to it."""
    order = score.masked_fill(~among, float("-inf")).argsort(dim=-1, descending=True, stable=True)
    place = torch.arange(score.shape[-1], device=score.device).expand_as(order)
    rank = torch.empty_like(order).scatter_(-1, order, place)
    return (rank < count[..., None]) & among


def _admit(score: Tensor, tier: Tensor, candidates: Tensor, keep: int, choose: Choose) -> Tensor:
    newcomers = choose(score, tier == Tier.LOCAL, keep)
    rank_first = torch.where(newcomers, float("inf"), score)
    return choose(rank_first, newcomers | (candidates & (tier != Tier.LOCAL)), keep)
