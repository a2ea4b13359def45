"""Tier-mass shares (definitions.md, section 7; paper I.3).

share_z(r) = Σ_{w in z} C_r(w) / Σ_{non-sink positions} C_r      z in Full, Quantized, Evicted, Local
"""

from collections.abc import Iterator

import polars as pl
import torch
from torch import Tensor

from qevict_diag.cache.tier import Tier
from qevict_diag.frames import rows_of_cases
from qevict_diag.metrics.arithmetic import ratio
from qevict_diag.metrics.metric import Metric, axes, timed
from qevict_diag.metrics.reference import REFERENCE
from qevict_diag.replay.result import Replay


def tier_mass(mass: Tensor, tier: Tensor) -> dict[Tier, Tensor]:
    """Mass by tier, [..] each. ``mass`` and ``tier`` are [.., window]; windows not yet historical are local."""
    sums = mass.new_zeros(*mass.shape[:-1], len(Tier)).scatter_add_(-1, tier.long(), mass)
    return {z: sums[..., z] for z in Tier}


def mass_share_rows(run: Replay) -> Iterator[pl.DataFrame]:
    """One row per layer, event and tier."""
    kept, reading = run.kept(REFERENCE), run.plan.settings.readings.share_denominator
    instantaneous = reading == "instantaneous"
    events = run.grid.full_intervals() if instantaneous else run.grid.events
    mass = (kept.interval if instantaneous else kept.cumulative)[:, :, :events].double()
    total = mass.sum(-1) + (kept.sinks if reading == "sinks" else 0)
    found = tier_mass(mass, run.measured[:, :, :events])
    part, where = torch.stack(list(found.values())), axes(run, event=range(events))
    cases = {"group": [tier.word for tier in found]}
    yield timed(run, rows_of_cases(cases, where, value=ratio(part, total), numerator=part, denominator=total))


METRIC = Metric(
    "mass_share",
    "cumulative FullKV attention mass by tier",
    *("share", "lower evicted", "evicted share of the mass (%)"),
    rows=mass_share_rows,
    folds=(REFERENCE,),
    group="evicted",
    readings=("share_denominator",),
)
