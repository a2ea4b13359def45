"""How a command ends when it is told to."""

import signal
from types import FrameType


def end_cleanly() -> None:
    """Let SIGTERM and SIGHUP end this process as an error would: what is half-written is removed on the way out.

    A signal that is ignored stays ignored (`nohup`).
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)


def _end(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)  # once is enough
    raise SystemExit(128 + number)
