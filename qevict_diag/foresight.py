"""Rankings that know the recorded future: bounds for every estimator, never policies one could deploy.

They are visible by type: the replay hands the `Future` to a `Foresight` and to nothing else.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from qevict_diag.oracle import irreversible
from qevict_diag.seen import Future


class Foresight(ABC):
    """A ranking that knows the recorded future: a bound for estimators, never a deployable policy."""

    recalls: ClassVar[bool] = False  # whether evicted windows may come back

    @abstractmethod
    def scores(self, future: Future) -> Tensor:
        """Scores of every event, [layer, unit, event, window]."""


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
        return kept.unflatten(0, gain.shape[:2])
