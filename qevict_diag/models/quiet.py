"""Keep transformers and the hub's client quiet while a model is loaded, and keep what they would have said."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_transformers() -> Iterator[list[str]]:
    """No progress bars, and no warnings on the terminal: they are collected in the list that is given."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from transformers.utils import logging as chatter

    said = _Collector()
    verbosity, bars = chatter.get_verbosity(), chatter.is_progress_bar_enabled()
    chatter.set_verbosity_warning()
    chatter.disable_progress_bar()
    chatter.disable_default_handler()
    logger, hub = logging.getLogger("transformers"), logging.getLogger("huggingface_hub")
    logger.addHandler(said)
    told = hub.handlers[:]
    hub.handlers[:] = [said]  # it tells of every attempt to reach the hub
    try:
        yield said.messages
    finally:
        hub.handlers[:] = told
        logger.removeHandler(said)  # theirs refuses every handler in 4.57
        chatter.enable_default_handler()
        chatter.set_verbosity(verbosity)
        if bars:
            chatter.enable_progress_bar()


class _Collector(logging.Handler):
    """Keeps the messages that are logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
