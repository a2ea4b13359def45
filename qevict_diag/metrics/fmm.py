"""Future Missed Mass (definitions.md, section 7; paper I.2).

    FMM_r = Σ_{t=rΩ}^{rΩ+H-1} Σ_{i in E_r} A[t,i]  /  Σ_{t=rΩ}^{rΩ+H-1} Σ_{S <= i < n_r} A[t,i]

Both sums run over the horizon of event r; they are folded block by block, so these functions give partial sums.
"""

from collections.abc import Iterator

import polars as pl
import torch
from torch import Tensor

from qevict_diag.errors import MetricError
from qevict_diag.frames import rows
from qevict_diag.metrics.arithmetic import ratio
from qevict_diag.metrics.metric import _timed
from qevict_diag.replay.horizon import by_event, in_horizon
from qevict_diag.replay.result import Replay


def missed(mass: Tensor, inaccessible: Tensor, within: Tensor) -> Tensor:
    """Σ_{t in the horizon} Σ_{w inaccessible after r} mass: [layer, head, event].

    ``mass`` [layer, head, query, window], ``inaccessible`` [layer, unit, event, window], ``within`` [query, event].
    """
    return in_horizon(by_event(mass, inaccessible), within)


def fmm_rows(run: Replay, min_inactive: int) -> Iterator[pl.DataFrame]:
    """One row per layer, head and event with a full horizon; NaN where nothing historical exists or is attended."""
    seen = run.seen
    if seen.missed is None or seen.attended is None:
        raise MetricError("this replay did not keep missed mass; replay with Save(missed=True)")
    events = range(run.grid.eligible(run.plan.settings.horizon))
    existing = run.historical.any(-1)[: len(events)]
    missed, attended = seen.missed[..., : len(events)], seen.attended[..., : len(events)]
    attended = torch.where(existing, attended, 0)
    axes = {"layer": run.layers, "head": run.heads, "event": events}
    yield _timed(run, rows(axes, value=ratio(missed, attended), numerator=missed, denominator=attended))
