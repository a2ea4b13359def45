"""The command line: `qevict-diag COMMAND`. Each command parses, makes one library call and prints."""

import sys
import warnings
from contextlib import suppress
from importlib.metadata import version
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperGroup

from qevict_diag.cli import COMMANDS
from qevict_diag.cli.renamed import renamed
from qevict_diag.cli.show import say
from qevict_diag.cli.signals import end_cleanly
from qevict_diag.cli.streams import close_output, never_fail_to_encode
from qevict_diag.epoch import source_date
from qevict_diag.errors import InputError, QEvictError


class _Commands(TyperGroup):
    """The commands, which still know options by the names of the last release."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, renamed(args))


app = typer.Typer(
    name="qevict-diag",
    help="What does a KV-cache policy throw away, and would it have been needed?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    cls=_Commands,
)

for _name, _command in COMMANDS.items():
    app.command(_name)(_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"qevict-diag {version('qevict-diag')}")
        raise typer.Exit


@app.callback()
def _general(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; an error is one line on stderr and exit 1. Ctrl-C exits with 130."""
    similar = never_fail_to_encode()
    end_cleanly()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _note
            source_date()
            app()
    except QEvictError as error:
        _fail(str(error))
    except OSError as error:
        _fail(_told(error))
    finally:
        if similar.used:
            _tell("note: some letters are not in this terminal's encoding; similar ones, or ?, stand for them")


def _note(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning in one line; what is meant for programmers says where it comes from."""
    where = "" if category is UserWarning else f"{filename}:{lineno}: {category.__name__}: "
    _tell(f"note: {where}{message}")


def _fail(message: str) -> None:
    close_output()
    _tell(f"error: {message}")
    sys.exit(1)


def _tell(line: str) -> None:
    with suppress(InputError, OSError):  # nobody can be told
        say(line, err=True)


def _told(error: OSError) -> str:
    """What the operating system refused, and of which file, in one line."""
    if error.strerror is None:
        return str(error) or type(error).__name__
    if error.filename is None:
        return f"{error.strerror}; make room, or send the output to another place"
    return f"cannot use {error.filename} ({error.strerror}); give a path that can be read, and written where it must be"
