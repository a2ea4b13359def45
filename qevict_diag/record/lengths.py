"""Lengths at which a model cannot be recorded, refused before it runs."""

from collections.abc import Sequence
from typing import Any

from qevict_diag.errors import InputError
from qevict_diag.models.frequencies import recomputes_cache, steady_length
from qevict_diag.models.stepper import is_hybrid
from qevict_diag.record.options import RecordOptions
from qevict_diag.record.probe import LayerPlan

TEACHER_CHUNK = 512


def refuse_lengths(model: Any, plans: Sequence[LayerPlan], options: RecordOptions) -> None:
    """InputError when a prompt and a continuation of these lengths would be run otherwise than `generate` does."""
    name, steady = type(model).__name__, steady_length(model)
    if is_hybrid(model):
        _refuse_hybrid(name, plans, options)
    if steady is None or options.length <= steady:
        return
    if options.prefill <= steady and recomputes_cache(model):
        raise InputError(
            f"{name} makes all keys anew when a sequence passes {steady} tokens (longrope), so those of a prompt of "
            f"{options.prefill} and of its continuation up to {options.length} are not one set; take a --prefill above "
            f"{steady}, or --prefill and --decode of together at most {steady}"
        )
    if options.chunk is not None and options.chunk < options.prefill and options.prefill > steady:
        raise InputError(
            f"{name} chooses its rotary frequencies by the length of a pass beyond {steady} tokens, so a prompt in "
            "chunks is another one; leave --chunk out"
        )


def teacher_chunk(model: Any, options: RecordOptions) -> int:
    """How many tokens of a teacher-forced continuation may go through the model together, with the same rows.

    One by one where layers carry other states than keys and values, since not every release of transformers continues
    those over several tokens, and where rotary frequencies depend on the length of a pass.
    """
    steady = steady_length(model)
    alone = is_hybrid(model) or (steady is not None and options.length > steady)
    return 1 if alone else TEACHER_CHUNK


def _refuse_hybrid(name: str, plans: Sequence[LayerPlan], options: RecordOptions) -> None:
    if options.chunk is not None:
        raise InputError(f"{name} has layers that do not attend; leave --chunk out")
    windows = {plan.spec.layer: plan.spec.sliding_window for plan in plans if plan.spec.sliding_window is not None}
    short = {layer: window for layer, window in windows.items() if window < options.length}
    if short:
        layer, window = min(short.items(), key=lambda entry: entry[1])
        raise InputError(
            f"{name} has layers that do not attend, and its own cache drops keys beyond layer {layer}'s sliding window "
            f"of {window}; --prefill and --decode of together at most {window} can be recorded"
        )
