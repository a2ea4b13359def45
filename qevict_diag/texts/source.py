"""The texts that are recorded: the built-in articles, text files and lists of token ids."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from qevict_diag.errors import InputError


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


def built_in(*names: str) -> tuple[Source, ...]:
    """The articles written for this project, in the order of their names; only those named, where any are.

    InputError for a name that is not among them.
    """
    folder = resources.files("qevict_diag") / "data" / "articles"
    files = {file.name.removesuffix(".txt"): file for file in folder.iterdir() if file.name.endswith(".txt")}
    unknown = sorted(set(names) - set(files))
    if unknown:
        raise InputError(f"no built-in article {', '.join(unknown)}; there are {', '.join(sorted(files))}")
    return tuple(Source(name, files[name].read_text(encoding="utf-8")) for name in sorted(names or files))


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
