"""Prompts in a model's chat template, of an exact length: the template is kept whole, the user's text is cut.

A rendering is the template's beginning, the user's text, and the template's end, in which the reply's header comes
last. Where it has more tokens than are asked for, the last tokens of the text are left out; a shorter one is refused,
since nothing may stand in a prompt that nobody wrote. Of a conversation the longest message of the user is cut.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from qevict_diag.errors import InputError, ShortTextError
from qevict_diag.texts.source import Message, Source
from qevict_diag.texts.tokens import encoded, refuse_unread

_MARK = "QEVICT-TEXT"  # stands for the text in a rendering of the template alone
_OTHER = "\N{PILCROW SIGN}"


@dataclass(frozen=True)
class Rendering:
    """What a chat template makes of messages: the text that may be cut, and what stands around it."""

    head: str
    text: str
    tail: str

    @property
    def whole(self) -> str:
        """All of it."""
        return self.head + self.text + self.tail


def chat_prompt(source: Source, tokenizer: Any, length: int) -> list[int]:
    """Exactly ``length`` token ids: the template, the user's text cut at its end, and the reply's header.

    ShortTextError when the text does not reach that length, InputError when the template alone exceeds it, when there
    is none, or when it does not hold the text as it is.
    """
    rendered = rendering(source, tokenizer)
    ids, own = _tokens(tokenizer, rendered, source.name)
    refuse_unread(tokenizer, ids[own.start : own.stop], rendered.text, source.name)
    excess = len(ids) - length
    if excess < 0:
        raise ShortTextError(
            f"{source.name} has {len(ids)} tokens in the chat template, --prefill is {length}; a chat prompt is not "
            f"padded: give a longer text, or --prefill {len(ids)}"
        )
    if excess and excess >= len(own):
        raise InputError(
            f"the chat template around {source.name} takes {len(ids) - len(own)} tokens alone, --prefill is {length}; "
            f"raise it to more than {len(ids) - len(own)}"
        )
    return ids[: own.stop - excess] + ids[own.stop :]


def reply_tokens(source: Source, tokenizer: Any) -> list[int]:
    """Token ids of the reply that a conversation ends with; InputError when there is none."""
    messages = source.messages or ()
    if not messages or messages[-1].role != "assistant":
        raise InputError(
            f"{source.name} has no reply to go on with after the chat template; give conversations that end with the "
            "assistant's message, or another --continuation than teacher"
        )
    return _ids(tokenizer, messages[-1].text, source.name)


def rendering(source: Source, tokenizer: Any) -> Rendering:
    """The source's messages, but for replies at their end, in the tokenizer's chat template.

    Templates take a content as a string or as a list of parts; the first that holds the text is taken.
    """
    template(tokenizer)
    messages = _asked(source)
    place = _longest(messages)
    refusals = []
    for form in (_string, _parts):
        try:
            return _rendering(messages, place, partial(_applied, tokenizer, form))
        except InputError as error:
            refusals.append(error)
    raise InputError(f"{source.name} cannot be put into the model's chat template: {refusals[0]}") from refusals[0]


def template(tokenizer: Any) -> str:
    """The source of the chat template that a tokenizer uses by default; InputError when it has none."""
    found = getattr(tokenizer, "chat_template", None)
    if isinstance(found, dict):
        found = found.get("default")
    if not isinstance(found, str):
        raise InputError("the model has no chat template; leave --chat out")
    return found


def template_sha256(tokenizer: Any) -> str:
    """SHA-256 of the chat template's source."""
    return hashlib.sha256(template(tokenizer).encode("utf-8")).hexdigest()


def reads_the_clock(tokenizer: Any) -> bool:
    """Whether the chat template writes the time or date at which it is used."""
    return "strftime_now" in template(tokenizer)


def _asked(source: Source) -> list[Message]:
    """The messages up to the last one of the user: what a reply is asked for."""
    messages = list(source.messages or (Message("user", source.text or ""),))
    while messages[-1].role == "assistant":
        messages.pop()
    return messages


def _longest(messages: Sequence[Message]) -> int:
    own = [number for number, message in enumerate(messages) if message.role == "user"]
    return max(own, key=lambda number: len(messages[number].text))


def _rendering(messages: list[Message], place: int, apply: Callable[[list[Message]], str]) -> Rendering:
    """The rendering, in which the text of message ``place`` is found by a mark put in its stead."""
    marked = [*messages[:place], Message(messages[place].role, _MARK), *messages[place + 1 :]]
    (head, mark, tail), whole = apply(marked).partition(_MARK), apply(messages)
    text = whole[len(head) : len(whole) - len(tail)]
    if not mark or head + text + tail != whole or text.strip() != messages[place].text.strip():
        raise InputError("it leaves the user's text out, or changes it")
    others = [m for m in messages if m is not messages[place] and m.role in ("system", "user")]
    lost = next((message.role for message in others if message.text.strip() not in head + tail), None)
    if lost is not None:
        raise InputError(f"it leaves a message of the {lost} out, or changes it")
    return Rendering(head, text, tail)


def _string(text: str) -> Any:
    return text


def _parts(text: str) -> Any:
    """One part of text. That of the mark has an entry more, which shows where a template prints parts as they are."""
    return [{"type": "text", "text": text} | ({_MARK: _MARK} if text == _MARK else {})]


def _applied(tokenizer: Any, form: Callable[[str], Any], messages: Sequence[Message]) -> str:
    said = [{"role": message.role, "content": form(message.text)} for message in messages]
    try:
        return str(tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True))
    except Exception as error:  # a template is a program of the model's author: it may raise anything, and some mean to
        raise InputError(f"it says {' '.join(str(error).split())[:200] or type(error).__name__}") from error


def _tokens(tokenizer: Any, rendered: Rendering, name: str) -> tuple[list[int], range]:
    """Token ids of a rendering, and which of them are the text's alone."""
    if not getattr(tokenizer, "is_fast", False):
        return _told_by_comparison(tokenizer, rendered, name)
    found = encoded(tokenizer, rendered.whole, name, add_special_tokens=False, return_offsets_mapping=True)
    first, last = len(rendered.head), len(rendered.head) + len(rendered.text)
    own = [place for place, (start, stop) in enumerate(found["offset_mapping"]) if first <= start < stop <= last]
    return list(found["input_ids"]), range(own[0], own[-1] + 1) if own else range(0)


def _told_by_comparison(tokenizer: Any, rendered: Rendering, name: str) -> tuple[list[int], range]:
    """For a tokenizer that does not say where its tokens stand: what a rendering of another text has not in common."""
    ids = _ids(tokenizer, rendered.whole, name)
    other = _ids(tokenizer, rendered.head + _OTHER + rendered.tail, name)
    head, tail = _in_common(ids, other), _in_common(ids[::-1], other[::-1])
    return ids, range(head, max(head, len(ids) - tail))


def _in_common(ids: Sequence[int], other: Sequence[int]) -> int:
    """How many ids two lists begin with alike."""
    differing = (place for place, (one, two) in enumerate(zip(ids, other, strict=False)) if one != two)
    return next(differing, min(len(ids), len(other)))


def _ids(tokenizer: Any, text: str, name: str) -> list[int]:
    return list(encoded(tokenizer, text, name, add_special_tokens=False)["input_ids"])
