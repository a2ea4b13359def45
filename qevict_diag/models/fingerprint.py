"""What the files of a model tell about who it is, without loading it."""

from pathlib import Path
from typing import Any

from qevict_diag.models.aliases import ALIASES
from qevict_diag.models.causes import explained, is_folder
from qevict_diag.models.fetch import cache_dir
from qevict_diag.models.identity import digest_of, files_fingerprint, sha256_file
from qevict_diag.models.pretrained import adapter_config, base_of, local_copy


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
        return both | _revision(adapter.parent, name)
    folder = local_copy(name, revision)
    return {} if folder is None else files_fingerprint(folder) | _revision(folder, name)


def _revision(folder: Path, name: str) -> dict[str, Any]:
    """The commit that a folder of the hub's cache is called by."""
    return {} if is_folder(name) else {"revision": folder.name}
