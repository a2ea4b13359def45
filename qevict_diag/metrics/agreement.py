"""Quantized-Score Agreement and the mass ratio R_Q (definitions.md, section 7; paper I.3).

    QSA_r = cos(s^Q, s^Full),   R_Q = Σ s^Q / Σ s^Full      over the windows in Q after event r

where s is the mass the queries of the interval after the event give each window.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from qevict_diag.metrics.fmm import ratio


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
