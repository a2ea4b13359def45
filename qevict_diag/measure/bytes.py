"""Bytes as tidy rows: what a budget buys, and what a policy's cache holds (definitions.md, section 4).

The budget covers F ∪ Q; sinks, every local token and the codes behind promoted windows come on top. A cache is measured
right after each event, at every query (its own token included), and at its peak, as a share of FullKV's bytes at the
final length. Where heads of one key-value group have sets of their own, what is resident is the union of their sets.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl
import torch
from torch import Tensor

from qevict_diag.cache.budget import Budget, Geometry, capacity
from qevict_diag.cache.tier import Tier
from qevict_diag.frames import BYTES, conform
from qevict_diag.measure.labels import policy_labels, setting_labels
from qevict_diag.metrics.arithmetic import count
from qevict_diag.policies.policy import Policy
from qevict_diag.replay.plan import protecting, quantizer_of
from qevict_diag.replay.result import Replay
from qevict_diag.replay.settings import Settings


def budget_table(policies: Iterable[Policy], budget: Budget, geometry: Geometry) -> pl.DataFrame:
    """Capacities and bytes of every policy that evicts, per layer and key-value head."""
    return pl.DataFrame([_bought(policy, budget, geometry) for policy in policies if policy.evicts])


def byte_use(run: Replay, trace: str) -> pl.DataFrame:
    """What a replay's cache holds, a row for each layer, mean over its key-value heads: see `frames.BYTES`."""
    grid, room, device = run.grid, run.capacity, run.tier.device
    token = room.full_window_bytes // room.window
    everything = grid.length * token
    nominal = _mean_of_heads(_bytes(run, *(count(run.tier == tier) for tier in (Tier.FULL, Tier.QUANTIZED))))
    part = resident_bytes(run)
    tiers, ledger, copies = (_mean_of_heads(one) for one in (part.tiers, part.ledger, part.copies))
    outside = torch.tensor([grid.sinks + grid.local(event) for event in range(grid.events)], device=device)
    coming = torch.tensor([min(grid.every, grid.decode - event * grid.every) for event in range(grid.events)]).to(
        device
    )
    after = tiers + outside * token
    peak = after + coming * token
    mean = (after + (coming + 1).double() / 2 * token) * coming
    columns = {
        "layer": torch.tensor(run.layers),
        "used_bytes": nominal.amax(1).ceil().long(),
        "resident_bytes": tiers.amax(1).ceil().long(),
        "local_tokens": (outside - grid.sinks).max().expand(len(run.layers)),
        "local_tokens_peak": (outside - grid.sinks + coming).max().expand(len(run.layers)),
        "share_of_allowance": nominal.amax(1) / room.history_bytes,
        "share_after_event": after.amax(1) / everything,
        "share_peak": peak.amax(1) / everything,
        "share_peak_with_ledger": (peak + ledger).amax(1) / everything,
        "share_peak_from_codes": (peak + ledger - copies).amax(1) / everything,
        "share_mean": mean.sum(1) / grid.decode / everything,
    }
    frame = pl.DataFrame({name: column.cpu().numpy() for name, column in columns.items()}).with_columns(
        full_windows=room.full, quantized_windows=room.quantized, history_bytes=room.history_bytes
    )
    return conform(frame, BYTES, trace=trace, **policy_labels(run.plan), **setting_labels(run.plan))


@dataclass(frozen=True, eq=False)
class Resident:
    """Bytes that stay in the memory of a key-value head, all [layer, group, event]: those of the union of its sets.

    A group is a key-value head, or a layer whose key-value heads all hold the same windows.
    """

    original: Tensor  # of F, never demoted in one of the sets that have it there
    copies: Tensor  # of F, restored from codes
    quantized: Tensor
    ledger: Tensor  # codes behind promoted windows that no set has in Q

    @property
    def tiers(self) -> Tensor:
        """F ∪ Q."""
        return self.original + self.copies + self.quantized


def resident_bytes(run: Replay) -> Resident:
    """What has to stay of F, Q and the ledger at every event, nothing counted twice.

    Where several sets share a head and one has promoted a window that another never demoted, both its original and its
    restored contents stay: they differ.
    """
    groups = len(run.kv_heads) if run.plan.scope == "head" else run.plan.units
    full, written = run.tier == Tier.FULL, run.ledger
    sets = (full & ~written, full & written, run.tier == Tier.QUANTIZED)
    original, promoted, quantized = (_any_of_group(part, groups) for part in sets)
    behind = count(promoted & ~quantized)
    return Resident(
        *(_bytes(run, count(part), 0) for part in (original, promoted)),
        *(_bytes(run, 0, windows) for windows in (count(quantized), behind)),
    )


def _bytes(run: Replay, full: Tensor | int, quantized: Tensor | int) -> Tensor:
    room = run.capacity
    return torch.as_tensor(full * room.full_window_bytes + quantized * room.quantized_window_bytes)


def _mean_of_heads(held: Tensor) -> Tensor:
    """[layer, set or group, event] -> [layer, event]: sets may differ in size; a layer costs what all hold."""
    return held.double().mean(1)


def _any_of_group(mask: Tensor, groups: int) -> Tensor:
    """Union over the sets of each group: [layer, unit, event, window] -> [layer, group, event, window]."""
    return torch.unflatten(mask, 1, (groups, -1)).any(2)


def _bought(policy: Policy, budget: Budget, geometry: Geometry) -> dict[str, object]:
    quantizer = quantizer_of(policy, Settings(budget))
    room = capacity(protecting(budget, policy, geometry.length), geometry, policy.grain, quantizer)
    return {
        "policy": policy.name,
        "window": room.window,
        "full_windows": room.full,
        "quantized_windows": room.quantized,
        "history_bytes": room.history_bytes,
        "used_bytes": room.used_bytes,
        "share_of_allowance": room.used_bytes / room.history_bytes,
        "bits_per_quantized_element": None
        if quantizer is None
        else 8 * room.quantized_window_bytes / (room.window * geometry.widths),
    }
