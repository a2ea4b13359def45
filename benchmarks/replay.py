"""How fast and how large a replay is, as ratios within one run. Prints a table, and JSON with --json.

    python benchmarks/replay.py [TRACE] [--reference] [--long] [--profile] [--threads N] [--json]

TRACE is a recorded trace (a random one of SmolLM2-135M's shape otherwise). The measure is work that no replay avoids:
two logit products (recorded and restored keys) and their softmaxes, all layers, in plain torch.
"""

import argparse
import cProfile
import inspect
import json
import pstats
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "tests")]

from random_layer import random_layers

from qevict_diag.cache.windows import Grid
from qevict_diag.measure import traces
from qevict_diag.measure.bytes import byte_use
from qevict_diag.measure.traces import measure
from qevict_diag.metrics import agreement, fmm, reference
from qevict_diag.policies import step
from qevict_diag.policies.catalogue import policy
from qevict_diag.replay import blocks, loop
from qevict_diag.replay import stream as streams
from qevict_diag.replay.blocks import LayerBlock
from qevict_diag.replay.loop import replay
from qevict_diag.replay.settings import Settings
from qevict_diag.trace.layer import Recorded
from qevict_diag.trace.trace import Trace

POLICIES = ("R1", "R2", "R3", "R4")
TURNS = 4  # of both, one after the other; the fastest of each counts, for others use the machine too
STAGES: dict[str, tuple[Callable[..., object], ...]] = {  # functions that don't call each other, to group a profile by
    "layers read from disk and checked": (blocks.layer_blocks,),
    "INT2 round trip of the keys": (LayerBlock.restored_key,),
    "attention masses of the queries": (LayerBlock.attention,),
    "masses of the windows": (streams._nested_masses, Grid.sum_windows),
    "routing": (step.decide,),
    "the estimator's sums": (loop.interval_view, step.learn),
    "missed mass": (fmm.MissedMass.add,),
    "mass shares and the oracle of LIR": (reference.ReferenceScores.add,),
    "QSA and R_Q": (agreement.IntervalAgreement.add,),
    "metrics of the whole run, and their rows": (traces.measure_replay, byte_use),
}


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """Median CPU seconds of this process after one warm-up run: what other programs on the machine cannot blur."""
    work()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return sorted(times)[len(times) // 2]


def bare(trace: Recorded, device: str) -> Callable[[], None]:
    """Both logit products and the softmax of each, layer by layer, in plain torch; no mask, no sum, no policy."""
    recorded = [trace.layer(number) for number in trace.layers]
    layers = [(layer.query.to(device).float(), layer.key.to(device).float()) for layer in recorded]

    def work() -> None:
        for query, key in layers:
            grouped = query.reshape(len(key), -1, query.shape[-1])
            for _ in ("recorded keys", "restored keys"):
                torch.softmax(grouped @ key.transpose(-1, -2), dim=-1)
        if device != "cpu":
            torch.cuda.synchronize()

    return work


def against_the_bare(trace: Recorded, device: str) -> dict[str, float]:
    """All metrics of R1-R4, from the trace on disk to their rows, against the bare products and softmaxes."""
    works = bare(trace, device), lambda: measure([trace], POLICIES, settings=Settings(device=device))
    turns = [[seconds(work, 1) for work in works] for _ in range(TURNS)]
    least, ours = (min(times) for times in zip(*turns, strict=True))
    return {"bare_s": least, "measure_s": ours, "times_the_bare (at most 4)": ours / least}


def profile(trace, device: str) -> dict[str, float]:
    """Share of the time of R1-R4 with every metric by `STAGES`, in percent; what is in none of them is the rest.

    KeyError for a stage whose function did not run.
    """
    settings = Settings(device=device)
    measure([trace], POLICIES, settings=settings)
    recorder = cProfile.Profile(time.process_time)
    recorder.runcall(measure, [trace], POLICIES, settings=settings)
    stats = pstats.Stats(recorder).stats  # (file, line, function) -> calls, .., own seconds, seconds, callers
    spent = {place: timed[3] for place, timed in stats.items()}
    total = spent[_place(measure)]
    shares = {name: sum(spent[_place(one)] for one in some) / total for name, some in STAGES.items()}
    return {f"{name} (%)": 100 * share for name, share in (shares | {"the rest": 1 - sum(shares.values())}).items()}


def _place(function: Callable[..., object]) -> tuple[str, int, str]:
    """Where a profile files a function."""
    code = inspect.unwrap(function).__code__
    return code.co_filename, code.co_firstlineno, code.co_name


def against_the_reference(trace) -> dict[str, float]:
    """One layer, R1-R4 with FMM, against the slow reference (replay and FMM alone, its other metrics left out)."""
    import judge
    import reference as slowly

    layer = judge.reference_layer(trace.layer(trace.layers[0]))

    def slow() -> None:
        for name in POLICIES:
            slowly.fmm(layer, slowly.replay(layer, slowly.CONDITIONS[name]))

    start = time.process_time()
    slow()
    theirs = time.process_time() - start
    settings = Settings(dtype=torch.float64)
    ours = seconds(lambda: replay(trace, [policy(n) for n in POLICIES], settings, layers=trace.layers[:1]))
    return {"reference_s": theirs, "replay_s": ours, "times_faster (at least 30)": theirs / ours}


def long_traces() -> dict[str, float]:
    """A layer of Llama-3.1-8B's shape at 8K, 16K and 32K prompt tokens: time by length, and peak memory."""
    found = {}
    for prefill in (8192, 16384, 32768):
        trace = random_layers(prefill, 256)
        found[f"{prefill}+256_s"] = seconds(lambda trace=trace: measure([trace], POLICIES, ["fmm", "churn"]), 1)
    found["peak_gb (below 4)"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    found["time_32k_over_8k (linear: 4)"] = found["32768+256_s"] / found["8192+256_s"]
    return found


def main() -> None:
    """Run what was asked for and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", nargs="?", help="a recorded trace")
    parser.add_argument("--reference", action="store_true", help="also against the slow reference (a minute)")
    parser.add_argument("--long", action="store_true", help="also 8K to 32K prompts")
    parser.add_argument("--profile", action="store_true", help="also where the time goes")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--threads", type=int, default=1, help="of torch; CPU seconds are only comparable at 1")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    trace = Trace.open(given.trace) if given.trace else random_layers(512, 256, 30, 9, 3, 64)
    found = against_the_bare(trace, given.device)
    if given.reference:
        found |= against_the_reference(trace)
    if given.profile:
        found |= profile(trace, given.device)
    if given.long:
        found |= long_traces()
    print(json.dumps(found, indent=1) if given.json else "\n".join(f"{k:36} {v:10.3f}" for k, v in found.items()))


if __name__ == "__main__":
    main()
