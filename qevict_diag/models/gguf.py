"""Read a model from a GGUF file, by way of transformers, and without its chatter."""

import os
from pathlib import Path
from typing import Any

from qevict_diag.errors import ModelError


def load_gguf(path: Path, **options: Any) -> tuple[Any, Any]:
    """Model and tokenizer of a GGUF file, dequantized to float32 unless ``dtype`` says otherwise.

    ModelError for a file that transformers cannot load.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if options.get("dtype", "auto") == "auto":
        options["dtype"] = torch.float32
    try:
        with quiet_transformers():
            model = AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name, **options)
            tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    except (OSError, ValueError, KeyError, ImportError, NotImplementedError) as error:
        raise ModelError(f"transformers cannot load {path}: {first_line(error)}") from error
    return model, tokenizer


def first_line(error: Exception) -> str:
    """What an error says, for a message of one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class quiet_transformers:
    """No progress bars and warnings of transformers while a model is loaded."""

    def __enter__(self) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        from transformers.utils import logging

        self._verbosity = logging.get_verbosity()
        self._bars = logging.is_progress_bar_enabled()
        logging.set_verbosity_error()
        logging.disable_progress_bar()

    def __exit__(self, *exc: object) -> None:
        from transformers.utils import logging

        logging.set_verbosity(self._verbosity)
        if self._bars:
            logging.enable_progress_bar()
