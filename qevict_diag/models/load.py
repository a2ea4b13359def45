"""Load a decoder model: a built-in alias, a local folder, a ``.gguf`` file or a hub id."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qevict_diag.devices import torch_device
from qevict_diag.epoch import source_date
from qevict_diag.errors import InputError
from qevict_diag.models.aliases import ALIASES
from qevict_diag.models.causes import explained, is_folder
from qevict_diag.models.fetch import ensure
from qevict_diag.models.fingerprint import fingerprint
from qevict_diag.models.gguf import load_gguf
from qevict_diag.models.identity import identify
from qevict_diag.models.pretrained import load_tokenizer, load_weights

if TYPE_CHECKING:
    import torch

DTYPES = ("float32", "float16", "bfloat16")
_SHORT = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model ready to be recorded, its tokenizer (None for bare weights) and who it is."""

    model: Any
    tokenizer: Any
    identity: dict[str, Any]  # the manifest's ``model`` entry, see `identify`


def load(
    name: str,
    *,
    dtype: str | None = None,
    device: str = "cpu",
    backend: str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    accept_terms: Callable[[str], bool] | None = None,
) -> LoadedModel:
    """Load ``name`` in eval mode on ``device``; weights that the model does not use are told by a warning.

    ``dtype`` defaults to the checkpoint's own; ``backend`` is transformers' attention implementation (its own choice by
    default); ``revision`` is a branch, tag or commit of a hub id. Code that comes with a model runs only with
    ``trust_remote_code``. InputError for a device, dtype or revision that does not exist, ModelError for a model that
    cannot be had or whose weights are not whole.
    """
    source_date()  # refused here if it is none, since transformers imports what fails over it
    where = torch_device(device)
    if not _is_utf8(name):
        raise InputError(f"the name {name!r} of the model is not UTF-8, so no trace can hold it; rename it")
    options = {"dtype": "auto" if dtype is None else torch_dtype(dtype), "attn_implementation": backend}
    if revision is not None and (name in ALIASES or name.endswith(".gguf") or is_folder(name)):
        raise InputError(f"--revision {revision}: {name} has no revisions, only a hub id has; leave it out")
    if name.endswith(".gguf"):
        model, tokenizer, notes = load_gguf(Path(name), **options)
    else:
        origin = {"revision": revision, "trust_remote_code": trust_remote_code}
        place = str(ensure(ALIASES[name], accept_terms)) if name in ALIASES else name
        model, notes = load_weights(place, options, origin)
        tokenizer = load_tokenizer(place, origin)
    for note in notes:
        warnings.warn(note, stacklevel=2)
    with explained(f"model {name!r}"):
        model = model.to(where).eval()
    return LoadedModel(model, tokenizer, identify(model, name, fingerprint(name, revision)))


def _is_utf8(name: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def torch_dtype(name: str) -> "torch.dtype":
    """The torch dtype of a name: float32, float16, bfloat16 or fp32, fp16, bf16."""
    import torch

    full = _SHORT.get(name, name)
    if full not in DTYPES:
        raise InputError(f"unknown dtype {name!r}; allowed are {', '.join((*DTYPES, *_SHORT))}")
    found: torch.dtype = getattr(torch, full)
    return found
