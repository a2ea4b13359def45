"""Who a model is: what its weights and its config say, whatever path it was loaded by."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SOURCE = "qevict-source.json"  # beside converted weights: where they came from
TELLING = ("weights_sha256", "state_sha256")  # what tells a model whatever it is called
_NOT_WEIGHTS = ("training_args.bin", "optimizer.bin", "scheduler.bin")
_PASSING = ("transformers_version", "torch_dtype", "dtype", "base_model_name_or_path")  # of a config, told elsewhere


def identify(model: Any, name: str, files: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The manifest's ``model`` entry; ``files`` is what `fingerprint` found."""
    return {
        "id": name,
        "architecture": type(model).__name__,
        "revision": getattr(model.config, "_commit_hash", None),
        "weights_sha256": None,
        "config_sha256": None,
        **(files or {}),
        "dtype": str(model.dtype).removeprefix("torch."),
    }


def same_model(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two ``model`` entries are of one model run in one precision.

    Weights tell, where both are known in one way, by their files or as they stood in memory: then two paths of the same
    weights are one model, and one path of other weights is another. Where they are not, the id tells. What only one
    entry knows is not compared.
    """
    return not difference(one, other)


def difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """The first thing in which two ``model`` entries differ, in words; empty for one model."""
    told = next((key for key in TELLING if None not in (one.get(key), other.get(key))), None)
    named = {"id": "names", "revision": "revisions"} if told is None else {told: "weights"}
    for key, word in (named | {"config_sha256": "configs", "dtype": "dtypes"}).items():
        values = one.get(key), other.get(key)
        if None not in values and values[0] != values[1]:
            shown = (str(value)[:8] if key.endswith("sha256") else value for value in values)
            return f"{word} {' and '.join(map(str, shown))}"
    return ""


def files_fingerprint(folder: Path) -> dict[str, Any]:
    """``weights_sha256`` and ``config_sha256`` of a model folder; those of a converted GGUF file are the file's."""
    if (folder / SOURCE).is_file():
        return {"weights_sha256": json.loads((folder / SOURCE).read_text(encoding="utf-8"))["weights_sha256"]}
    return {"weights_sha256": digest_of([sha256_file(file) for file in weight_files(folder)]), **_config(folder)}


def weight_files(folder: Path) -> list[Path]:
    """The files that transformers takes weights from: safetensors, else PyTorch's own."""
    found = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))
    return [file for file in found if file.name not in _NOT_WEIGHTS]


def digest_of(digests: list[str | None]) -> str | None:
    """One digest of several, itself of a single one; None when there is none, or one is unknown."""
    if not digests or None in digests:
        return None
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("\n".join(map(str, digests)).encode()).hexdigest()


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _config(folder: Path) -> dict[str, Any]:
    """``config_sha256``: of what the config says about the computation, and of the folder's own code if it has some."""
    path = next((folder / name for name in ("config.json", "adapter_config.json") if (folder / name).is_file()), None)
    if path is None:
        return {}
    says = lasting(json.loads(path.read_text(encoding="utf-8")))
    digests: list[str | None] = [hashlib.sha256(json.dumps(says, sort_keys=True).encode()).hexdigest()]
    code = sorted(folder.glob("*.py")) if isinstance(says, dict) and "auto_map" in says else []
    return {"config_sha256": digest_of(digests + [sha256_file(file) for file in code])}


def lasting(value: Any) -> Any:
    """A config without the entries that say nothing about what is computed."""
    if isinstance(value, dict):
        return {k: lasting(v) for k, v in value.items() if not k.startswith("_") and k not in _PASSING}
    return value
