"""Run a model over a batch of prompts of one length: prefill, then G decode queries."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from qevict_diag.models.stepper import Stepper, input_device
from qevict_diag.record.lengths import teacher_chunk
from qevict_diag.record.options import RecordOptions

Observe = Callable[[Tensor, int], None]  # logits [B, vocab] of a pass, and the position at which it ends


def run(
    model: Any,
    prompts: Tensor,
    options: RecordOptions,
    seeds: Sequence[int],
    observe: Observe = lambda logits, stop: None,
) -> Tensor:
    """Token ids int64 [B, T] of the whole run; ``prompts`` is [B, P], or [B, T] for a teacher-forced continuation.

    A teacher-forced continuation goes through the model in chunks like a prompt where the rows are the same, since a
    query sees nothing after itself; see `teacher_chunk`. ``observe`` sees what each pass predicts.
    """
    step = Stepper(model)
    tokens = prompts.to(input_device(model))

    def feed(start: int, stop: int) -> Tensor:
        logits = step(tokens[:, start:stop])
        observe(logits, stop)
        return logits

    chunk = options.chunk or options.prefill
    for start in range(0, options.prefill, chunk):
        logits = feed(start, min(start + chunk, options.prefill))
    if options.continuation == "teacher":
        width = teacher_chunk(model, options)
        for start in range(options.prefill, options.length, width):
            feed(start, min(start + width, options.length))
        return tokens.cpu()
    choose = _chooser(options, seeds)
    for stop in range(options.prefill + 1, options.length + 1):
        tokens = torch.cat((tokens, choose(logits).to(tokens.device)), dim=1)
        logits = feed(stop - 1, stop)
    return tokens.cpu()


def first_end(tokens: Sequence[int], ends: Collection[int]) -> int | None:
    """The first decode step whose token ends a sequence, from 0; None when no step's does."""
    return next((step for step, token in enumerate(tokens) if token in ends), None)


def distinct_ngrams(tokens: Sequence[int], n: int = 4) -> float:
    """Share of distinct n-grams among all, in (0, 1]; NaN for fewer than ``n`` tokens. Low means a loop."""
    grams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return len(set(grams)) / len(grams) if grams else float("nan")


def _chooser(options: RecordOptions, seeds: Sequence[int]) -> Callable[[Tensor], Tensor]:
    if options.continuation == "greedy":
        return lambda logits: logits.argmax(dim=-1, keepdim=True)
    temperature = max(options.temperature, torch.finfo(torch.float32).tiny)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def sample(logits: Tensor) -> Tensor:
        scores = logits.float().cpu()
        p = torch.softmax((scores - scores.amax(-1, keepdim=True)) / temperature, dim=-1)
        return torch.stack([torch.multinomial(row, 1, generator=g) for row, g in zip(p, generators, strict=True)])

    return sample
