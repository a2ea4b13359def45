"""Record, analyze and draw with what a plain install brings: run by the Python of an environment without extras.

`python tests/plain_install.py` makes a tiny model folder and a tiny GGUF file and takes both through the commands.
"""

import json
import random
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import torch
from gguf_files import VOCABULARY, write_gguf
from transformers import LlamaConfig, LlamaForCausalLM

EXTRAS = ("pytest", "hypothesis", "dask", "ray", "xarray", "peft")
LENGTHS = ("--prefill", 256, "--decode", 64)


def main() -> None:
    """Exit with an error as soon as one command fails."""
    surplus = [name for name in EXTRAS if find_spec(name)]
    if surplus:
        sys.exit(f"this environment has {', '.join(surplus)}; a plain install is what is tested")
    with tempfile.TemporaryDirectory() as folder:
        for model, words in models(Path(folder)):
            through_the_commands(model, words, Path(folder) / f"out-{model.name}")
    print("a plain install records, analyzes and draws: a model folder and a GGUF file")


def models(folder: Path):
    """A model folder with token ids to record, and a GGUF file with texts."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(VOCABULARY), max_position_embeddings=512, **sizes))
    model.save_pretrained(folder / "tiny")
    (folder / "ids.json").write_text(json.dumps([token % len(VOCABULARY) for token in range(3, 400)]))
    (folder / "more.json").write_text(json.dumps([token * 7 % len(VOCABULARY) for token in range(3, 400)]))
    yield folder / "tiny", ["--tokens", folder / "ids.json", "--tokens", folder / "more.json"]
    draw = random.Random(0)
    for name in ("one.txt", "two.txt"):
        (folder / name).write_text("".join(draw.choices("abcdefghijklm    ", k=400)))
    gguf = write_gguf(model, folder / "tiny.gguf", lambda writer: writer.add_rope_freq_base(10000.0))
    yield gguf, ["--text", folder / "one.txt", "--text", folder / "two.txt"]


def through_the_commands(model: Path, words: list[object], out: Path) -> None:
    """Record two articles and look at them."""
    run("record", "--model", model, *words, *LENGTHS, "--continuation", "teacher", "--out", out)
    run("verify", out)
    run("analyze", out, "--policy", "R1", "--policy", "R3", "--out", out / "rows.parquet")
    run("figure", "1", out, "--out", out / "figure1.pdf")
    run("table", "15", out, "--format", "html", "--out", out / "table15.html")


def run(*words: object) -> None:
    """One command, whose failure is this script's."""
    command = [Path(sys.executable).parent / "qevict-diag", *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        sys.exit(f"qevict-diag {' '.join(map(str, words))}: exit {done.returncode}\n{done.stdout}")


if __name__ == "__main__":
    main()
