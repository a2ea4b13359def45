"""Run a model over a batch of prompts of one length: prefill, then G decode queries."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from qevict_diag.record.options import RecordOptions
from qevict_diag.record.probe import input_device

TEACHER_CHUNK = 512


def run(model: Any, prompts: Tensor, options: RecordOptions, seeds: Sequence[int]) -> Tensor:
    """Token ids int64 [B, T] of the whole run; ``prompts`` is [B, P], or [B, T] for a teacher-forced continuation.

    The cache is a plain DynamicCache, in which sliding layers keep every key. A teacher-forced continuation goes
    through the model in chunks like a prompt: the rows are the same, since a query sees nothing after itself.
    """
    from transformers import DynamicCache

    cache = DynamicCache()
    tokens = prompts.to(input_device(model))
    chunk = options.chunk or options.prefill
    logits = None
    for start in range(0, options.prefill, chunk):
        logits = _forward(model, tokens[:, start : min(start + chunk, options.prefill)], cache)
    if options.continuation == "teacher":
        for start in range(options.prefill, options.length, TEACHER_CHUNK):
            _forward(model, tokens[:, start : start + TEACHER_CHUNK], cache)
        return tokens.cpu()
    choose = _chooser(options, seeds)
    for _ in range(options.decode):
        tokens = torch.cat((tokens, choose(logits).to(tokens.device)), dim=1)
        logits = _forward(model, tokens[:, -1:], cache)
    return tokens.cpu()


def distinct_ngrams(tokens: Sequence[int], n: int = 4) -> float:
    """Share of distinct n-grams among all, in (0, 1]; NaN for fewer than ``n`` tokens. Low means a loop."""
    grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return len(set(grams)) / len(grams) if grams else float("nan")


def _forward(model: Any, tokens: Tensor, cache: Any) -> Tensor:
    """Logits [B, vocab] of the last position; the cache's argument has two names across releases of transformers."""
    known = inspect.signature(model.forward).parameters
    name = "cache" if "cache" in known else "past_key_values"
    only_last = {"logits_to_keep": 1} if "logits_to_keep" in known else {}
    return model(input_ids=tokens, use_cache=True, **{name: cache}, **only_last).logits[:, -1]


def _chooser(options: RecordOptions, seeds: Sequence[int]):
    if options.continuation == "greedy":
        return lambda logits: logits.argmax(dim=-1, keepdim=True)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def sample(logits: Tensor) -> Tensor:
        p = torch.softmax(logits.float().cpu() / options.temperature, dim=-1)
        return torch.stack([torch.multinomial(row, 1, generator=g) for row, g in zip(p, generators, strict=True)])

    return sample
