"""Load a decoder model: a built-in alias, a local folder, a ``.gguf`` file or a hub id."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qevict_diag.devices import torch_device
from qevict_diag.errors import InputError, ModelError
from qevict_diag.models.aliases import ALIASES
from qevict_diag.models.fetch import SOURCE, ensure, sha256_file
from qevict_diag.models.gguf import first_line, load_gguf, quiet_transformers

if TYPE_CHECKING:
    import torch

DTYPES = ("float32", "float16", "bfloat16")
TOKENIZER_FILES = ("*token*", "vocab*", "merges.txt", "*.model")
_SHORT = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model ready to be recorded, its tokenizer (None for bare weights) and who it is."""

    model: Any
    tokenizer: Any
    identity: dict[str, Any]  # the manifest's ``model`` entry: id, architecture, revision, weights_sha256, dtype


def load(
    name: str,
    *,
    dtype: str | None = None,
    device: str = "cpu",
    backend: str | None = None,
    accept_terms: Callable[[str], bool] | None = None,
) -> LoadedModel:
    """Load ``name`` in eval mode on ``device``.

    ``dtype`` defaults to the checkpoint's own; ``backend`` is transformers' attention implementation (its own choice by
    default). InputError for a device or dtype that does not exist, ModelError for a model that cannot be had.
    """
    where = torch_device(device)
    options = {"dtype": "auto" if dtype is None else torch_dtype(dtype), "attn_implementation": backend}
    if name.endswith(".gguf"):
        if not Path(name).is_file():
            raise ModelError(f"no file {name}; --model takes {_choices()}")
        model, tokenizer = load_gguf(Path(name), **options)
        weights: str | None = sha256_file(Path(name))
    else:
        folder = ensure(ALIASES[name], accept_terms) if name in ALIASES else name
        model, tokenizer = _load_folder(str(folder), options)
        weights = _weights_sha256(Path(folder))
    model = model.to(where).eval()
    return LoadedModel(model, tokenizer, identify(model, name, weights))


def identify(model: Any, name: str, weights_sha256: str | None = None) -> dict[str, Any]:
    """The manifest's ``model`` entry."""
    return {
        "id": name,
        "architecture": type(model).__name__,
        "revision": getattr(model.config, "_commit_hash", None),
        "weights_sha256": weights_sha256,
        "dtype": str(model.dtype).removeprefix("torch."),
    }


def torch_dtype(name: str) -> "torch.dtype":
    """The torch dtype of a name: float32, float16, bfloat16 or fp32, fp16, bf16."""
    import torch

    full = _SHORT.get(name, name)
    if full not in DTYPES:
        raise InputError(f"unknown dtype {name!r}; allowed are {', '.join((*DTYPES, *_SHORT))}")
    return getattr(torch, full)


def _load_folder(name: str, options: dict[str, Any]) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        with quiet_transformers():
            model = AutoModelForCausalLM.from_pretrained(name, **options)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ModelError(f"cannot load model {name!r} ({first_line(error)}); --model takes {_choices()}") from error
    local = Path(name).is_dir()
    if local and not any(found for pattern in TOKENIZER_FILES for found in Path(name).glob(pattern)):
        return model, None  # bare weights: --tokens still works
    try:
        return model, AutoTokenizer.from_pretrained(name)
    except Exception as error:  # the tokenizers library raises bare Exceptions for a file it cannot read
        raise ModelError(
            f"cannot load the tokenizer of {name!r} ({first_line(error)}); repair it, or remove its files and give "
            "token ids with --tokens"
        ) from error


def _weights_sha256(folder: Path) -> str | None:
    """SHA-256 of an alias's GGUF file, of a folder's only weight file, or of several digests; None on the hub."""
    import hashlib

    if (folder / SOURCE).is_file():
        return json.loads((folder / SOURCE).read_text(encoding="utf-8"))["weights_sha256"]
    files = sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")]) if folder.is_dir() else []
    digests = [sha256_file(file) for file in files]
    if len(digests) <= 1:
        return digests[0] if digests else None
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def _choices() -> str:
    return f"an alias ({', '.join(ALIASES)}), a local folder, a .gguf file or a Hugging Face hub id"
