"""What every policy and every quantizer must keep, for packages that bring their own.

`broken_by_policy` replays a policy on random traces, and `broken_by_quantizer` writes random windows; both name the
laws that do not hold, so that a test is ``assert not broken_by_policy(policy)``.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import torch

from qevict_diag.cache.budget import Budget
from qevict_diag.cache.tier import Tier
from qevict_diag.metrics.fmm import MISSED
from qevict_diag.policies.policy import Policy
from qevict_diag.policies.ranking import Estimator, Foresight, Split
from qevict_diag.quantizers.quantizer import Quantizer
from qevict_diag.replay.loop import replay
from qevict_diag.replay.result import Replay
from qevict_diag.replay.settings import Settings
from qevict_diag.testing.traces import MemoryTrace, random_trace

SETTINGS = Settings(budget=Budget(Fraction(1, 2), sinks=3, recent=6), horizon=8, dtype=torch.float64)
ROUNDING = 1e-12


def regions(run: Replay) -> bool:
    """A window is local exactly as long as it is not historical."""
    return bool(((run.tier == Tier.LOCAL) == ~run.historical).all())


def within_budget(run: Replay) -> bool:
    """Σ over the sets of a layer of F·full + Q·quantized bytes <= the layer's history bytes; the reference is free.

    Where an allotment divides over the layers, over the sets of all of them.
    """
    full, quantized = ((run.tier == tier).sum((1, 3)) for tier in (Tier.FULL, Tier.QUANTIZED))  # [layer, event]
    used = full * run.capacity.full_window_bytes + quantized * run.capacity.quantized_window_bytes
    sharing = len(run.heads) // len(run.kv_heads) if run.plan.scope == "head" else 1  # sets over one key-value head
    if run.policy.allotment.across_layers:
        used = used.double().mean(0)
    return not run.policy.evicts or bool((used * sharing <= run.capacity.history_bytes * run.plan.units).all())


def final(run: Replay) -> bool:
    """What is evicted stays evicted, unless the moves or an oracle recall."""
    ranking = run.policy.ranking
    recalls = isinstance(ranking, Split) or (isinstance(ranking, Foresight) and ranking.recalls)
    gone = run.tier == Tier.EVICTED
    return recalls or run.policy.moves.recall or bool((gone[:, :, :-1] <= gone[:, :, 1:]).all())


def one_way(run: Replay) -> bool:
    """Without promotion no window goes from Q to F."""
    up = (run.tier[:, :, :-1] == Tier.QUANTIZED) & (run.tier[:, :, 1:] == Tier.FULL)
    return run.policy.moves.promotion or isinstance(run.policy.ranking, Split) or not bool(up.any())


def missed_is_a_share(run: Replay) -> bool:
    """0 <= missed <= attended."""
    found = run.kept(MISSED)
    return bool(((found.missed >= 0) & (found.missed <= found.attended * (1 + ROUNDING))).all())


LAWS: dict[str, Callable[[Replay], bool]] = {
    law.__name__: law for law in (regions, within_budget, final, one_way, missed_is_a_share)
}


def broken_by_policy(policy: Policy, settings: Settings = SETTINGS, seeds: Sequence[int] = (0, 1)) -> tuple[str, ...]:
    """Names of the laws that a policy breaks: `LAWS`, and ``whole_budget``, ``blocks`` and ``causal`` (below).

    ``whole_budget``: with all bytes nothing is evicted. ``blocks``: layers replayed one by one are decided alike.
    ``causal``: decisions do not depend on what comes after them; oracles need not keep it.
    """
    return tuple(dict.fromkeys(name for seed in seeds for name in _broken(policy, settings, seed)))


def _broken(policy: Policy, settings: Settings, seed: int) -> Iterator[str]:
    trace = random_trace(seed, layers=2, prefill=60, decode=48)
    run = _run(trace, policy, settings)
    yield from (name for name, law in LAWS.items() if not law(run))
    everything = replace(settings, budget=replace(settings.budget, ratio=Fraction(1), quantized_fraction=Fraction(0)))
    if bool((_run(trace, policy, everything).tier == Tier.EVICTED).any()):
        yield "whole_budget"
    alone = [replay(trace, [policy], settings, layers=[layer])[0].tier for layer in trace.layers]
    if not torch.equal(torch.cat(alone), run.tier):
        yield "blocks"
    if isinstance(policy.ranking, Estimator) and not _causal(trace, policy, settings, run):
        yield "causal"


def _causal(trace: MemoryTrace, policy: Policy, settings: Settings, run: Replay) -> bool:
    """Whether decisions stay when everything in the second half of decoding is turned round."""
    half = trace.shape.decode // 2
    other = _run(_turned(trace, half), policy, settings)
    before = half // run.grid.every + 1  # the event at a query sees what comes before it
    return torch.equal(run.tier[:, :, :before], other.tier[:, :, :before])


def _turned(trace: MemoryTrace, half: int) -> MemoryTrace:
    """The trace with opposite queries, keys and values from decode query ``half`` on."""
    sign = torch.ones(trace.shape.length, 1)
    sign[trace.shape.prefill + half :] = -1
    parts = [
        replace(part, query=part.query * sign[trace.shape.prefill :], key=part.key * sign, value=part.value * sign)
        for part in trace.parts
    ]
    return replace(trace, parts=tuple(parts))


def _run(trace: MemoryTrace, policy: Policy, settings: Settings) -> Replay:
    return replay(trace, [policy], settings, folds=[MISSED])[0]


def broken_by_quantizer(quantizer: Quantizer, window: int = 8, width: int = 16, value_width: int = 8) -> list[str]:
    """Names of the laws that a quantizer breaks.

    ``bytes``: codes take what `Quantizer.window_bytes` says. ``alone``: a window's codes do not depend on the windows
    that are written with it. ``shape``: restored windows are finite float32 of the shape that was written, also of
    constant and of very large values.
    """
    generator = torch.Generator().manual_seed(0)
    key, value = (torch.randn(3, window, one, generator=generator) for one in (width, value_width))
    key[1], value[1] = 0.25, 0.25
    key[2], value[2] = key[2] * 1e6, value[2] * 1e6
    codes = (quantizer.keys(key), quantizer.values(value))
    laws = {
        "bytes": sum(one.nbytes for one in codes) == 3 * quantizer.window_bytes(window, width, value_width),
        "alone": all(
            torch.equal(quantizer.restore(write(x[at : at + 1])), quantizer.restore(write(x))[at : at + 1])
            for write, x in ((quantizer.keys, key), (quantizer.values, value))
            for at in range(3)
        ),
        "shape": all(
            back.shape == x.shape and back.dtype == torch.float32 and bool(back.isfinite().all())
            for back, x in zip(map(quantizer.restore, codes), (key, value), strict=True)
        ),
    }
    return [name for name, holds in laws.items() if not holds]
