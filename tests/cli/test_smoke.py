"""Every command once: what a release of a dependency must let through."""

import json

import pytest
from disk_traces import write_trace
from safetensors.torch import save_file
from tiny_models import build, transformers_noise
from typer.testing import CliRunner

from qevict_diag.cli import COMMANDS
from qevict_diag.cli.app import app

pytestmark = transformers_noise
WORDS = {
    "record": "--model MODEL --tokens ids.json --prefill 24 --decode 8 --out recorded --quiet",
    "inspect": "traces/a",
    "verify": "traces",
    "export": "traces/a --parquet exported",
    "import": "rows.safetensors --out imported",
    "replay": "traces --budget 1/2 --out decisions.parquet --quiet",
    "analyze": "traces --budget 1/2 --horizon 8 --out rows.csv --quiet",
    "compare": "traces --policy R2 --policy h2o --budget 1/2 --horizon 8 --out compared --quiet",
    "figure": "1 traces --budget 1/2 --horizon 8 --out figure.svg --quiet",
    "table": "15 traces --budget 1/2 --horizon 8 --out table.html --quiet",
    "reproduce": "--help",
    "sweep": "traces --budget 1/2 --budget 2/3 --horizon 8 --metric fmm --out swept --quiet",
    "sweep-table": "swept",
    "sweep-figure": "pareto swept --out pareto.pdf",
    "budget": "--json",
    "policies": "",
    "metrics": "--json",
    "quantizers": "",
    "tables": "--json",
    "figures": "",
    "readings": "",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    import torch

    folder = tmp_path_factory.mktemp("smoke")
    for seed, name in enumerate(("a", "b")):
        write_trace(folder / "traces" / name, seed, prefill=60, decode=40)
    build("llama").save_pretrained(folder / "MODEL")
    (folder / "ids.json").write_text(json.dumps([3 + i % 40 for i in range(24)]))
    rows = torch.rand(2, 3, 9).tril(6)
    rows /= rows.sum(-1, keepdim=True)
    save_file({"attention.0": rows, "prompt_mass.0": torch.ones(2, 6)}, folder / "rows.safetensors")
    return folder


def test_every_command_has_its_words():
    assert set(WORDS) == set(COMMANDS)


@pytest.mark.parametrize("command", WORDS)
def test_a_command_runs_and_explains_itself(folder, monkeypatch, command):
    monkeypatch.chdir(folder)
    for words in (WORDS[command].split(), ["--help"]):
        done = CliRunner().invoke(app, [command, *words])
        assert done.exit_code == 0, (done.output, done.exception)
