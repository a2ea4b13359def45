"""Mutate traces at random: opening, reading and verifying give the original's answer or a TraceError, never else.

python tests/fuzz_trace.py 10000 [SEED]      (`make fuzz`)
"""

import json
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

import torch

from qevict_diag.attention.rope import rotate
from qevict_diag.attention.spec import AttentionSpec
from qevict_diag.attention.sums import column_sums, row_lse
from qevict_diag.errors import TraceError
from qevict_diag.trace.manifest import FORMAT, VERSION, checksum, spec_to_json
from qevict_diag.trace.summary import summary
from qevict_diag.trace.tensor_file import write_tensors
from qevict_diag.trace.trace import Trace
from qevict_diag.trace.writer import TraceWriter

SCALARS = (
    0,
    1,
    -1,
    2,
    1 << 31,
    1 << 63,
    1 << 70,
    1.5,
    1e308,
    -0.0,
    True,
    None,
    "",
    "x",
    "../x",
    "\0",
    [],
    {},
    [[]],
    {"a": 1},
)


def tiny_trace(target: Path) -> Path:
    """A whole trace of 3 layers, 2 heads, 1 KV head, width 4 and 6 + 3 positions, made without a model.

    Its heads are some of a larger model's, and the last layer reads the keys of the first.
    """
    draw = torch.Generator().manual_seed(0)
    angle = torch.arange(9.0)[:, None] * torch.tensor([1.0, 0.1, 1.0, 0.1])
    rotary = {"rope": "rope0", "rope_style": "half", "rotary_dim": 4}
    some = {"head_numbers": (2, 3), "kv_head_numbers": (1,)}
    specs = [
        AttentionSpec(0, 0.5, **rotary, **some),
        AttentionSpec(1, 0.5, sliding_window=4, softcap=5.0, sink_logits=(0.5, -1.0), **some),
        AttentionSpec(2, 0.5, kv_of=0, **rotary, **some),
    ]
    caches = {}
    with TraceWriter(target) as writer:
        writer.write_tokens(torch.randint(0, 50, (9,), generator=draw))
        writer.write_rope({"cos.rope0": angle.cos(), "sin.rope0": angle.sin()})
        for spec in specs:
            caches[spec.layer] = caches[spec.kv_of] if spec.kv_of is not None else _cache(spec, draw, angle)
            own = {} if spec.kv_of is not None else caches[spec.layer]
            writer.write_layer(spec.layer, own | _layer(spec, draw, caches[spec.layer]["key"]))
        shape = dict(layers=3, heads=2, kv_heads=1, head_dim=4, value_dim=3, prefill=6, decode=3, vocab=50)
        manifest = {"format": FORMAT, "version": VERSION, "shape": shape, "model": {"id": "tiny"}}
        manifest |= {"attention": [spec_to_json(spec) for spec in specs], "prompt_queries": {"first": 4, "count": 2}}
        manifest |= {"source": {"name": "none", "text_sha256": "0" * 64, "continuation": "teacher", "seed": 0}}
        return writer.publish(manifest | {"recorder": {}, "software": {}, "created": "2026-01-01T00:00:00+00:00"})


def _cache(spec, draw, angle):
    key, value = (torch.randn(shape, generator=draw) for shape in ((1, 9, 4), (1, 9, 3)))
    return {"key": rotate(key, angle.cos(), angle.sin(), "half") if spec.rope else key, "value": value}


def _layer(spec, draw, key):
    query = torch.randn((2, 9, 4), generator=draw)
    mass, lse = column_sums(query[:, :6], key[:, :6], spec), row_lse(query[:, 6:], key, spec, 6)
    return {"query": query[:, 6:], "prompt_mass": mass, "prompt_query": query[:, 4:6], "lse": lse}


def answers(folder: Path) -> list[torch.Tensor]:
    """Everything a trace can be asked for; it has to verify too."""
    trace = Trace.open(folder)
    found = [trace.tokens]
    for number in trace.layers:
        layer = trace.layer(number)
        found += [layer.query, layer.key, layer.value, layer.prompt_mass, layer.lse]
        found += [layer.attention(), layer.prompt_attention(), layer.key_pre_rope()]
        found += [torch.tensor(numbers) for numbers in (layer.head_numbers, layer.kv_head_numbers)]
    summary(trace)
    trace.verify()
    return found


def mutate(folder: Path, random: random.Random) -> str:
    """Damage one file of ``folder``; says how."""
    action = random.choice(
        (flip, truncate, grow, cut_out, change_manifest, change_manifest, change_header, resign, swap)
    )
    return f"{action.__name__}: {action(folder, random)}"


