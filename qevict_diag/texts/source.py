"""The texts that are recorded: the built-in articles, text files and lists of token ids."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from qevict_diag.errors import InputError

MAX_INPUT_BYTES = 256 << 20


@dataclass(frozen=True)
class Source:
    """A named input: a text, or the token ids themselves."""

    name: str
    text: str | None = None
    tokens: tuple[int, ...] | None = None

    @property
    def sha256(self) -> str:
        """SHA-256 of the text in UTF-8, or of the ids written as JSON."""
        content = self.text if self.text is not None else json.dumps(self.tokens)
        return hashlib.sha256(content.encode("utf-8")).hexdigest()


def built_in() -> tuple[Source, ...]:
    """The articles written for this project, by name."""
    folder = resources.files("qevict_diag") / "data" / "articles"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".txt")), key=lambda f: f.name)
    return tuple(Source(file.name.removesuffix(".txt"), file.read_text(encoding="utf-8")) for file in files)


def read_text(path: Path) -> Source:
    """A UTF-8 text file; InputError when it is missing, empty or of another encoding."""
    data = read_bytes(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8 (byte {error.start} is 0x{data[error.start]:02x}); "
            "save it as UTF-8, for example with `iconv -f latin1 -t utf-8`"
        ) from error
    if not text.strip():
        raise InputError(f"{path} has no text; give a file with at least a prompt's worth")
    return Source(slug(path.stem), text)


def read_tokens(path: Path) -> Source:
    """A JSON list of token ids; InputError when it is anything else."""
    try:
        ids = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path} is not JSON ({str(error)[:80]}); --tokens takes a list of ids like [1, 2, 3]"
        ) from error
    if not isinstance(ids, list) or not ids or not all(type(i) is int and 0 <= i < 1 << 31 for i in ids):
        raise InputError(f"{path} is not a non-empty JSON list of token ids like [1, 2, 3]")
    return Source(slug(path.stem), tokens=tuple(ids))


def slug(name: str) -> str:
    """A name that is safe as a folder's: letters, digits, dot, dash and underscore, at most 80 of them."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:80] or "text"


def unique_names(sources: Sequence[Source]) -> list[str]:
    """The sources' names, with -2, -3, ... where one stands twice."""
    names: list[str] = []
    for source in sources:
        name, number = source.name, 2
        while name in names:
            name, number = f"{source.name}-{number}", number + 1
        names.append(name)
    return names


def read_bytes(path: Path) -> bytes:
    """The bytes of an input file; InputError when it cannot be read or is larger than any recording needs."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_INPUT_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror}); give a file that exists") from error
    if len(data) > MAX_INPUT_BYTES:
        raise InputError(
            f"{path} has more than {MAX_INPUT_BYTES >> 20} MiB; cut it, a recording uses the beginning only"
        )
    return data
