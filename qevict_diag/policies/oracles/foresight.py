"""Rankings that know the recorded future: bounds for every estimator, never policies one could deploy.

They are visible by type: the replay hands the `Future` to a `Foresight` and to nothing else.
"""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qevict_diag.cache.budget import Capacity
from qevict_diag.cache.tier import Tier
from qevict_diag.errors import within
from qevict_diag.policies.oracles.optimum import Bools, Floats, distortion_aware, free_recall, irreversible
from qevict_diag.policies.ranking import Foresight, Split
from qevict_diag.policies.view import Future


@final
@dataclass(frozen=True)
class HorizonOracle(Foresight):
    """m_r(w): the share of the next H queries' FullKV attention that each window will get; greedy, eviction is final.

    Not optimal (`Irreversible` is), and not the paper's "oracle" of Global LIR, which ranks by the cumulative past.
    """

    def scores(self, future: Future) -> Tensor:
        """The future mass itself."""
        return future.gain


@final
@dataclass(frozen=True)
class FreeRecall(Foresight):
    """O1: the K windows with the largest m_r(w) at every event, evicted ones included; no policy misses less.

    The minimum of every FMM_r at K windows (`qevict_diag.oracle.free_recall`).
    """

    recalls: ClassVar[bool] = True

    def scores(self, future: Future) -> Tensor:
        """The future mass itself."""
        return future.gain


@final
@dataclass(frozen=True)
class Irreversible(Foresight):
    """O2: the sets of K windows with the least mean FMM when what is evicted never returns; exact.

    See `qevict_diag.oracle.irreversible`. Only events with a full horizon count, as in FMM.
    """

    def scores(self, future: Future) -> Tensor:
        """1 for what the optimum keeps, 0 for the rest."""
        gain = future.gain.clone()
        gain[:, :, future.eligible :] = 0
        exists = future.grid.historical_mask().numpy()
        lanes = [irreversible(lane.cpu().numpy(), exists, future.keep) for lane in gain.flatten(0, 1)]
        kept = torch.from_numpy(np.stack(lanes)).to(gain)
        return torch.unflatten(kept, 0, gain.shape[:2])


@final
@dataclass(frozen=True)
class DistortionAware(Split):
    """The best split of the bytes when a window in F is worth m_r(w) and one in Q is worth ρ·m_r(w); exact.

    See `qevict_diag.oracle.distortion_aware`. At ρ = 1 missed mass alone decides and everything goes to the cheaper
    tier; R_Q of a trace is a better guess. A two-tier policy keeps its K_f windows, as in O1.
    """

    fidelity: float = 1.0  # ρ

    def __post_init__(self) -> None:
        within("fidelity", self.fidelity, 0, 1)

    def tiers(self, future: Future, capacity: Capacity) -> Tensor:
        """Split every event of every unit."""
        exists = future.grid.historical_mask().numpy()
        lanes = [self._lane(lane.cpu().numpy(), exists, capacity) for lane in future.gain.flatten(0, 1)]
        tiers = torch.from_numpy(np.stack(lanes)).to(future.gain.device)
        return torch.unflatten(tiers, 0, future.gain.shape[:2])

    def _lane(self, gain: Floats, exists: Bools, capacity: Capacity) -> NDArray[np.uint8]:
        tier = np.where(exists, np.uint8(Tier.EVICTED), np.uint8(Tier.LOCAL))
        if capacity.quantized == 0:
            tier[free_recall(gain, exists, capacity.full)] = Tier.FULL
            return tier
        sizes = (capacity.history_bytes, capacity.full_window_bytes, capacity.quantized_window_bytes)
        split = distortion_aware(gain, exists, *sizes, self.fidelity)
        tier[split.full], tier[split.quantized] = Tier.FULL, Tier.QUANTIZED
        return tier
