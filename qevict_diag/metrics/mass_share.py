"""Tier-mass shares (definitions.md, section 7; paper I.3).

share_z(r) = Σ_{w in z} C_r(w) / Σ_{non-sink positions} C_r      z in Full, Quantized, Evicted, Local
"""

from collections.abc import Iterator

import polars as pl
import torch
from torch import Tensor

from qevict_diag.cache.tier import Tier
from qevict_diag.frames import rows
from qevict_diag.metrics.arithmetic import ratio
from qevict_diag.metrics.metric import Metric, axes, timed
from qevict_diag.metrics.reference import REFERENCE
from qevict_diag.replay.result import Replay


def tier_mass(mass: Tensor, tier: Tensor) -> dict[Tier, Tensor]:
    """Mass by tier, [..] each. ``mass`` and ``tier`` are [.., window]; windows not yet historical are local."""
    return {z: torch.where(tier == z, mass, 0).sum(-1) for z in Tier}


def mass_share_rows(run: Replay) -> Iterator[pl.DataFrame]:
    """One row per layer, event and tier."""
    kept, reading = run.kept(REFERENCE), run.plan.settings.readings.share_denominator
    instantaneous = reading == "instantaneous"
    events = run.grid.full_intervals() if instantaneous else run.grid.events
    mass = (kept.interval if instantaneous else kept.cumulative)[:, :, :events].double()
    total = mass.sum(-1) + (kept.sinks if reading == "sinks" else 0)
    for tier, part in tier_mass(mass, run.measured[:, :, :events]).items():
        where = axes(run, event=range(events))
        frame = rows(where, value=ratio(part, total), numerator=part, denominator=total)
        yield timed(run, frame.with_columns(group=pl.lit(tier.word)))


METRIC = Metric(
    "mass_share",
    "cumulative FullKV attention mass by tier",
    *("share", "lower evicted", "evicted share of the mass (%)"),
    rows=mass_share_rows,
    folds=(REFERENCE,),
    group="evicted",
    readings=("share_denominator",),
)
