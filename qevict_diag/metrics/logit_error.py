"""Bias and variance of the logits' error in the quantized tier, which R_Q follows from (definitions.md, section 7).

    δ[t, i] = logit of query t on the dequantized key i, less that on its FullKV key

over the positions in Q after each event and the queries of the interval that follows. The exponential of an error of
mean b and variance s² multiplies an attention mass by exp(b + s²/2) on average, if the error is normal and independent
of the logit: an unbiased quantizer has R_Q above 1.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import polars as pl
import torch
from torch import Tensor

from qevict_diag.attention.logits import cap_, hide_, products
from qevict_diag.cache.tier import Tier
from qevict_diag.frames import rows
from qevict_diag.metrics.arithmetic import ratio
from qevict_diag.metrics.metric import Metric
from qevict_diag.replay.blocks import LayerBlock
from qevict_diag.replay.fold import Fold
from qevict_diag.replay.horizon import by_event
from qevict_diag.replay.plan import Plan
from qevict_diag.replay.result import Replay
from qevict_diag.replay.stream import QueryBlock


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over the logits of quantized positions, float64 [layer, head]."""

    count: Tensor
    error: Tensor  # Σ δ
    square: Tensor  # Σ δ²

    def bias(self) -> Tensor:
        """Mean error b; NaN without quantized positions."""
        return ratio(self.error, self.count)

    def scatter(self) -> Tensor:
        """Σ (δ - b)², at least 0."""
        return (self.square - self.error * self.bias().nan_to_num(0.0)).clamp_min(0)


@dataclass(frozen=True, eq=False)
class _Keys:
    block: LayerBlock
    original: Tensor  # [layer, kv_head, position, channel] of complete windows
    restored: Tensor
    sums: Moments


@final
@dataclass(frozen=True)
class LogitErrors(Fold):
    """Adds up δ and δ² over the quantized tier; None for a policy whose quantized tier has no room."""

    def start(self, plan: Plan, block: LayerBlock) -> _Keys | None:
        """Nothing yet, and the keys before and after the round trip."""
        if plan.key is None:
            return None
        behind = slice(plan.grid.sinks, None)
        restored = block.restored_key(plan.grid, plan.key.quantizer)[:, :, behind]
        zeros = torch.zeros(len(block.layers), block.heads, dtype=torch.float64, device=block.device)
        return _Keys(block, block.key[:, :, behind], restored, Moments(zeros, zeros, zeros))

    def add(self, plan: Plan, state: _Keys | None, masses: QueryBlock, tier: Tensor, ledger: Tensor) -> _Keys | None:
        """Add the block's queries on what is quantized while they come."""
        if state is None:
            return None
        error, seen = _errors(state, masses.queries)
        events = range(masses.queries.start // plan.grid.every, tier.shape[2])
        member = tier[:, :, events.start :] == Tier.QUANTIZED
        own = _own_event(plan, masses.queries, events, error.device)
        powers = (seen, error, error.square())
        found = (_total(plan.grid.sum_windows(power), member, own) for power in powers)
        sums = (before + more for before, more in zip(vars(state.sums).values(), found, strict=True))
        return _Keys(state.block, state.original, state.restored, Moments(*sums))

    def finish(self, plan: Plan, state: _Keys | None) -> Moments | None:
        """The sums."""
        return None if state is None else state.sums


LOGIT_ERRORS = LogitErrors()


def _errors(state: _Keys, queries: range) -> tuple[Tensor, Tensor]:
    """δ of a block's queries on every position behind the sinks, and 1; both 0 where they don't see it.

    [layer, head, query, position].
    """
    block, some = state.block, state.block.query[:, :, queries.start : queries.stop]
    start = block.prefill + block.decode - state.original.shape[2]
    positions = torch.arange(block.prefill + queries.start, block.prefill + queries.stop, device=some.device)
    error, original = products(some, state.restored), products(some, state.original)
    seen = torch.ones_like(error)
    for index, trace in enumerate(block.traces):
        cap_(error[index], trace.spec).sub_(cap_(original[index], trace.spec))
        for values in (error[index], seen[index]):
            hide_(values, positions, trace.spec, start, fill=0)
    return error, seen


def _own_event(plan: Plan, queries: range, events: range, device: torch.device) -> Tensor:
    """Which event each query follows: float [query, event]."""
    after = torch.arange(queries.start, queries.stop, device=device) // plan.grid.every
    return (after[:, None] == torch.arange(events.start, events.stop, device=device)).double()


def _total(by_window: Tensor, member: Tensor, own: Tensor) -> Tensor:
    """Σ over queries and the windows that are members at their event: [layer, head, query, window] -> [layer, head]."""
    return (by_event(by_window, member).double() * own).sum((-2, -1))


def bias_rows(run: Replay) -> Iterator[pl.DataFrame]:
    """One row per layer and head; none for a policy without a quantized tier."""
    found: Moments | None = run.kept(LOGIT_ERRORS)
    if found is not None:
        yield _per_head(run, found.bias(), found.error, found.count)


def variance_rows(run: Replay) -> Iterator[pl.DataFrame]:
    """One row per layer and head, around the head's own bias; none for a policy without a quantized tier."""
    found: Moments | None = run.kept(LOGIT_ERRORS)
    if found is not None:
        yield _per_head(run, ratio(found.scatter(), found.count), found.scatter(), found.count)


def _per_head(run: Replay, value: Tensor, top: Tensor, bottom: Tensor) -> pl.DataFrame:
    return rows({"layer": run.layers, "head": run.heads}, value=value, numerator=top, denominator=bottom)


BIAS = Metric(
    "logit_bias",
    "mean error of the logits of quantized positions",
    *("logits", "near 0", "logit bias"),
    rows=bias_rows,
    how="pooled",
    folds=(LOGIT_ERRORS,),
    by_name=True,
)
VARIANCE = Metric(
    "logit_variance",
    "variance s² of the error of the logits of quantized positions; R_Q is then about exp(s²/2)",
    *("logits²", "lower", "logit error variance"),
    rows=variance_rows,
    how="pooled",
    folds=(LOGIT_ERRORS,),
    by_name=True,
)
