"""Decisions as tidy rows."""

from collections.abc import Sequence

import polars as pl

from qevict_diag.cache.tier import Tier
from qevict_diag.frames import DECISIONS, conform, rows
from qevict_diag.measure.labels import policy_labels
from qevict_diag.policies.policy import Policy
from qevict_diag.progress import Progress, Steps, silent
from qevict_diag.replay.loop import Asked, replay_blocks
from qevict_diag.replay.result import Replay
from qevict_diag.replay.settings import Settings
from qevict_diag.trace.layer import Recorded


def all_decisions(
    traces: Sequence[Recorded],
    policies: Sequence[Policy],
    settings: Settings,
    *,
    progress: Progress = silent,
) -> pl.DataFrame:
    """Tidy decisions of every policy on every trace; a step of ``progress`` is a layer."""
    finished = Steps(progress, "replaying", sum(len(trace.layers) for trace in traces))
    frames = []
    for trace in traces:
        for block in replay_blocks(trace, [Asked(one, (), settings) for one in policies]):
            frames += [decisions(run, trace.name) for run in block]
            finished(len(block[0].layers))
    return pl.concat(frames)


def decisions(run: Replay, trace: str) -> pl.DataFrame:
    """Tier of every complete window at every event, one row each; a column ``unit`` where heads have own sets."""
    axes = {
        "layer": run.layers,
        "unit": run.unit_numbers,
        "event": range(run.grid.events),
        "window": range(run.grid.count),
    }
    complete = run.grid.complete_mask().to(run.tier.device)
    frame = rows(axes, tier=run.tier, complete=complete).filter(pl.col("complete") == 1)
    words = {float(tier): tier.word for tier in Tier}
    named = frame.with_columns(pl.col("tier").replace_strict(words, return_dtype=pl.String))
    schema = DECISIONS | ({} if run.unit_numbers == (None,) else {"unit": pl.Int32()})
    return conform(named, schema, trace=trace, **policy_labels(run.plan))
