"""Running a model: with its cache, a few tokens at a time, as the recording and its dry run both do."""

import inspect
import reprlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from qevict_diag.errors import ModelError
from qevict_diag.models.causes import explained

# Layers of transformers' caches that hold keys and values alone; a dummy stands for a layer that shares another's.
_KEYS_ALONE = ("DynamicLayer", "DynamicSlidingWindowLayer", "DummyLayer")


class Stepper:
    """Feeds tokens [B, S] to a model, with its cache, and returns the last position's logits [B, vocab].

    The cache is a plain DynamicCache, in which sliding layers keep every key; a model with layers that do not attend
    (LFM2, Qwen3-Next) makes its own. The cache's argument has two names across releases of transformers. The last
    position is asked for by its index: told how many, Gemma 4 leaves the prompt out of layers that share their keys.
    ModelError for a model that is no decoder, or cannot be run so.
    """

    def __init__(self, model: Any) -> None:
        from transformers import DynamicCache

        if getattr(model.config, "is_encoder_decoder", False):
            raise ModelError(f"{type(model).__name__} is an encoder-decoder; only decoder models can be recorded")
        known = inspect.signature(model.forward).parameters
        self._model = model
        self._name = "cache" if "cache" in known else "past_key_values"
        self._only_last = {"logits_to_keep": torch.tensor([-1])} if "logits_to_keep" in known else {}
        with explained(type(model).__name__, verb="run"):
            self._cache = None if is_hybrid(model) else DynamicCache()

    def __call__(self, tokens: Tensor) -> Tensor:
        """Logits [B, vocab] after the next tokens [B, S]."""
        with explained(type(self._model).__name__, verb="run"):
            output = self._model(input_ids=tokens, use_cache=True, **{self._name: self._cache}, **self._only_last)
        self._cache = output.get(self._name)
        if self._cache is None:
            raise ModelError(
                f"{type(self._model).__name__} returns no cache of keys and values, so it cannot be run step by step; "
                "record a decoder model that does, or with another release of transformers"
            )
        logits: Tensor = output.logits
        return logits[:, -1]


def is_hybrid(model: Any) -> bool:
    """Whether the cache has to hold other states than keys and values: some layers do something else than attend."""
    from transformers import DynamicCache

    config = model.config.get_text_config()
    types = getattr(config, "layer_types", None) or ()
    if any(not kind.endswith("attention") or kind.startswith("linear") for kind in types):
        return True
    if any(name.startswith("mamba") for name in config.to_dict()):  # releases whose caches don't tell
        return True
    layers = DynamicCache(config=model.config).layers
    return any(type(layer).__name__ not in _KEYS_ALONE for layer in layers)


@contextmanager
def quiet_model(model: Any) -> Iterator[None]:
    """Inference mode, eval mode and no compilation, and back again."""
    training = model.training
    model.eval()
    try:
        with torch.inference_mode(), torch.compiler.set_stance("force_eager"):
            yield
    finally:
        model.train(training)


def vocabulary(model: Any) -> int:
    """Number of token ids."""
    return int(model.config.get_text_config().vocab_size)


def input_device(model: Any) -> torch.device:
    """Where token ids have to be."""
    weight: Tensor = model.get_input_embeddings().weight
    return weight.device


def end_tokens(model: Any) -> frozenset[int]:
    """Ids that end a sequence when `generate` chooses them: the generation config's, or else the config's own.

    ModelError when what stands there is no id and no list of ids.
    """
    configs = (getattr(model, "generation_config", None), model.config.get_text_config())
    found: Any = next((ids for one in configs if (ids := getattr(one, "eos_token_id", None)) is not None), [])
    ids = found if isinstance(found, list | tuple) else [found]
    if not all(isinstance(one, int) for one in ids):
        raise ModelError(
            f"{type(model).__name__} has the eos_token_id {reprlib.repr(found)}; an id or a list of ids is needed, "
            "repair its generation_config.json or config.json"
        )
    return frozenset(ids)
