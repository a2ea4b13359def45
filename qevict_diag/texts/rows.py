"""Texts and conversations in JSON, as data sets have them: an object per line, or a list of objects."""

import json
from collections.abc import Iterator
from typing import Any

from qevict_diag.errors import InputError
from qevict_diag.texts.decode import refuse_wide
from qevict_diag.texts.source import Message, Source

DEFAULT_FIELD = "text"  # beside a conversation it is usually the same, rendered: --chat takes the conversation
CONVERSATIONS = ("messages", "conversations")  # the fields that hold a conversation, unless --field names another
_ROLES = {"human": "user", "gpt": "assistant"}  # what data sets in ShareGPT's layout call the roles of chat templates


def line_sources(data: bytes, name: str, where: str, field: str, *, chat: bool = False) -> list[Source]:
    """The sources of JSON lines, called ``name`` and the line's number.

    Each line is an object with a text in ``field``, or with a conversation where ``chat`` is meant; InputError
    otherwise.
    """
    refuse_wide(data, where)
    lines = ((number, line) for number, line in enumerate(data.splitlines(), start=1) if line.strip())
    rows = ((number, f"{where}, line {number}", line) for number, line in lines)
    return _sources(((number, at, _parsed(line, at)) for number, at, line in rows), name, where, field, chat)


def list_sources(data: bytes, name: str, where: str, field: str, *, chat: bool = False) -> list[Source]:
    """The sources of a JSON file that holds a list of objects, or one; the rows are as in `line_sources`."""
    refuse_wide(data, where)
    try:
        whole = _parsed(data, where)
    except InputError:  # several values: lines, in a file that is not called so
        return line_sources(data, name, where, field, chat=chat)
    if isinstance(whole, list) and all(type(entry) is int for entry in whole):
        raise InputError(f"{where} is a list of numbers; give token ids with --tokens")
    rows = enumerate(whole if isinstance(whole, list) else [whole], start=1)
    return _sources(((number, f"{where}, row {number}", row) for number, row in rows), name, where, field, chat)


def look_up(row: dict[str, Any], field: str) -> Any:
    """``row["a.b"]``, or else ``row["a"]["b"]``, where a number counts a list's entries; None when it is not there."""
    if field in row:
        return row[field]
    found: Any = row
    for part in field.split("."):
        if isinstance(found, list) and part.isdecimal() and int(part[:9]) < len(found):
            found = found[int(part[:9])]
        else:
            found = found.get(part) if isinstance(found, dict) else None
    return found


def conversation(entries: list[Any], where: str) -> tuple[Message, ...]:
    """Messages from {role, content} or {from, value}; a content may be a list of text parts."""
    messages = tuple(_message(entry, f"{where}, message {number}") for number, entry in enumerate(entries, start=1))
    if not any(message.role == "user" for message in messages):
        raise InputError(f"{where} is a conversation without a user's message, so there is nothing to reply to")
    return messages


def _sources(rows: Iterator[tuple[int, str, Any]], name: str, where: str, field: str, chat: bool) -> list[Source]:
    found = [_source(row, f"{name}-{number}", at, field, chat) for number, at, row in rows]
    if not found:
        raise InputError(f"{where} has no lines; give one JSON object per line")
    return found


def _source(row: Any, name: str, where: str, field: str, chat: bool) -> Source:
    if not isinstance(row, dict):
        raise InputError(f"{where} has no text, it is no object; write it as {{{json.dumps(field)}: ...}}")
    held = {one: look_up(row, one) for one in (field, *CONVERSATIONS)}
    talk = next((one for one, value in held.items() if isinstance(value, list)), None)
    if isinstance(held[field], str) and not (chat and talk is not None and field == DEFAULT_FIELD):
        return Source(name, held[field], field=field)
    if talk is None:
        raise InputError(f"{where} has no text in field {field!r}, {_instead(row, held[field], field)}")
    if not chat:
        raise InputError(f"{where} has no text in field {field!r} but a conversation in {talk!r}; give --chat")
    return Source(name, messages=conversation(held[talk], where), field=talk)


def _instead(row: dict[str, Any], value: Any, field: str) -> str:
    if value is not None or field in row:
        return f"which holds {json.dumps(value)[:40]}; name a field of text with --field, or leave the row out"
    return f"it has {', '.join(sorted(map(str, row))[:8]) or 'no fields'}; name the field with --field"


def _message(entry: Any, where: str) -> Message:
    fields = entry if isinstance(entry, dict) else {}
    role, content = fields.get("role", fields.get("from")), fields.get("content", fields.get("value"))
    if isinstance(content, list) and all(_is_text_part(part) for part in content):
        content = "\n".join(part["text"] for part in content)
    if not isinstance(role, str) or not isinstance(content, str):
        raise InputError(f"{where} is no text of someone; it needs a role and a content of text")
    return Message(_ROLES.get(role, role), content)


def _is_text_part(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _parsed(data: bytes, where: str) -> Any:
    try:
        return json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not JSON ({str(error)[:60]}); give one object per line") from error
