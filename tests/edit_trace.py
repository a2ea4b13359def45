"""Change a trace on disk with its checksums in order again, as somebody with bad intent would."""

import json

import safetensors.torch

from qevict_diag.trace.manifest import checksum
from qevict_diag.trace.tensor_file import write_tensors


def edit(folder, change):
    """Apply ``change`` to the manifest's JSON, with its checksum in order again."""
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    change(content)
    content["checksum"] = checksum(content)
    path.write_text(json.dumps(content))


def rewrite(folder, name, change):
    """Apply ``change`` to the tensors of a file, with checksums in order again."""
    tensors = safetensors.torch.load_file(folder / name)
    tensors = {key: tensor.clone() for key, tensor in tensors.items()}
    change(tensors)
    (folder / name).unlink()
    entry = write_tensors(folder / name, tensors)
    edit(folder, lambda manifest: manifest["files"].update({name: entry.to_json()}))
