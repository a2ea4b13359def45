"""Bytes as tidy rows: what a budget buys, and what a policy uses."""

import polars as pl

from qevict_diag.cache.budget import Budget, Geometry, capacity
from qevict_diag.cache.tier import Tier
from qevict_diag.frames import BYTES, conform
from qevict_diag.metrics.arithmetic import count
from qevict_diag.policies.conditions import DEFINED_BY_WINDOW, POLICIES
from qevict_diag.replay.result import Replay


def budget_table(budget: Budget, geometry: Geometry, window: int | None = None) -> pl.DataFrame:
    """Capacities and bytes of every policy that evicts, per layer and key-value head."""
    rows = []
    for policy in POLICIES.values():
        if policy.evicts:
            size = policy.window if window is None or policy.name in DEFINED_BY_WINDOW else window
            room = capacity(budget, geometry, size, quantized=policy.quantized)
            rows.append(
                {
                    "policy": policy.name,
                    "window": room.window,
                    "full_windows": room.full,
                    "quantized_windows": room.quantized,
                    "history_bytes": room.history_bytes,
                    "used_bytes": room.used_bytes,
                    "used_share": room.used_bytes / room.history_bytes,
                    "bits_per_quantized_element": 8 * room.low_window_bytes / (room.window * geometry.widths)
                    if policy.quantized
                    else None,
                }
            )
    return pl.DataFrame(rows)


def byte_use(run: Replay, trace: str) -> pl.DataFrame:
    """Peak bytes of a replay's tiers against its allowance, per layer and key-value head.

    ``persistent_ratio`` adds the sinks and the recent region and divides by FullKV's bytes at the final length;
    ``persistent_ratio_with_ledger`` also counts the codes the ledger keeps for windows now in the full tier (reading
    M).
    """
    room, settings = run.capacity, run.plan.settings
    token_bytes = room.full_window_bytes // room.window
    protected = (settings.budget.sinks + settings.budget.recent) * token_bytes
    full, quantized = (count(run.tier == z) for z in (Tier.FULL, Tier.QUANTIZED))
    used = full * room.full_window_bytes + quantized * room.low_window_bytes
    kept = count(run.ledger & (run.tier == Tier.FULL)) * room.low_window_bytes
    everything = run.grid.length * token_bytes
    frame = pl.DataFrame(
        {
            "window": room.window,
            "full_windows": room.full,
            "quantized_windows": room.quantized,
            "history_bytes": room.history_bytes,
            "used_bytes": int(used.max()),
            "used_share": int(used.max()) / room.history_bytes,
            "persistent_ratio": (protected + int(used.max())) / everything,
            "persistent_ratio_with_ledger": (protected + int((used + kept).max())) / everything,
        }
    )
    return conform(frame, BYTES, trace=trace, policy=run.policy.name, budget=str(settings.budget.ratio))
