"""The texts that are recorded: built-in articles, texts, conversations and lists of token ids."""

import hashlib
import json
import unicodedata
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from importlib import resources

from qevict_diag.errors import InputError

_NAME_BYTES = 160  # of the 255 that a file system allows; a hidden folder's name is longer than the trace's


@dataclass(frozen=True)
class Message:
    """One message of a conversation; ``role`` is the chat template's: system, user, assistant, ..."""

    role: str
    text: str


@dataclass(frozen=True)
class Source:
    """A named input: a text, a conversation, or the token ids themselves.

    ``field`` is the one of a JSON row that held it. InputError for characters that no text has: NUL and halves of
    surrogate pairs.
    """

    name: str
    text: str | None = None
    tokens: tuple[int, ...] | None = None
    messages: tuple[Message, ...] | None = None
    field: str | None = None

    def __post_init__(self) -> None:
        for text in (self.text, *(message.text for message in self.messages or ())):
            if text is not None:
                _refuse_no_text(self.name, text)

    @property
    def sha256(self) -> str:
        """SHA-256 of the text in UTF-8, or of the ids or messages written as JSON."""
        if self.text is not None:
            content = self.text
        elif self.messages is not None:
            content = json.dumps([astuple(message) for message in self.messages])
        else:
            content = json.dumps(self.tokens)
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
    """A name that is safe as a folder's: letters and digits of any script, dot, dash and underscore, at most 80."""
    composed = unicodedata.normalize("NFC", name)
    kept = "".join(c if c in "._-" or unicodedata.category(c)[0] in "LMN" else " " for c in composed)
    short = "-".join(kept.split()).strip("-.")[:80].encode()[:_NAME_BYTES]
    return short.decode(errors="ignore") or "text"


def unique_names(sources: Sequence[Source]) -> list[str]:
    """The sources' names, with -2, -3, ... where one stands twice."""
    names: list[str] = []
    for source in sources:
        name, number = source.name, 2
        while name in names:
            name, number = f"{source.name}-{number}", number + 1
        names.append(name)
    return names


def _refuse_no_text(name: str, text: str) -> None:
    if "\0" in text:
        raise InputError(f"{name} holds NUL characters, which no text does; give the text alone, in UTF-8")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"{name} holds half of a surrogate pair (U+{ord(text[error.start]):04X} at character {error.start}), which "
            "no text does; write the text anew, it was cut inside a character"
        ) from error
