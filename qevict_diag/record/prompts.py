"""From sources to the token ids that a recording runs on, and what is worth knowing about them."""

from collections.abc import Iterator, Sequence
from typing import Any

from qevict_diag.errors import InputError, ShortTextError
from qevict_diag.record.options import RecordOptions
from qevict_diag.texts.chat import chat_prompt, reads_the_clock, reply_tokens, template_sha256
from qevict_diag.texts.source import Source
from qevict_diag.texts.tokens import text_tokens

Ids = list[int]


def prompts(
    tokenizer: Any, sources: Sequence[Source], options: RecordOptions, vocab: int, *, skip_short: bool = False
) -> list[Ids | None]:
    """The token ids of each source; None for one that is too short, where such are skipped; InputError otherwise."""
    found: list[Ids | None] = []
    for source in sources:
        try:
            found.append(tokenize(tokenizer, source, options, vocab))
        except ShortTextError:
            if not skip_short:
                raise
            found.append(None)
    return found


def refuse_none(found: Sequence[Ids | None]) -> None:
    """InputError when every text was too short."""
    if found and not any(found):
        raise InputError(f"all {len(found)} texts are too short; lower --prefill or --decode")


def tokenize(tokenizer: Any, source: Source, options: RecordOptions, vocab: int) -> Ids:
    """The token ids a recording needs: P, or P + G when the text itself is the continuation."""
    ids = _chat_ids(tokenizer, source, options) if in_chat(source, options) else _ids(tokenizer, source, options)
    wrong = next((token for token in ids if not 0 <= token < vocab), None)
    if wrong is not None:
        raise InputError(f"{source.name} holds token id {wrong}, the model's vocabulary has {vocab}; ids start at 0")
    return ids


def in_chat(source: Source, options: RecordOptions) -> bool:
    """Whether a source is put into the chat template; token ids are taken as they are."""
    return options.chat and source.tokens is None


def template_digest(tokenizer: Any, source: Source, options: RecordOptions) -> str | None:
    """SHA-256 of the chat template that a source is put into; None for one that is not."""
    return template_sha256(tokenizer) if in_chat(source, options) else None


def notes(
    tokenizer: Any, sources: Sequence[Source], found: Sequence[Ids | None], options: RecordOptions
) -> Iterator[str]:
    """What to know about these prompts, a sentence each."""
    short = [source.name for source, ids in zip(sources, found, strict=True) if ids is None]
    if short:
        yield f"skipped {len(short)} of {len(sources)} texts, too short: {_listed(short)}"
    taken = [(source, ids) for source, ids in zip(sources, found, strict=True) if ids is not None]
    names: dict[tuple[int, ...], list[str]] = {}
    for source, ids in taken:
        names.setdefault(tuple(ids), []).append(source.name)
    for same in names.values():
        if len(same) > 1:
            yield f"{_listed(same)} are the same {options.prefill} tokens: one article, whatever is measured on them"
    yield from _of_the_tokenizer(tokenizer, taken, options)


def _of_the_tokenizer(tokenizer: Any, taken: Sequence[tuple[Source, Ids]], options: RecordOptions) -> Iterator[str]:
    begin = getattr(tokenizer, "bos_token_id", None)
    twice = [source.name for source, ids in taken if begin is not None and ids[:2] == [begin, begin]]
    if twice:
        yield (
            f"{_listed(twice)} begin with two beginning-of-sequence tokens (id {begin}): one is in the text or in the "
            "chat template, the other is the tokenizer's"
        )
    if any(in_chat(source, options) for source, _ in taken) and reads_the_clock(tokenizer):
        yield "the model's chat template writes today's date into the prompt: tomorrow the same command records another"


def _ids(tokenizer: Any, source: Source, options: RecordOptions) -> Ids:
    ids = list(source.tokens) if source.tokens is not None else _text_ids(tokenizer, source)
    teacher = options.continuation == "teacher"
    needed = options.length if teacher else options.prefill
    if len(ids) < needed:
        what = "prompt and continuation need" if teacher else "--prefill is"
        raise ShortTextError(
            f"{source.name} has {len(ids)} tokens, {what} {needed}; give a longer text or lower --prefill or --decode"
        )
    return ids[:needed]


def _text_ids(tokenizer: Any, source: Source) -> Ids:
    if source.text is None:
        raise InputError(f"{source.name} is a conversation; give --chat, or name a field of text with --field")
    return text_tokens(_required(tokenizer, source), source.text, source.name)


def _chat_ids(tokenizer: Any, source: Source, options: RecordOptions) -> Ids:
    """The rendered prompt of P tokens, and the first G tokens of the conversation's own reply where that is taken."""
    prompt = chat_prompt(source, _required(tokenizer, source), options.prefill)
    if options.continuation != "teacher":
        return prompt
    reply = reply_tokens(source, tokenizer)
    if len(reply) < options.decode:
        raise ShortTextError(
            f"the reply in {source.name} has {len(reply)} tokens, --decode is {options.decode}; lower it"
        )
    return prompt + reply[: options.decode]


def _required(tokenizer: Any, source: Source) -> Any:
    if tokenizer is None:
        raise InputError(
            f"the model has no tokenizer, so {source.name} cannot be read as text; give token ids with --tokens"
        )
    return tokenizer


def _listed(names: Sequence[str], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
