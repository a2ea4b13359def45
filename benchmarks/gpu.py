"""What only a GPU can tell, in one run of under eight minutes: a table at the end, and JSON beside it (`make cuda`).

    python benchmarks/gpu.py [--json cuda.json] [--only tests,kernels,recording,replay] [--layers 32] [--minutes 8]
    python benchmarks/gpu.py --dry        # tiny shapes on the CPU, kernels by Triton's interpreter: does it all run?

tests: the suite's tests marked ``cuda``. kernels: fused column sums against the blocked ones, in the shape of a layer
of Llama-3.1-8B. recording: a model of that shape with random weights, plain sdpa against the same run observed (writing
the trace is not counted). replay: decisions and time on the GPU against the CPU. Exits with 1 when a check fails or did
not run; a dry run does not judge speed. (The file is not called cuda: PyTorch looks for a package of that name.)
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(Path(__file__).parent)]
if "--dry" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported

import torch

from qevict_diag.attention import fused, sums
from qevict_diag.attention.spec import AttentionSpec
from qevict_diag.cache.budget import Budget
from qevict_diag.models.intercept import intercept
from qevict_diag.models.stepper import quiet_model
from qevict_diag.policies.catalogue import policies
from qevict_diag.record.capture import Capture
from qevict_diag.record.decode import run
from qevict_diag.record.options import RecordOptions
from qevict_diag.record.probe import probe
from qevict_diag.record.rotary import watch_rotary
from qevict_diag.replay.loop import replay
from qevict_diag.replay.settings import Settings

WEIGHTS, CACHE, SPARE = 0.44e9, 0.14e9, 12e9  # bytes of a layer, of its 32K keys and values, and of all the rest
SAME = 0.999  # share of windows whose tier has to be the same on both devices


@dataclass(frozen=True)
class Shape:
    """Sizes of what is measured: a layer, a model's other widths, and prompts."""

    heads: int = 32
    kv_heads: int = 8
    width: int = 128
    hidden: int = 4096
    inner: int = 14336
    vocab: int = 128256
    layers: int = 32
    kernel_tokens: int = 8192
    short: tuple[int, int] = (512, 256)  # prompt and decode
    long: tuple[int, int] = (32768, 1)
    replayed: tuple[int, int, int] = (512, 256, 30)  # prompt, decode, layers
    dtype: torch.dtype = torch.bfloat16
    repeats: int = 3
    policies: tuple[str, ...] = ("R1", "R2", "R3", "R4")
    budget: Budget = field(default_factory=Budget)
    slower_short: float | None = 1.10  # how many times as long an observed run may take; None: not judged
    slower_long: float | None = 1.35
    all_tests: bool = True


LLAMA = Shape()
TINY = Shape(
    *(4, 2, 16, 64, 64, 128, 2, 40, (64, 8), (96, 1), (64, 40, 2), torch.float32, 1),
    *(("R1", "R2", "R3"), Budget("1/2", sinks=3, recent=8), None, None, False),
)


@dataclass(frozen=True)
class Check:
    """One row of the table; without a limit it is told and not judged, and None is a check that did not run."""

    name: str
    value: float | None
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        """``ok``, ``FAILED``, ``not run``, or nothing where there is no limit."""
        if self.value is None:
            return "not run"
        if self.at_most is None and self.at_least is None:
            return ""
        low = self.at_least is None or self.at_least <= self.value
        high = self.at_most is None or self.value <= self.at_most
        return "ok" if low and high else "FAILED"

    @property
    def limit(self) -> str:
        """In words."""
        said = (("at most", self.at_most), ("at least", self.at_least))
        return ", ".join(f"{word} {limit:g}" for word, limit in said if limit is not None)


def best_of(works: list[Callable[[], object]], repeats: int, device: str) -> list[float]:
    """Least wall seconds of each work, after one warm-up, all of them by turns."""
    found = [float("inf")] * len(works)
    for turn in range(repeats + 1):
        for index, work in enumerate(works):
            wait(device)
            start = time.perf_counter()
            work()
            wait(device)
            if turn:
                found[index] = min(found[index], time.perf_counter() - start)
    return found


