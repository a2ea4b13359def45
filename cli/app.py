"""The command line: `qevict-diag COMMAND`. Each command parses, makes one library call and prints."""

import sys

import typer

from qevict_diag.cli import COMMANDS
from qevict_diag.cli.signals import end_cleanly
from qevict_diag.errors import QEvictError

app = typer.Typer(
    name="qevict-diag",
    help="What does a KV-cache policy throw away, and would it have been needed?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

for _name, _command in COMMANDS.items():
    app.command(_name)(_command)


def main() -> None:
    """Run the command line; a library error is one line on stderr and exit 1. Ctrl-C exits with 130."""
    end_cleanly()
    try:
        app()
    except QEvictError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)
