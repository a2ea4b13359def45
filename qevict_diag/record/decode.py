"""Run a model over a batch of prompts of one length: prefill, then G decode queries."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from qevict_diag.errors import InputError
from qevict_diag.models.stepper import Stepper, input_device, is_hybrid
from qevict_diag.record.options import RecordOptions

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
    step = Stepper(model)
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


def _chooser(options: RecordOptions, seeds: Sequence[int]):
    if options.continuation == "greedy":
        return lambda logits: logits.argmax(dim=-1, keepdim=True)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def sample(logits: Tensor) -> Tensor:
        p = torch.softmax(logits.float().cpu() / options.temperature, dim=-1)
        return torch.stack([torch.multinomial(row, 1, generator=g) for row, g in zip(p, generators, strict=True)])

    return sample
