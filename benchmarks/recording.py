"""What recording costs: time and peak memory of a plain run, a recording, and eager attention with its weights kept.

    python benchmarks/recording.py --prefill 512 --decode 256
    python benchmarks/recording.py --prefill 8192 --decode 16 --layers 2

Every run has its own process; the model is smollm2-135m, cut to its first --layers. CPU seconds are the process's own,
so that other load on the machine matters little; memory is the peak above what the loaded model takes.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODES = ("plain", "record", "eager")


def run(mode: str, prefill: int, decode: int, layers: int | None, texts: int, threads: int) -> dict[str, float]:
    """One run in this process."""
    import torch

    from qevict_diag.models import load as models
    from qevict_diag.texts import source as articles

    torch.set_num_threads(threads)
    loaded = models.load("smollm2-135m", backend="eager" if mode == "eager" else None)
    if layers is not None:
        loaded.model.model.layers = loaded.model.model.layers[:layers]
        loaded.model.config.num_hidden_layers = layers
    ids = [loaded.tokenizer(source.text)["input_ids"] * 20 for source in articles.built_in()][:texts]
    sources = [articles.Source(f"text-{i}", tokens=tuple(tokens[:prefill])) for i, tokens in enumerate(ids)]
    _work(mode, loaded, sources, 64, 2)  # what comes once: imports, kernels, buffers
    before, started, cpu = _peak(), time.perf_counter(), time.process_time()
    _work(mode, loaded, sources, prefill, decode)
    seconds = {"wall_s": time.perf_counter() - started, "cpu_s": time.process_time() - cpu}
    return seconds | {"peak_MiB": (_peak() - before) / 1024}


def _work(mode, loaded, sources, prefill: int, decode: int) -> None:
    import torch

    from qevict_diag.record import RecordOptions, record
    from qevict_diag.record.decode import run as plain

    model, options = loaded.model, RecordOptions(prefill=prefill, decode=decode)
    prompts = torch.tensor([source.tokens[:prefill] for source in sources])
    if mode == "record":
        with tempfile.TemporaryDirectory() as out:
            record(model, None, sources, options, out=Path(out), identity=loaded.identity)
    elif mode == "plain":
        with torch.inference_mode():
            plain(model, prompts, options, [0] * len(sources))
    else:
        _eager(model, prompts, decode)


def _eager(model, tokens, decode: int) -> None:
    """Greedy decoding that keeps every attention matrix, as people do who ask the model for them."""
    import torch
    from transformers import DynamicCache

    cache, kept, step = DynamicCache(), [], tokens
    with torch.inference_mode():
        for _ in range(decode + 1):
            output = model(input_ids=step, cache=cache, use_cache=True, output_attentions=True, logits_to_keep=1)
            kept.append(output.attentions)
            step = output.logits[:, -1].argmax(dim=-1, keepdim=True)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--decode", type=int, default=256)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--texts", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--one", choices=MODES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(run(args.one, args.prefill, args.decode, args.layers, args.texts, args.threads)))
        return
    print("| run | CPU s | wall s | peak MiB above the model | CPU / plain |\n|---|---|---|---|---|")
    base = None
    for mode in args.modes.split(","):
        runs = [_in_process(mode, sys.argv[1:]) for _ in range(args.repeat)]
        best = {key: min(run[key] for run in runs) for key in runs[0]}
        base = base or best["cpu_s"]
        numbers = f"{best['cpu_s']:.1f} | {best['wall_s']:.1f} | {best['peak_MiB']:.0f} | {best['cpu_s'] / base:.2f}"
        print(f"| {mode} | {numbers} |", flush=True)


def _in_process(mode: str, words: list[str]) -> dict[str, float]:
    command = [sys.executable, __file__, *words, "--one", mode]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
