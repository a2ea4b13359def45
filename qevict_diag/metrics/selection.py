"""The windows over which selections are followed, and the paper's oracle of Global LIR."""

import torch
from torch import Tensor

from qevict_diag.cache.routing import best
from qevict_diag.cache.tier import Tier
from qevict_diag.metrics.reference import REFERENCE
from qevict_diag.replay.result import Replay


def universe(run: Replay) -> Tensor:
    """Where X[r, w] is defined (reading D), bool [layer, unit, event, window]; nowhere without a full tier."""
    exists = run.historical.expand(run.tier.shape)
    if run.capacity.full == 0:
        return torch.zeros_like(exists)
    return exists & (run.tier != Tier.EVICTED) if run.plan.settings.readings.universe == "accessible" else exists


def oracle_selection(run: Replay, exists: Tensor) -> Tensor:
    """The paper's oracle: the K_f best windows of the universe by cumulative FullKV attention C_r."""
    return best(run.kept(REFERENCE).cumulative, exists, run.capacity.full)
