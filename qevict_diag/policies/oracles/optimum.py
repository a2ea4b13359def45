"""Oracles for Future Missed Mass: what the best eviction with full foresight would keep (definitions.md, section 14).

With m_r(i) = Σ_{t in horizon of r} A[t, i] / D_r, the share of event r's horizon that falls on unit i (a token or a
window), and D_r independent of the policy,

    FMM_r = Σ_{i exists at r} m_r(i) - Σ_{i kept at r} m_r(i),

which is additive in units. Three oracles follow, each a pure function of the gains ``m`` [event, unit]:

    free_recall       O1: the k_r largest at every event; the minimum of each FMM_r, for any policy that keeps k_r units
    irreversible      O2: the same when what is dropped never returns; the minimum of Σ_r FMM_r
    distortion_aware  a full tier worth m and a quantized tier worth ρ·m, split freely within a number of bytes

A set that the heads of a layer share takes the mean of the heads' gains (then the mean of the heads' FMM is minimal);
heads that share a budget but not their sets are one event with head x unit gains. FMM depends on F ∪ Q alone, so with
given capacities the three-tier oracle is `free_recall` or `irreversible` with k = K_f + K_q.

What they are not. They minimize attention mass under frozen FullKV queries, not the loss of any task, and within the
horizon of each event, not over the whole future. O1 <= O2 <= every irreversible policy holds for the mean over the
events given here with the same protected regions and k_r, not event by event; a policy that can recall is bounded by
O1 only. All units must be of one size: windows that are not would need a knapsack. Global LIR's "oracle" is another
thing, the top K_f by cumulative attention, which does not see the future.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qevict_diag.errors import InputError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class TierSplit:
    """Which units the distortion-aware oracle keeps: bool [event, unit] for each tier, disjoint."""

    full: Bools
    quantized: Bools

    @property
    def kept(self) -> Bools:
        """Units in either tier."""
        return self.full | self.quantized


def missed(gain: ArrayLike, exists: ArrayLike, kept: ArrayLike) -> Floats:
    """FMM_r [event] of keeping ``kept`` [event, unit]: the gains of what exists and is not kept, added up."""
    lost = np.where(np.asarray(exists, bool) & ~np.asarray(kept, bool), np.asarray(gain, float), 0.0)
    total: Floats = lost.sum(axis=1)
    return total


def free_recall(gain: ArrayLike, exists: ArrayLike, capacity: ArrayLike) -> Bools:
    """O1: at every event the k_r existing units with the largest gain; kept [event, unit]. Ties: lower unit first.

    ``gain`` [event, unit] is non-negative, ``exists`` bool [event, unit], ``capacity`` k_r [event] or one number.
    Exact, and a lower bound on FMM_r for every policy with at most k_r accessible units at r.
    """
    gain, exists, capacity = _checked(gain, exists, capacity)
    return exists & (_rank(gain, exists) < capacity[:, None])


def irreversible(gain: ArrayLike, exists: ArrayLike, capacity: ArrayLike) -> Bools:
    """O2: kept [event, unit] of the largest total gain when what is dropped never returns.

    max Σ_{r,i} m_r(i) x[r,i]  with x[r+1,i] <= x[r,i] once i exists, Σ_i x[r,i] <= k_r

    A unit is admitted at the event from which it exists or never. Arguments as in `free_recall`; ``exists`` must not
    end once it has begun. Exact: the problem is a flow of k_r slots through the events (definitions.md, section 14), so
    its optimum is integral, and successive best paths reach it (`_SlotFlow`). Gains are rounded to multiples of 2^-b of
    the largest one, b = 33 at 256 events, so that all sums are exact. Greedy rules (next horizon, remaining sum) are
    not optimal.
    """
    gain, exists, capacity = _checked(gain, exists, capacity)
    if (exists[:-1] & ~exists[1:]).any():
        raise InputError("exists: a unit that exists at one event must exist at all later ones")
    flow = _SlotFlow.start(gain, exists, np.minimum(capacity, exists.sum(axis=1)))
    for _ in range(int(flow.supply.clip(0).sum())):
        flow.send()
    return exists & (np.arange(len(gain))[:, None] < flow.exit)


def distortion_aware(
    gain: ArrayLike, exists: ArrayLike, history_bytes: int, full_bytes: int, low_bytes: int, fidelity: float
) -> TierSplit:
    """Three tiers with a free split: at every event max Σ_{i in F} m(i) + ρ Σ_{i in Q} m(i) within ``history_bytes``.

    ``fidelity`` is ρ >= 0, what a quantized unit is worth (R_Q, say); F and Q units cost ``full_bytes`` and
    ``low_bytes`` each. For every K_f the best K_q is as many as fit and the best assignment is sorted, so enumerating
    K_f is exact as long as cost and ρ are the same for all units; the smaller K_f wins a tie. Recall is free, as in O1.
    """
    gain, exists, _ = _checked(gain, exists, 0)
    if full_bytes <= 0 or low_bytes <= 0 or fidelity < 0:
        raise InputError(f"bytes {full_bytes} and {low_bytes} must be above 0, fidelity {fidelity} at least 0")
    rank = _rank(gain, exists)
    ordered = np.sort(np.where(exists, gain, 0.0), axis=1)[:, ::-1]
    splits = [
        _best_split(row, n, history_bytes, full_bytes, low_bytes, fidelity)
        for row, n in zip(ordered, exists.sum(axis=1), strict=True)
    ]
    first, total = (np.array(column, dtype=np.int64).reshape(-1, 1) for column in zip(*splits, strict=True))
    better, worse = exists & (rank < first), exists & (rank >= first) & (rank < total)
    return TierSplit(better, worse) if fidelity <= 1 else TierSplit(worse, better)


def _best_split(
    ordered: Floats, count: int, history_bytes: int, full_bytes: int, low_bytes: int, fidelity: float
) -> tuple[int, int]:
    """(units in the tier that is worth more, units kept) of the best split of one event; ``ordered`` is descending."""
    full = np.arange(min(count, history_bytes // full_bytes) + 1)
    quantized = np.minimum(count - full, (history_bytes - full * full_bytes) // low_bytes)
    first = full if fidelity <= 1 else quantized
    mass = np.concatenate(([0.0], np.cumsum(ordered)))
    high, low = max(1.0, fidelity), min(1.0, fidelity)
    best = int(np.argmax(high * mass[first] + low * (mass[full + quantized] - mass[first])))
    return int(first[best]), int(full[best] + quantized[best])


def _rank(gain: Floats, exists: Bools) -> Ints:
    """Place of every unit at its event [event, unit], the largest gain 0; units that do not exist come last."""
    order = np.argsort(np.where(exists, -gain, np.inf), axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(gain.shape[1])[None], axis=1)
    return rank


def _checked(gain: ArrayLike, exists: ArrayLike, capacity: ArrayLike) -> tuple[Floats, Bools, Ints]:
    gain, exists = np.asarray(gain, float), np.asarray(exists, bool)
    if gain.ndim != 2 or exists.shape != gain.shape:
        raise InputError(f"gain {gain.shape} and exists {exists.shape}: both must be [event, unit]")
    if not (np.isfinite(gain).all() and (gain >= 0).all()):
        raise InputError("gain: must be finite and not negative; leave out events without a full horizon")
    capacity = np.broadcast_to(np.asarray(capacity), (len(gain),)).astype(np.int64)
    if (capacity < 0).any():
        raise InputError(f"capacity {capacity.min()}: must be 0 or more at every event")
    return gain, exists, capacity


@dataclass(eq=False)
class _SlotFlow:
    """The flow behind `irreversible`, with one node for each event, one for the end, a source and a target.

    k_r slots pass from node r to node r+1, each idle or holding a unit. A unit born at b that is dropped at event e
    fills one slot from b to e; its ``exit`` is e, and b while it was never admitted. Moving an exit from e to e' is an
    arc e -> e' worth the gain between the two, so the residual graph has only the events as nodes and, for each pair of
    them, the best unit whose exit could move. Every slot sent is one most valuable path in it, found by Dijkstra's
    method: ``potential`` keeps what an arc falls short by, potential[a] - worth[a, b] - potential[b], at 0 or more.
    """

    prefix: Floats  # [unit, node] gain collected until a node, -inf before birth
    exit: Ints  # [unit]
    supply: Ints  # [node] slots still to be sent from (> 0) or into (< 0) a node
    idle: Ints  # [event] idle slots
    worth: Floats  # [node + 2, node + 2] best arc; the source and the target are the last two
    mover: Ints  # [node + 2, node + 2] the unit whose exit it moves, -1 for an idle slot
    potential: Floats  # [node + 2]

    @classmethod
    def start(cls, gain: Floats, exists: Bools, capacity: Ints) -> "_SlotFlow":
        events, units = gain.shape
        whole = _whole_numbers(np.where(exists, gain, 0.0))
        prefix = np.concatenate((np.zeros((units, 1)), np.cumsum(whole.T, axis=1)), axis=1)
        birth = events - exists.sum(axis=0)
        prefix[np.arange(events + 1) < birth[:, None]] = -np.inf
        most = np.concatenate(([0.0], np.cumsum(whole.max(axis=1, initial=0.0))))
        flow = cls(
            prefix=prefix,
            exit=birth,
            supply=np.diff(capacity, prepend=0, append=0),
            idle=np.zeros(events, np.int64),
            worth=np.full((events + 3, events + 3), -np.inf),
            mover=np.full((events + 3, events + 3), -1),
            potential=-np.concatenate((most, [0.0, most[-1]])),
        )
        flow.refresh(range(events + 1))
        return flow

    def refresh(self, nodes: Iterable[int]) -> None:
        """Recompute the arcs that leave ``nodes``, and those that join them to the source and the target."""
        end = len(self.idle)
        for node in nodes:
            units = np.flatnonzero(self.exit == node)
            self.worth[node], self.mover[node] = -np.inf, -1
            if units.size:
                moves = self.prefix[units] - self.prefix[units, node, None]
                best = moves.argmax(axis=0)
                self.worth[node, : end + 1] = moves[best, np.arange(end + 1)]
                self.mover[node, : end + 1] = units[best]
            if node < end:
                self.offer_idle(node, node + 1)
            if node > 0 and self.idle[node - 1] > 0:
                self.offer_idle(node, node - 1)
            self.worth[-2, node] = 0.0 if self.supply[node] > 0 else -np.inf
            self.worth[node, -1] = 0.0 if self.supply[node] < 0 else -np.inf

    def offer_idle(self, here: int, there: int) -> None:
        """Let an idle slot pass where every unit would lose: it costs nothing."""
        if self.worth[here, there] < 0:
            self.worth[here, there], self.mover[here, there] = 0.0, -1

    def send(self) -> None:
        """Send one slot along the most valuable path, and move the exits on it."""
        path = self.best_path()[1:-1]
        self.supply[path[0]] -= 1
        self.supply[path[-1]] += 1
        for here, there in pairwise(path):
            unit = self.mover[here, there]
            if unit >= 0:
                self.exit[unit] = there
            else:
                self.idle[min(here, there)] += there - here
        self.refresh(path)

    def best_path(self) -> list[int]:
        """Nodes of the most valuable path from source to target; adjusts the potentials for the next search."""
        source, target = len(self.potential) - 2, len(self.potential) - 1
        short = np.full(len(self.potential), np.inf)  # the least that a path to a node falls short by
        short[source] = 0.0
        before = np.full(len(self.potential), -1)
        waiting = short.copy()
        node = source
        while node != target:
            waiting[node] = np.inf
            through = (short[node] + self.potential[node]) - self.worth[node] - self.potential
            better = through < short
            for least in (short, waiting):
                np.copyto(least, through, where=better)
            before[better] = node
            node = int(waiting.argmin())
        self.potential += np.minimum(short, short[target])
        path = [target]
        while path[-1] != source:
            path.append(int(before[path[-1]]))
        return path[::-1]


def _whole_numbers(gain: Floats) -> Floats:
    """Gains as whole numbers, so small that every sum along a path of events is exact in float64."""
    bits = min(40, 51 - 2 * len(gain).bit_length())
    largest = gain.max(initial=0.0)
    return np.rint(gain * (2.0**bits / largest)) if largest > 0 else gain
