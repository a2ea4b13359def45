"""JSON that somebody else may have written or changed, read strictly."""

import json
import math
from typing import Any


def parse_object(data: bytes) -> dict[str, Any]:
    """A JSON object with unique keys, finite numbers and text that UTF-8 can hold; ValueError says what it is not."""
    try:
        value = json.loads(
            data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
        )
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # an escaped half of a surrogate pair is no text
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not allowed")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is too large a number")
    return number
