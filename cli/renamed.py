"""Options under the names they had: understood for one more release, with a word about the new name."""

from collections.abc import Iterator, Sequence

from qevict_diag.cli.show import say

RENAMED = {
    ("record", "--dtype"): "--store-dtype",
    ("record", "--load-dtype"): "--run-dtype",
    **{(command, "--dtype"): "--arithmetic" for command in ("analyze", "replay", "sweep")},
}


def renamed(words: Sequence[str]) -> list[str]:
    """The words of a command line, old option names replaced."""
    return [*words[:1], *(_renamed(words[0], words[1:]) if words else ())]


def _renamed(command: str, words: Sequence[str]) -> Iterator[str]:
    for word in words:
        option, equals, value = word.partition("=")
        new = RENAMED.get((command, option))
        if new is not None:
            say(f"note: {option} of {command} is now called {new}; the old name goes with the next release", err=True)
        yield word if new is None else f"{new}{equals}{value}"