def wait(device: str) -> None:
    """Until the device has done what it was told."""
    if device == "cuda":
        torch.cuda.synchronize()


def tests(shape: Shape, device: str) -> Iterator[Check]:
    """All tests marked ``cuda``; on a machine without a GPU they are collected and skipped."""
    files = sorted(str(file) for file in (ROOT / "tests").rglob("test_*.py") if "mark.cuda" in file.read_text("utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "cuda", f"--junitxml={report}", "-p", "no:cacheprovider"]
        environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        done = subprocess.run(
            [*command, *files], cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=240
        )
        if not report.is_file():
            yield Check("tests on CUDA that failed", None, at_most=0, note=done.stderr.strip()[-200:])
            return
        suite = next(ElementTree.parse(report).iter("testsuite"))
    ran, failed, errors, skipped = (int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped"))
    yield Check("tests on CUDA that failed", failed + errors, at_most=0)
    yield Check("tests on CUDA that ran", ran - skipped, at_least=ran if shape.all_tests else 0, note=f"of {ran}")


def kernels(shape: Shape, device: str) -> Iterator[Check]:
    """Fused log-sum-exp and column sums against the blocked ones, and how many times faster the sums are."""
    noise = torch.Generator().manual_seed(0)
    sizes = [(heads, shape.kernel_tokens, shape.width) for heads in (shape.heads, shape.kv_heads)]
    query, key = (torch.randn(size, generator=noise).to(device, shape.dtype) for size in sizes)
    spec, tolerance = AttentionSpec(0, shape.width**-0.5), 1e-4 if shape.dtype == torch.float32 else 2e-2
    try:
        import triton
    except ImportError:
        yield Check("fused kernels, gap", None, at_most=1, note="Triton is not installed")
        return
    for name in ("row_lse", "column_sums"):
        ours, theirs = (getattr(module, name)(query, key, spec, 0) for module in (fused, sums))
        gap = float(((ours - theirs).abs() / (tolerance * (1 + theirs.abs()))).max())
        yield Check(f"{name}, gap / tolerance", gap, at_most=1, note=f"Triton {triton.__version__}")
    works = [lambda module=module: module.column_sums(query, key, spec, 0) for module in (sums, fused)]
    blocked, quick = best_of(works, shape.repeats, device)
    yield Check("column sums, blocked / fused", blocked / quick, note="seconds")


def recording(shape: Shape, device: str) -> Iterator[Check]:
    """The same runs, plain and observed: prompt and decode steps, then a long prompt with either kind of sums."""
    model, prompt = llama(shape, device), shape.long[0]
    plans = probe(model)
    ids = torch.randint(shape.vocab, (1, prompt), generator=torch.Generator().manual_seed(0))

    def plain(options: RecordOptions) -> None:
        with quiet_model(model):
            run(model, ids[:, : options.prefill], options, [0])

    def observed(options: RecordOptions) -> None:
        capture = Capture(plans, plans, options, lambda layer: None, lambda count: None)
        with quiet_model(model), watch_rotary(model, capture.rotary), intercept(model, capture.attention):
            run(model, ids[:, : options.prefill], options, [0], capture.logits)
        capture.finish()

    cases = [(shape.short, False, shape.slower_short), (shape.long, False, None), (shape.long, True, shape.slower_long)]
    for (prefill, decode), with_kernels, limit in cases:
        name = f"{prefill}+{decode}, {len(plans)} layers, {'fused' if with_kernels else 'exact'} sums"
        if with_kernels and device != "cuda":
            yield Check(f"recording / plain, {name}", None, limit, note="fused sums need CUDA")
            continue
        options = RecordOptions(prefill=prefill, decode=decode, fused=with_kernels)
        works = [lambda o=options: plain(o), lambda o=options: observed(o)]
        seconds = best_of(works, shape.repeats, device)
        yield Check(f"recording / plain, {name}", seconds[1] / seconds[0], limit, note=f"plain {seconds[0]:.3g} s")


def llama(shape: Shape, device: str) -> torch.nn.Module:
    """A random model of the shape of Llama-3.1-8B, with as many of its layers as the device has memory for."""
    from transformers import AutoModelForCausalLM, LlamaConfig

    room = shape.layers if device != "cuda" else int((torch.cuda.mem_get_info()[0] - SPARE) / (WEIGHTS + CACHE))
    config = LlamaConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=max(1, min(shape.layers, room)),
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.width,
        max_position_embeddings=sum(shape.long),
    )
    torch.manual_seed(0)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=shape.dtype, attn_implementation="sdpa").eval()


def replaying(shape: Shape, device: str) -> Iterator[Check]:
    """R1-R4 on random layers in float64: the same tiers on both devices, and the time on each in float32."""
    from random_layer import random_layers

    prefill, decode, layers = shape.replayed
    trace, chosen = random_layers(prefill, decode, layers, 9, 3, 64), policies(shape.policies)
    double = [
        Settings(shape.budget, device=where, dtype=torch.float64, horizon=min(32, decode)) for where in ("cpu", device)
    ]
    here, there = (replay(trace, chosen, one) for one in double)
    same = [(mine.tier == other.tier.cpu()).double().mean().item() for mine, other in zip(here, there, strict=True)]
    yield Check(
        "replay, windows in the same tier", min(same), at_least=SAME, note=", ".join(one.name for one in chosen)
    )
    single = [replace(one, dtype=torch.float32) for one in double]
    works = [lambda one=one: replay(trace, chosen, one) for one in single]
    cpu, gpu = best_of(works, shape.repeats, device)
    yield Check(f"replay {prefill}+{decode}, {layers} layers, CPU / GPU", cpu / gpu, note=f"GPU {gpu:.3g} s")


STAGES: dict[str, Callable[[Shape, str], Iterator[Check]]] = {
    "tests": tests,
    "kernels": kernels,
    "recording": recording,
    "replay": replaying,
}


def checked(names: list[str], shape: Shape, device: str, minutes: float) -> Iterator[Check]:
    """Every check of the stages; one that breaks or begins too late did not run, and the others go on."""
    start = time.perf_counter()
    for name in names:
        began = time.perf_counter()
        if device == "cuda":
            torch.cuda.empty_cache()
        if began - start > 60 * minutes:
            yield Check(name, None, at_most=0, note=f"{minutes:g} minutes were over")
            continue
        try:
            yield from STAGES[name](shape, device)
        except Exception as error:  # one run on a borrowed GPU has to tell as much as it can
            yield Check(name, None, at_most=0, note=f"{type(error).__name__}: {error}"[:300])
        print(f"{time.perf_counter() - began:6.1f} s  {name}", file=sys.stderr, flush=True)


def table(found: list[Check]) -> str:
    """Markdown."""
    rows = [
        f"| {one.name} | {'' if one.value is None else f'{one.value:.4g}'} | {one.limit} | {one.verdict} | {one.note} |"
        for one in found
    ]
    return "\n".join(["| check | value | limit | | |", "|---|--:|---|---|---|", *rows])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=Path("cuda.json"), help="where the numbers go")
    parser.add_argument("--only", default=",".join(STAGES), help="stages, a,b")
    parser.add_argument("--layers", type=int, default=LLAMA.layers, help="of the model, at most")
    parser.add_argument("--minutes", type=float, default=7, help="after which no further stage begins")
    parser.add_argument("--dry", action="store_true", help="tiny shapes on the CPU")
    asked = parser.parse_args()
    if not asked.dry and not torch.cuda.is_available():
        parser.error("there is no CUDA device; --dry runs tiny shapes on the CPU")
    device, shape = ("cpu", TINY) if asked.dry else ("cuda", replace(LLAMA, layers=asked.layers))
    found = list(checked(asked.only.split(","), shape, device, asked.minutes))
    machine = {"device": torch.cuda.get_device_name() if device == "cuda" else "cpu", "torch": torch.__version__}
    rows = [asdict(one) | {"verdict": one.verdict} for one in found]
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps(machine | {"checks": rows}, indent=1) + "\n", encoding="utf-8")
    print(table(found))
    return int(any(one.verdict != "ok" for one in found if one.limit))


if __name__ == "__main__":
    sys.exit(main())
