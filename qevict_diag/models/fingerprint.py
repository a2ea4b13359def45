"""What the files of a model tell about who it is, without loading it."""

from pathlib import Path
from typing import Any

from qevict_diag.models.aliases import ALIASES
from qevict_diag.models.causes import explained, is_folder
from qevict_diag.models.fetch import cache_dir
from qevict_diag.models.identity import digest_of, files_fingerprint, sha256_file
from qevict_diag.models.pretrained import adapter_config, base_of


def fingerprint(name: str, revision: str | None = None) -> dict[str, Any]:
    """``revision``, ``weights_sha256`` and ``config_sha256`` of a model that `load` takes, as far as files are here.

    An adapter counts with its base: one adapter on two bases is two models. Of a hub id, the copy in the cache of
    transformers is read; what was never fetched has no fingerprint.
    """
    with explained(f"model {name!r}"):
        if name in ALIASES:
            folder = cache_dir() / "models" / name
            return files_fingerprint(folder) if folder.is_dir() else {}
        if name.endswith(".gguf"):
            return {"weights_sha256": sha256_file(Path(name))} if Path(name).is_file() else {}
        return _of_pretrained(name, revision)


def _of_pretrained(name: str, revision: str | None) -> dict[str, Any]:
    adapter = adapter_config(name, revision)
    if adapter is not None and not (adapter.parent / "config.json").is_file():
        own, base = files_fingerprint(adapter.parent), _of_pretrained(base_of(adapter), None)
        both = {key: digest_of([one.get(key) for one in (own, base)]) for key in ("weights_sha256", "config_sha256")}
        return both | _revision(adapter, name)
    config = Path(name) / "config.json" if is_folder(name) else _cached(name, revision)
    return {} if config is None else files_fingerprint(config.parent) | _revision(config, name)


def _revision(file: Path, name: str) -> dict[str, Any]:
    """The commit that a file of the hub's cache belongs to: the cache names its folder so."""
    return {} if is_folder(name) else {"revision": file.parent.name}


def _cached(name: str, revision: str | None) -> Path | None:
    """The config of a hub id in the local cache."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(name, "config.json", revision=revision)
    return Path(found) if isinstance(found, str) else None
