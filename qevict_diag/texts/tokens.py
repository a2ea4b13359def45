"""From text to token ids, by a tokenizer that someone else wrote."""

from collections.abc import Sequence
from typing import Any

from qevict_diag.errors import InputError


def encoded(tokenizer: Any, text: str, name: str, **options: Any) -> Any:
    """What the tokenizer makes of ``text``, without its warning about length; InputError when it fails."""
    try:
        return tokenizer(text, verbose=False, **options)
    except Exception as error:  # compiled tokenizers raise bare Exceptions and panics of their own
        raise InputError(
            f"the model's tokenizer cannot read {name} ({_words(error)}); repair it, or give token ids with --tokens"
        ) from error


def text_tokens(tokenizer: Any, text: str, name: str) -> list[int]:
    """Token ids of a text, with what the tokenizer adds to it; InputError when it knows nothing of the text."""
    ids = list(encoded(tokenizer, text, name)["input_ids"])
    refuse_unread(tokenizer, ids, text, name)
    return ids


def refuse_unread(tokenizer: Any, ids: Sequence[int], text: str, name: str) -> None:
    """InputError when a text that is not empty became no tokens, or only special ones: there is no vocabulary."""
    if text.strip() and set(ids) <= set(getattr(tokenizer, "all_special_ids", ())):
        told = f"{len(ids)} special tokens and nothing else" if len(ids) else "no tokens at all"
        raise InputError(
            f"the model's tokenizer makes {told} of {name} ({len(text)} characters), so it has no vocabulary; "
            "get the tokenizer's own files, or give token ids with --tokens"
        )


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
