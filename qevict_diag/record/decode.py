"""Run a model over a batch of prompts of one length: prefill, then G decode queries."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from qevict_diag.errors import InputError
from qevict_diag.record.options import RecordOptions
from qevict_diag.record.probe import input_device

TEACHER_CHUNK = 512


def run(model: Any, prompts: Tensor, options: RecordOptions, seeds: Sequence[int]) -> Tensor:
    """Token ids int64 [B, T] of the whole run; ``prompts`` is [B, P], or [B, T] for a teacher-forced continuation.

    A teacher-forced continuation goes through the model in chunks like a prompt: the rows are the same, since a query
    sees nothing after itself. Where some layers carry other states than keys and values it goes token by token, since
    not every release of transformers continues those states over several tokens; InputError for ``chunk`` there.
    """
    hybrid = is_hybrid(model)
    if hybrid and options.chunk is not None:
        raise InputError(f"{type(model).__name__} has layers that do not attend; leave --chunk out")
    step = _Stepper(model, hybrid)
    tokens = prompts.to(input_device(model))
    chunk = options.chunk or options.prefill
    for start in range(0, options.prefill, chunk):
        logits = step(tokens[:, start : min(start + chunk, options.prefill)])
    if options.continuation == "teacher":
        width = 1 if hybrid else TEACHER_CHUNK
        for start in range(options.prefill, options.length, width):
            step(tokens[:, start : start + width])
        return tokens.cpu()
    choose = _chooser(options, seeds)
    for _ in range(options.decode):
        tokens = torch.cat((tokens, choose(logits).to(tokens.device)), dim=1)
        logits = step(tokens[:, -1:])
    return tokens.cpu()


def distinct_ngrams(tokens: Sequence[int], n: int = 4) -> float:
    """Share of distinct n-grams among all, in (0, 1]; NaN for fewer than ``n`` tokens. Low means a loop."""
    grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return len(set(grams)) / len(grams) if grams else float("nan")


class _Stepper:
    """Feeds tokens [B, S] to a model, with its cache, and returns the last position's logits [B, vocab].

    The cache is a plain DynamicCache, in which sliding layers keep every key; a model with layers that do not attend
    (LFM2, Qwen3-Next) makes its own. The cache's argument has two names across releases of transformers. The last
    position is asked for by its index: told how many, Gemma 4 leaves the prompt out of layers that share their keys.
    """

    def __init__(self, model: Any, hybrid: bool) -> None:
        from transformers import DynamicCache

        known = inspect.signature(model.forward).parameters
        self._model = model
        self._name = "cache" if "cache" in known else "past_key_values"
        self._only_last = {"logits_to_keep": torch.tensor([-1])} if "logits_to_keep" in known else {}
        self._cache = None if hybrid else DynamicCache()

    def __call__(self, tokens: Tensor) -> Tensor:
        output = self._model(input_ids=tokens, use_cache=True, **{self._name: self._cache}, **self._only_last)
        self._cache = output[self._name]
        return output.logits[:, -1]


def is_hybrid(model: Any) -> bool:
    """Whether some layers do something else than attend, so that the cache has to hold other states too."""
    types = getattr(model.config.get_text_config(), "layer_types", None) or ()
    return any(not kind.endswith("attention") or kind.startswith("linear") for kind in types)


def _chooser(options: RecordOptions, seeds: Sequence[int]):
    if options.continuation == "greedy":
        return lambda logits: logits.argmax(dim=-1, keepdim=True)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def sample(logits: Tensor) -> Tensor:
        p = torch.softmax(logits.float().cpu() / options.temperature, dim=-1)
        return torch.stack([torch.multinomial(row, 1, generator=g) for row, g in zip(p, generators, strict=True)])

    return sample
