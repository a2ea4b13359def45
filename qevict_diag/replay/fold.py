"""What is kept of a replay for its metrics: sums, folded block by block in bounded memory.

A metric brings the folds that it needs; a replay knows none of them. Folds are frozen data, so metrics that need the
same sums name the same fold, and it is folded once.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from qevict_diag.replay.blocks import LayerBlock
from qevict_diag.replay.plan import Plan
from qevict_diag.replay.stream import QueryBlock

LAYER_AXIS, EVENT_AXIS = 0, 2  # of everything that is kept
State = Any


class Fold(ABC):
    """Sums over the stream of one policy's run. What `finish` gives has the layer on the first axis of its tensors."""

    def shared(self, plan: Plan) -> Hashable:
        """Plans that give the same are folded once: by default, only equal ones."""
        return self, plan

    @abstractmethod
    def start(self, plan: Plan, block: LayerBlock) -> State:
        """Before the first block of queries."""

    @abstractmethod
    def add(self, plan: Plan, state: State, masses: QueryBlock, tier: Tensor, ledger: Tensor) -> State:
        """After one block; ``tier`` (as metrics see it) and ``ledger`` [layer, unit, event, window] of all so far."""

    @abstractmethod
    def finish(self, plan: Plan, state: State) -> Any:
        """A tensor, a frozen dataclass of tensors, or None where the policy has no such thing."""


def concatenate(parts: list[Any], axis: int) -> Any:
    """Concatenate the tensors of equal (nested) frozen dataclasses along ``axis``, field by field; None stays None."""
    first = parts[0]
    if first is None:
        return None
    if isinstance(first, Tensor):
        return torch.cat(parts, axis)
    return type(first)(**{f.name: concatenate([getattr(p, f.name) for p in parts], axis) for f in fields(first)})
