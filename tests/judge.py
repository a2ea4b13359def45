"""Bridges between the library and `reference`: the same layer, policy and settings in both vocabularies."""

import numpy as np
import reference

from qevict_diag.cache.budget import Budget
from qevict_diag.cache.tier import Tier
from qevict_diag.readings import Readings
from qevict_diag.replay.result import Replay
from qevict_diag.testing.traces import MemoryTrace
from qevict_diag.trace.layer import LayerTrace

WORDS = {int(tier): tier.word for tier in Tier}


def reference_layer(trace: LayerTrace) -> reference.Layer:
    """The recorded layer as plain float64 arrays."""
    spec = trace.spec
    return reference.Layer(
        query=trace.query.double().numpy(),
        key=trace.key.double().numpy(),
        prompt_mass=trace.prompt_mass.double().numpy(),
        cos=None if trace.cos is None else trace.cos.numpy(),
        sin=None if trace.sin is None else trace.sin.numpy(),
        rope_style=spec.rope_style,
        rope_start=spec.rotary_start,
        scaling=spec.scaling,
        sliding_window=spec.sliding_window,
        softcap=spec.softcap,
        sink_logits=spec.sink_logits,
        value_dim=trace.value.shape[-1],
        prompt_query=None if trace.prompt_query is None else trace.prompt_query.double().numpy(),
    )


def reference_budget(budget: Budget) -> reference.Budget:
    return reference.Budget(budget.ratio, budget.quantized_fraction, budget.bits, budget.sinks, budget.recent)


def reference_readings(readings: Readings) -> dict[str, str]:
    return {name: getattr(readings, name) for name in reference.DEFAULTS}


def judged(trace: MemoryTrace, run: Replay, layer: int) -> reference.Replay:
    """The reference's replay of what ``run`` replayed on one layer."""
    policy = run.policy
    condition = reference.Policy(
        *(policy.grain, policy.quantizer is not None, policy.moves.promotion, policy.evicts, policy.readable)
    )
    settings = run.plan.settings
    return reference.replay(
        reference_layer(trace.layer(layer)),
        condition,
        reference_budget(settings.budget),
        reference_readings(settings.readings),
    )


def tiers_of(run: Replay, layer: int, unit: int, event: int) -> dict[int, str]:
    """Historical windows of one event -> tier, in the reference's words."""
    historical = run.grid.historical(event)
    return {w: WORDS[t] for w, t in enumerate(run.tier[layer, unit, event, :historical].tolist())}


def column(frame, metric: str, **where) -> np.ndarray:
    """The values of one metric, in row order."""
    import polars as pl

    chosen = frame.filter(pl.col("metric") == metric)
    for name, value in where.items():
        chosen = chosen.filter(pl.col(name) == value)
    return chosen["value"].to_numpy()
