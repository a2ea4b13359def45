"""Tier-mass shares (definitions.md, section 7; paper I.3).

share_z(r) = Σ_{w in z} C_r(w) / Σ_{non-sink positions} C_r      z in Full, Quantized, Evicted, Local
"""

from collections.abc import Iterator

import polars as pl
import torch
from torch import Tensor

from qevict_diag.cache.tier import Tier
from qevict_diag.errors import MetricError
from qevict_diag.frames import rows
from qevict_diag.metrics.arithmetic import ratio
from qevict_diag.metrics.metric import _axes, _timed
from qevict_diag.replay.result import Replay


def tier_mass(mass: Tensor, tier: Tensor) -> dict[Tier, Tensor]:
    """Mass by tier, [..] each. ``mass`` and ``tier`` are [.., window]; windows not yet historical are local."""
    return {z: torch.where(tier == z, mass, 0).sum(-1) for z in Tier}


def mass_share_rows(run: Replay, min_inactive: int) -> Iterator[pl.DataFrame]:
    """One row per layer, event and tier."""
    seen, reading = run.seen, run.plan.settings.readings.share_denominator
    if seen.reference is None or seen.interval is None or seen.sinks is None:
        raise MetricError("this replay did not keep reference scores; replay with Save(reference=True)")
    instantaneous = reading == "instantaneous"
    events = run.grid.full_intervals() if instantaneous else run.grid.events
    mass = (seen.interval if instantaneous else seen.reference)[:, :, :events].double()
    total = mass.sum(-1) + (seen.sinks if reading == "sinks" else 0)
    for tier, part in tier_mass(mass, run.measured[:, :, :events]).items():
        frame = rows(_axes(run, event=range(events)), value=ratio(part, total), numerator=part, denominator=total)
        yield _timed(run, frame.with_columns(group=pl.lit(tier.word)))
