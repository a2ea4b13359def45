"""Whether everything that a model computes is finite: NaN and infinity are refused where they first appear.

What passes is looked at once a pass, so that a GPU is waited for once and not once a layer.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from qevict_diag.errors import RecordError


class NotFiniteError(RecordError):
    """NaN or infinity in a run; the message says where, `cure` what to do."""


@dataclass(frozen=True, eq=False)
class _Seen:
    layer: int
    first: int  # position of the first query
    finite: Tensor  # bool [S], by query


class Watch:
    """Looks at the outputs of one pass after another; ``prefill`` is the prompt's length."""

    def __init__(self, prefill: int) -> None:
        self._prefill = prefill
        self._seen: list[_Seen] = []

    def see(self, layer: int, first: int, output: Tensor) -> None:
        """Note an attention call's output [B, S, H, d_v], whose queries begin at position ``first``."""
        self._seen.append(_Seen(layer, first, torch.isfinite(output).flatten(2).all(-1).all(0)))

    def settle(self, logits: Tensor | None = None, stop: int = 0) -> None:
        """End a pass at position ``stop``; NotFiniteError names the first output, or else the logits, that is not."""
        seen, self._seen = self._seen, []
        parts = [one.finite.all() for one in seen] + ([] if logits is None else [torch.isfinite(logits).all()])
        if parts and not bool(torch.stack([part.to(parts[0].device) for part in parts]).all()):
            raise NotFiniteError(self._first(seen) or f"{self._place(stop - 1)}: the logits hold NaN or infinity")

    def _first(self, seen: list[_Seen]) -> str | None:
        for one in seen:
            bad = (~one.finite).nonzero()
            if len(bad):
                return f"layer {one.layer}, {self._place(one.first + int(bad[0]))}: its output holds NaN or infinity"
        return None

    def _place(self, position: int) -> str:
        step = position - self._prefill
        return f"prompt position {position}" if step < 0 else f"decode step {step}"


def larger(one: float, other: float) -> float:
    """The maximum, in which a NaN stays: Python's ``max(0.0, nan)`` is 0.0."""
    return one if one > other or math.isnan(one) else other


def refuse_not_finite(layer: int, **tensors: Tensor) -> None:
    """NotFiniteError when one of a layer's ``tensors`` holds NaN or infinity."""
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise NotFiniteError(f"layer {layer}: its {name.replace('_', ' ')} holds NaN or infinity")


def cure(model: Any) -> str:
    """What to do about a model that computes NaN: other weights where they are the cause, else another precision."""
    wide = ((name, weight) for name, weight in model.named_parameters() if weight.dtype.itemsize > 1)
    broken = next((name for name, weight in wide if not bool(torch.isfinite(weight).all())), None)
    if broken is not None:
        return f"the model's weights hold it themselves ({broken}), so get them again"
    if model.dtype == torch.float32:
        return "every weight is finite, so the model computes them itself; nothing of such a run can be measured"
    name = str(model.dtype).removeprefix("torch.")
    wider = "float32 or bfloat16" if model.dtype == torch.float16 else "float32"
    return f"{name} is likely too narrow for this model: run it in {wider} (--run-dtype)"
