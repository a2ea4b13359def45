"""Standard output and standard error, whatever stands behind them."""

import codecs
import io
import os
import sys

LOOKALIKES = {"–": "-", "−": "-", "·": ".", "×": "x", "→": ">", "≤": "<", "≈": "~", "…": ".", "█": "#", "\u00a0": " "}
_HANDLER = "qevict-diag-lookalike"


def never_fail_to_encode() -> None:
    """Let letters that an encoding lacks (latin-1, cp1252, plain C) become similar ones, or question marks."""
    codecs.register_error(_HANDLER, _similar)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)


def _similar(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(LOOKALIKES.get(letter, "?") for letter in missing), error.end


def close_output() -> None:
    """Forget what standard output could not take: what comes after goes nowhere, and nothing is tried again at exit."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
