"""Bytes as tidy rows: what a budget buys, and what a policy's cache holds (definitions.md, section 4).

The budget covers F ∪ Q; sinks, every local token and the codes behind promoted windows come on top. A cache is measured
right after each event, at every query (its own token included), and at its peak, as a share of FullKV's bytes at the
final length. Where heads of one key-value group have sets of their own, what is resident is the union of their sets.
"""

from collections.abc import Iterable

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
    """What a replay's cache holds, a row for each layer: see `frames.BYTES`."""
    grid, room = run.grid, run.capacity
    token = room.full_window_bytes // room.window
    everything = grid.length * token
    nominal, resident, ledger, saved = (part.amax(1) for part in _tier_bytes(run))  # [layer, event]
    outside = torch.tensor([grid.sinks + grid.local(event) for event in range(grid.events)], device=run.tier.device)
    coming = torch.tensor([min(grid.every, grid.decode - event * grid.every) for event in range(grid.events)])
    after = resident + outside * token
    peak = after + coming.to(after.device) * token
    mean = (after + (coming.to(after.device) + 1).double() / 2 * token) * coming.to(after.device)
    columns = {
        "layer": torch.tensor(run.layers),
        "used_bytes": nominal.amax(1),
        "resident_bytes": resident.amax(1),
        "local_tokens": (outside - grid.sinks).max().expand(len(run.layers)),
        "local_tokens_peak": (outside.cpu() - grid.sinks + coming).max().expand(len(run.layers)),
        "share_of_allowance": nominal.amax(1).double() / room.history_bytes,
        "share_after_event": after.amax(1).double() / everything,
        "share_peak": peak.amax(1).double() / everything,
        "share_peak_with_ledger": (peak + ledger).amax(1).double() / everything,
        "share_peak_from_codes": (peak - saved).amax(1).double() / everything,
        "share_mean": mean.sum(1).double() / grid.decode / everything,
    }
    frame = pl.DataFrame({name: column.cpu().numpy() for name, column in columns.items()}).with_columns(
        full_windows=room.full, quantized_windows=room.quantized, history_bytes=room.history_bytes
    )
    return conform(frame, BYTES, trace=trace, **policy_labels(run.plan), **setting_labels(run.plan))


def _tier_bytes(run: Replay) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Bytes of F ∪ Q, nominal and resident, of the codes behind promoted windows, and what reading those would save.

    Nominal is of each set, the others of the union of a key-value head's sets; all [layer, set, event].
    """
    room = run.capacity
    full, quantized = run.tier == Tier.FULL, run.tier == Tier.QUANTIZED
    nominal = _bytes(full, quantized, run)
    groups = len(run.kv_heads) if run.plan.scope == "head" else run.plan.units
    united = (_any_of_group(part, groups) for part in (full, quantized, run.ledger & full))
    full, quantized, promoted = united
    twice = count(promoted)
    codes = room.quantized_window_bytes
    return nominal, _bytes(full, quantized, run), twice * codes, twice * (room.full_window_bytes - codes)


def _bytes(full: Tensor, quantized: Tensor, run: Replay) -> Tensor:
    return count(full) * run.capacity.full_window_bytes + count(quantized) * run.capacity.quantized_window_bytes


def _any_of_group(mask: Tensor, groups: int) -> Tensor:
    """Union over the sets of each group: [layer, unit, event, window] -> [layer, group, event, window]."""
    return torch.unflatten(mask, 1, (groups, -1)).any(2)


def _bought(policy: Policy, budget: Budget, geometry: Geometry) -> dict[str, object]:
    quantizer = quantizer_of(policy, Settings(budget))
    room = capacity(protecting(budget, policy), geometry, policy.grain, quantizer)
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
