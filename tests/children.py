"""Forked processes that do one thing and end."""

import os


def forked(action):
    """A child process that runs ``action`` and nothing else."""
    child = os.fork()
    if child == 0:
        try:
            action()
        finally:
            os._exit(0)
    return child


def status_of(child):
    """Its exit status: 0 when it came to its end, -9 when it was killed."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
