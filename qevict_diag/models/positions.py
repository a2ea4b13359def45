"""How long a text a model can read at all: models with tables of positions end where their table does."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from qevict_diag.models.intercept import patched
from qevict_diag.models.stepper import Stepper, input_device, quiet_model, vocabulary

_TOKENS = 4
_LIMITS = ("max_position_embeddings", "n_positions")


def last_position(model: Any) -> int | None:
    """How many positions the model has; None when it computes them, as rotary embedding does, and nothing ends.

    A few equal tokens are run: an embedding that is asked for consecutive rows is one of positions (GPT-2's, or OPT's,
    which begins at its third row). Tables that are no embedding (GPT-J's sines, a mask) are known by their length.
    """
    seen: list[int] = []

    def watch(embedding: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def watched(index: Tensor, weight: Tensor, *args: Any, **options: Any) -> Tensor:
            if _is_consecutive(index):
                seen.append(weight.shape[0] - int(index.min()))
            return embedding(index, weight, *args, **options)

        return watched

    pad = getattr(model.config.get_text_config(), "pad_token_id", None)
    token = next(token for token in range(1, vocabulary(model)) if token != pad)
    with quiet_model(model), patched(torch.nn.functional, "embedding", watch):
        Stepper(model)(torch.full((1, _TOKENS), token, device=input_device(model)))
    return min([*seen, *_table_lengths(model)], default=None)


def _is_consecutive(index: Tensor) -> bool:
    return index.shape[-1] == _TOKENS and bool((index.diff(dim=-1) == 1).all())


def _table_lengths(model: Any) -> list[int]:
    """The config's number of positions if some buffer has a side of that length."""
    config = model.config.get_text_config()
    sides = {side for buffer in model.buffers() if buffer.ndim > 1 for side in buffer.shape}
    return [getattr(config, name) for name in _LIMITS if getattr(config, name, None) in sides]
