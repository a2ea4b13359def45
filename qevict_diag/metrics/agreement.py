"""Quantized-Score Agreement and the mass ratio R_Q (definitions.md, section 7; paper I.3).

    QSA_r = cos(s^Q, s^Full),   R_Q = Σ s^Q / Σ s^Full      over the windows in Q after event r

where s is the mass the queries of the interval after the event give each window.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import cast, final

import polars as pl
import torch
from torch import Tensor

from qevict_diag.cache.tier import Tier
from qevict_diag.frames import rows
from qevict_diag.metrics.arithmetic import ratio
from qevict_diag.metrics.metric import Metric, timed
from qevict_diag.policies.view import reciprocal
from qevict_diag.replay.blocks import LayerBlock
from qevict_diag.replay.fold import Fold, concatenate
from qevict_diag.replay.plan import MassKey, Plan
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


@final
@dataclass(frozen=True)
class IntervalAgreement(Fold):
    """QSA's sums of every full interval; None for a policy whose quantized tier has no room."""

    def start(self, plan: Plan, block: LayerBlock) -> "_Spans":
        """Nothing yet."""
        return _Spans()

    def add(self, plan: Plan, state: "_Spans", masses: QueryBlock, tier: Tensor, ledger: Tensor) -> "_Spans":
        """Compare the block's full intervals."""
        if plan.key is None:
            return state
        first = masses.queries.start // plan.grid.every
        quantized, full, member = interval_scores(plan, masses, tier[:, :, first:], ledger[:, :, first:])
        if plan.settings.readings.qsa_support.endswith("cumulative"):
            quantized, full = (
                _added_up(scores, member, before)
                for scores, before in ((quantized, state.quantized), (full, state.full))
            )
            state = replace(state, quantized=quantized[:, :, :, -1:], full=full[:, :, :, -1:])
            new = slice(full.shape[3] - member.shape[3], None)
            quantized, full = quantized[:, :, :, new], full[:, :, :, new]
        return replace(state, parts=(*state.parts, agreement(quantized, full, member)))

    def finish(self, plan: Plan, state: "_Spans") -> Agreement | None:
        """All full intervals, [layer, head, event]."""
        if not state.parts:
            return None
        found = concatenate(list(state.parts), 3)
        return Agreement(**{f.name: getattr(found, f.name).flatten(1, 2) for f in fields(found)})


@dataclass(frozen=True, eq=False)
class _Spans:
    """Sums of the intervals so far, and the scores that windows collected in Q under a cumulative reading."""

    quantized: Tensor | None = None  # [layer, unit, head, 1, window]
    full: Tensor | None = None
    parts: tuple[Agreement, ...] = ()


AGREEMENT = IntervalAgreement()


def _added_up(scores: Tensor, member: Tensor, before: Tensor | None) -> Tensor:
    """What windows collected while in Q, after ``before`` and each event: [layer, unit, head, event, window]."""
    own = torch.where(member, scores, 0).double()
    return (own if before is None else torch.cat((before, own), 3)).cumsum(3)


def interval_scores(plan: Plan, masses: QueryBlock, tier: Tensor, ledger: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """s^Q, s^Full and the windows in Q of a block's full intervals, all [layer, unit, head, event, window].

    ``tier`` and ``ledger`` are those of the block's events.
    """
    every, key = plan.grid.every, cast(MassKey, plan.key)  # only policies with a quantized tier get here
    events = len(masses.queries) // every
    full, quantized = (
        torch.unflatten(plan.per_unit(mass[:, :, : events * every]), -2, (events, every))
        for mass in (masses.full[plan.cut], masses.quantized[key])
    )
    member, tier, ledger = (
        mask[:, :, None, :events, None] for mask in (tier == Tier.QUANTIZED, tier, ledger)
    )  # [layer, unit, head, event, query, window]
    if plan.settings.readings.qsa_support.startswith("accessible"):
        always = plan.per_unit((masses.sinks[plan.grid.sinks] + masses.sink_share)[..., : events * every])
        seen = torch.where(tier == Tier.EVICTED, 0, torch.where(ledger, quantized, full)).sum(-1)
        normalizer = seen + torch.unflatten(always, -1, (events, every))
    else:
        normalizer = replaced_normalizer(full, quantized, member)
    scores = (quantized * reciprocal(normalizer)[..., None]).sum(-2)
    original = full.sum(-2)
    return scores, original, member.squeeze(-2).expand_as(original)


def qsa_rows(run: Replay) -> Iterator[pl.DataFrame]:
    """One row per layer, head and full interval; none for a policy without a quantized tier."""
    found: Agreement | None = run.kept(AGREEMENT)
    if found is not None:
        yield _per_head(run, found, found.qsa(), found.dot, found.norms)


def mass_ratio_rows(run: Replay) -> Iterator[pl.DataFrame]:
    """One row per layer, head and full interval; none for a policy without a quantized tier."""
    found: Agreement | None = run.kept(AGREEMENT)
    if found is not None:
        yield _per_head(run, found, found.mass_ratio(), found.quantized, found.full)


def _per_head(run: Replay, found: Agreement, value: Tensor, top: Tensor, bottom: Tensor) -> pl.DataFrame:
    where = {"layer": run.layers, "head": run.heads, "event": range(found.dot.shape[2])}
    return timed(run, rows(where, value=value, numerator=top, denominator=bottom))


QSA = Metric(
    "qsa",
    "Quantized-Score Agreement: cosine of INT2 and FullKV window scores",
    *("cosine", "higher", "QSA"),
    rows=qsa_rows,
    folds=(AGREEMENT,),
    readings=("qsa_support",),
)
MASS_RATIO = Metric(
    "mass_ratio",
    "R_Q: attention mass of the quantized tier over its FullKV mass",
    *("ratio", "near 1", "R_Q"),
    rows=mass_ratio_rows,
    how="pooled",
    folds=(AGREEMENT,),
    readings=("qsa_support",),
)
