"""Quantized-Score Agreement and the mass ratio R_Q (definitions.md, section 7; paper I.3).

    QSA_r = cos(s^Q, s^Full),   R_Q = Σ s^Q / Σ s^Full      over the windows in Q after event r

where s is the mass the queries of the interval after the event give each window.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields

import polars as pl
import torch
from torch import Tensor

from qevict_diag.cache.tier import Tier
from qevict_diag.frames import rows
from qevict_diag.metrics.arithmetic import ratio
from qevict_diag.metrics.metric import _timed
from qevict_diag.policies.view import reciprocal
from qevict_diag.replay.plan import Plan
from qevict_diag.replay.result import Replay
from qevict_diag.replay.stream import QueryBlock


@dataclass(frozen=True, eq=False)
class Agreement:
    """Sums over the quantized windows of one event, each [..]: all that QSA and R_Q need."""

    dot: Tensor  # Σ s^Q s^Full
    norms: Tensor  # ‖s^Q‖·‖s^Full‖
    quantized: Tensor  # Σ s^Q
    full: Tensor  # Σ s^Full
    windows: Tensor  # |Q_r|

    def qsa(self) -> Tensor:
        """Cosine; NaN when a norm is 0 or fewer than two windows are in Q (one window agrees trivially)."""
        return torch.where(self.windows < 2, torch.nan, ratio(self.dot, self.norms))

    def mass_ratio(self) -> Tensor:
        """R_Q; NaN when Q is empty or got no mass."""
        return ratio(self.quantized, self.full)


def agreement(quantized: Tensor, full: Tensor, member: Tensor) -> Agreement:
    """Compare s^Q and s^Full [.., window] over ``member`` windows (bool, broadcast)."""
    member = member.expand_as(full)
    quantized, full = (torch.where(member, s, 0).double() for s in (quantized, full))
    return Agreement(
        dot=(quantized * full).sum(-1),
        norms=quantized.norm(dim=-1) * full.norm(dim=-1),
        quantized=quantized.sum(-1),
        full=full.sum(-1),
        windows=member.sum(-1),
    )


def replaced_normalizer(full: Tensor, quantized: Tensor, member: Tensor) -> Tensor:
    """Z = 1 + Σ_{w in Q} (â - a): the softmax normalizer of the FullKV support with the Q windows' keys replaced.

    ``full`` and ``quantized`` are [.., window] masses on the FullKV normalizer (reading I, the default).
    """
    return 1 + torch.where(member, quantized - full, 0).sum(-1)


def compare(plan: Plan, masses: QueryBlock, tier: Tensor, ledger: Tensor) -> Agreement:
    """QSA's sums of the full intervals of a block, [layer, head, event]; ``tier`` and ``ledger`` of its events."""
    window = plan.grid.window
    events = len(masses.queries) // window
    full, quantized = (
        plan.per_unit(mass[:, :, : events * window]).unflatten(-2, (events, window))
        for mass in (masses.full[window], masses.quantized[plan.key])
    )
    member, tier, ledger = (
        mask[:, :, None, :events, None] for mask in (tier == Tier.QUANTIZED, tier, ledger)
    )  # [layer, unit, head, event, query, window]
    if plan.settings.readings.qsa_support == "accessible":
        always = plan.per_unit((masses.sinks + masses.sink_share)[..., : events * window])
        seen = torch.where(tier == Tier.EVICTED, 0, torch.where(ledger, quantized, full)).sum(-1)
        normalizer = seen + always.unflatten(-1, (events, window))
    else:
        normalizer = replaced_normalizer(full, quantized, member)
    scores = (quantized * reciprocal(normalizer)[..., None]).sum(-2)
    found = agreement(scores, full.sum(-2), member.squeeze(-2))
    return Agreement(**{f.name: getattr(found, f.name).flatten(1, 2) for f in fields(found)})


def qsa_rows(run: Replay, min_inactive: int) -> Iterator[pl.DataFrame]:
    """One row per layer, head and full interval; none for a policy without a quantized tier."""
    found = run.seen.agreement
    if found is not None:
        axes = {"layer": run.layers, "head": run.heads, "event": range(found.dot.shape[2])}
        yield _timed(run, rows(axes, value=found.qsa(), numerator=found.dot, denominator=found.norms))


def mass_ratio_rows(run: Replay, min_inactive: int) -> Iterator[pl.DataFrame]:
    """One row per layer, head and full interval; none for a policy without a quantized tier."""
    found = run.seen.agreement
    if found is not None:
        axes = {"layer": run.layers, "head": run.heads, "event": range(found.dot.shape[2])}
        yield _timed(run, rows(axes, value=found.mass_ratio(), numerator=found.quantized, denominator=found.full))
