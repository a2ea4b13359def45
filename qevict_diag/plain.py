"""Text that others wrote, made harmless: names in a trace, a model's id, a file's name, another program's error.

Whatever is shown, on a terminal, in a message, a table or a picture, passes `plain`; what has a grammar of its own
(CSV, Markdown) is escaped where it is written.
"""

import re
import unicodedata

UNSEEN = "\N{REPLACEMENT CHARACTER}"
_BREAKS = re.compile("[\t\n\v\f\r\x1c-\x1f\x85\u2028\u2029]+")


def plain(text: str, most: int | None = None) -> str:
    """One line that acts on nothing: line breaks and tabs are one space, other control characters are `UNSEEN`.

    So are characters that turn the direction of writing, surrogates (bytes that are no UTF-8) and unassigned ones:
    all of Unicode's categories C. A line of more than ``most`` characters is cut, and ends in an ellipsis.
    """
    line = _BREAKS.sub(" ", text)
    if most is not None and len(line) > most:
        line = line[: most - 1] + "…"
    return line if line.isprintable() else "".join(map(_seen, line))


def _seen(character: str) -> str:
    return UNSEEN if unicodedata.category(character)[0] == "C" else character
