"""Tier-mass shares (definitions.md, section 7; paper I.3).

share_z(r) = Σ_{w in z} C_r(w) / Σ_{non-sink positions} C_r      z in Full, Quantized, Evicted, Local
"""

import torch
from torch import Tensor

from qevict_diag.cache.tier import Tier


def tier_mass(mass: Tensor, tier: Tensor) -> dict[Tier, Tensor]:
    """Mass by tier, [..] each. ``mass`` and ``tier`` are [.., window]; windows not yet historical are local."""
    return {z: torch.where(tier == z, mass, 0).sum(-1) for z in Tier}
