"""Time to return as a survival curve: an episode still open at the end of the trace is not a failure.

Global LIR (definitions.md, section 7) counts an episode that is open when the trace ends as not rescued. Here it is
right-censored: all that is known is that its window had not returned by then. The Kaplan-Meier estimate of the share
not yet returned after time t is

    S(t) = Π_{t_j <= t} (1 - d_j / n_j)

over the times t_j at which d_j episodes returned out of the n_j still under watch; what is censored at t_j counts as
watched there. Source: Kaplan and Meier 1958, computed by `scipy.stats.ecdf`.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from qevict_diag.errors import InputError


@dataclass(frozen=True)
class SurvivalCurve:
    """The share of episodes not yet returned, as a step function that is 1 before the first time."""

    time: NDArray[np.float64]  # [step] the distinct durations, ascending, in routing events since eligibility
    survival: NDArray[np.float64]  # [step] S from this time on
    low: NDArray[np.float64]  # [step] pointwise interval; NaN where S is 1 or 0
    high: NDArray[np.float64]
    at_risk: NDArray[np.int64]  # [step] episodes under watch just before this time, n_j
    returned: NDArray[np.int64]  # [step] episodes that returned at this time, d_j

    @property
    def median(self) -> float:
        """Time by which half of all episodes have returned: the first with S <= 1/2, NaN when S stays above."""
        reached = self.time[self.survival <= 0.5]
        return float(reached[0]) if reached.size else float("nan")

    def at(self, time: ArrayLike) -> NDArray[np.float64]:
        """S at any times; NaN after the last duration unless S has reached 0 (nobody was watched that long)."""
        time = np.asarray(time, float)
        step = np.searchsorted(self.time, time, side="right")
        survival = np.concatenate(([1.0], self.survival))[step]
        last = self.time[-1] if self.time.size else 0.0
        return np.where((time > last) & (survival > 0), np.nan, survival)


def kaplan_meier(duration: ArrayLike, returned: ArrayLike, confidence: float = 0.95) -> SurvivalCurve:
    """Kaplan-Meier curve of time to return with right-censoring.

    ``duration`` [episode] is the event of return, or the last event of the trace, less the event at which the episode
    became eligible; ``returned`` bool [episode] says which. The interval is the log-log one (it stays within 0..1) and
    takes episodes as independent, which those of one trace are not: for an interval on the mean behaviour, resample
    traces. No episodes give an empty curve. Raises InputError for unlike shapes or a negative duration.
    """
    duration, returned = np.asarray(duration, float), np.asarray(returned, bool)
    if duration.ndim != 1 or returned.shape != duration.shape:
        raise InputError(f"duration {duration.shape} and returned {returned.shape}: both must be [episode]")
    if not (np.isfinite(duration).all() and (duration >= 0).all()):
        raise InputError("duration: must be finite and not negative")
    data = scipy.stats.CensoredData(uncensored=duration[returned], right=duration[~returned])
    curve = scipy.stats.ecdf(data).sf
    low, high = _interval(curve, confidence)
    time = np.asarray(curve.quantiles, float)
    at_risk = (duration[None] >= time[:, None]).sum(axis=1)
    events = ((duration[None] == time[:, None]) & returned[None]).sum(axis=1)
    return SurvivalCurve(time, np.asarray(curve.probabilities, float), low, high, at_risk, events)


def _interval(curve: Any, confidence: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Pointwise log-log interval; scipy warns where it is undefined and answers NaN, which is what is wanted."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The confidence interval is undefined", RuntimeWarning)
        interval = curve.confidence_interval(confidence, method="log-log")
    defined = (curve.probabilities > 0) & (curve.probabilities < 1)
    low, high = (np.where(defined, bound.probabilities, np.nan) for bound in (interval.low, interval.high))
    return low, high