def pick(folder, random):
    return random.choice(sorted(folder.iterdir()))


def flip(folder, random):
    path = pick(folder, random)
    data = bytearray(path.read_bytes())
    for _ in range(random.choice((1, 1, 1, 8))):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    path.write_bytes(data)
    return path.name


def truncate(folder, random):
    path = pick(folder, random)
    path.write_bytes(path.read_bytes()[: random.randrange(path.stat().st_size)])
    return path.name


def grow(folder, random):
    path = pick(folder, random)
    path.write_bytes(path.read_bytes() + random.randbytes(random.randrange(1, 50)))
    return path.name


def cut_out(folder, random):
    path = pick(folder, random)
    data, at = path.read_bytes(), random.randrange(path.stat().st_size)
    path.write_bytes(data[:at] + data[at + random.randrange(1, 20) :])
    return path.name


def swap(folder, random):
    one, two = pick(folder, random), pick(folder, random)
    data = one.read_bytes(), two.read_bytes()
    one.write_bytes(data[1])
    two.write_bytes(data[0])
    return f"{one.name} {two.name}"


def change_manifest(folder, random):
    """Put a strange value somewhere into the manifest, or take an entry away."""
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    where = change_json(content, random)
    unsigned = random.random() < 0.5
    if unsigned:
        content.pop("checksum", None)
    path.write_text(json.dumps(content))
    return where + " (without checksum)" * unsigned


def change_header(folder, random):
    """The same in a safetensors header, with size and offsets left to disagree."""
    path = random.choice(sorted(folder.glob("*.safetensors")))
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    where = change_json(header, random)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    size = path.stat().st_size
    content = json.loads((folder / "manifest.json").read_text())
    content["files"][path.name]["bytes"] = size
    sign(folder, content)
    return f"{path.name} {where}"


def sign(folder, content):
    content["checksum"] = checksum(content)
    (folder / "manifest.json").write_text(json.dumps(content))


def resign(folder, random):
    """Honest checksums over numbers that cannot be: only the laws can tell."""
    import safetensors.torch

    path = random.choice(sorted(folder.glob("*.safetensors")))
    tensors = {name: tensor.clone() for name, tensor in safetensors.torch.load_file(path).items()}
    name = random.choice(sorted(tensors))
    flat = tensors[name].view(-1)
    wrong = (1000, -1000, 1 << 62) if flat.dtype == torch.int64 else (float("nan"), float("inf"), -float("inf"))
    flat[random.randrange(len(flat))] = random.choice(wrong)
    path.unlink()
    entry = write_tensors(path, tensors)
    content = json.loads((folder / "manifest.json").read_text())
    content["files"][path.name] = entry.to_json()
    sign(folder, content)
    return f"{path.name} {name}"


def change_json(content, random):
    """Replace or remove one value at a random place of nested JSON; says where."""
    node, trail = content, []
    while True:
        key = random.choice(list(node) if isinstance(node, dict) else range(len(node)))
        trail.append(key)
        if isinstance(node[key], dict | list) and node[key] and random.random() < 0.8:
            node = node[key]
            continue
        if random.random() < 0.2:
            del node[key]
        else:
            node[key] = random.choice(SCALARS)
        return "/".join(map(str, trail))


def attempt(original: Path, expected: list[torch.Tensor], seed: int) -> str:
    """One mutation; 'refused', 'same' or 'another, unsigned'. AssertionError for any other outcome."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(shutil.copytree(original, Path(scratch) / "trace"))
        what = mutate(folder, random.Random(seed))
        try:
            found = answers(folder)
        except TraceError:
            return "refused"
        except Exception as error:  # any error but TraceError is what fuzzing looks for; the seed is added to it
            raise AssertionError(f"seed {seed}, {what}: {type(error).__name__}: {error}") from error
    if len(found) == len(expected) and all(torch.equal(a, b) for a, b in zip(found, expected, strict=True)):
        return "same"
    if "(without checksum)" in what:
        return "another, unsigned"  # a consistent manifest of another recording cannot be told from ours
    raise AssertionError(f"seed {seed}, {what}: another answer instead of an error")


def fuzz(count: int, first: int = 0) -> dict[str, int]:
    """How many of ``count`` mutations ended how."""
    outcomes: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as scratch:
        original = tiny_trace(Path(scratch) / "original")
        expected = answers(original)
        for seed in range(first, first + count):
            outcome = attempt(original, expected, seed)
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return outcomes


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    print(fuzz(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
