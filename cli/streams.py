"""Standard output and standard error, whatever stands behind them."""

import codecs
import io
import os
import sys

LOOKALIKES = {"–": "-", "−": "-", "·": ".", "×": "x", "→": ">", "≤": "<", "≈": "~", "…": ".", "█": "#", "\u00a0": " "}
_HANDLER = "qevict-diag-lookalike"


class Similar:
    """What stands for letters that an encoding lacks; ``used`` says that some did."""

    used = False

    def __call__(self, error: UnicodeError) -> tuple[str, int]:
        """The letters that stand for those that cannot be encoded."""
        if not isinstance(error, UnicodeEncodeError):
            raise error
        self.used = True
        missing = error.object[error.start : error.end]
        return "".join(LOOKALIKES.get(letter, "?") for letter in missing), error.end


def never_fail_to_encode() -> Similar:
    """Let letters that an encoding lacks (latin-1, cp1252, plain C) become similar ones, or question marks."""
    similar = Similar()
    codecs.register_error(_HANDLER, similar)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)
    return similar


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
