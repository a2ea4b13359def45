"""Rotary frequencies that depend on how long a pass is: where that begins, and what follows from it.

Under dynamic NTK scaling (``dynamic``) the frequencies of a pass are those of its last position, once that lies beyond
the length the model was trained for; ``longrope`` has one set up to that length and another beyond it. A key is rotated
once, in the pass that makes it, so tokens that go through together are rotated otherwise than one by one.
"""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from qevict_diag.models.stepper import Stepper, input_device, quiet_model

_ORIGINAL = "original_max_position_embeddings"


def steady_length(model: Any) -> int | None:
    """The length up to which frequencies do not depend on the pass; None for a model without such scaling."""
    config = model.config.get_text_config()
    return min((_original(config, entry) for entry in _scalings(config) if _kind(entry) is not None), default=None)


def recomputes_cache(model: Any) -> bool:
    """Whether `generate` runs the whole sequence again when it outgrows `steady_length`: Phi-3, Phi-MoE, Phi-4.

    Told by the model's own preparation of its inputs, which compares their length with the original one.
    """
    config = model.config.get_text_config()
    if not any(_kind(entry) == "longrope" for entry in _scalings(config)):
        return False
    code = inspect.unwrap(type(model).prepare_inputs_for_generation).__code__
    return _ORIGINAL in (*code.co_names, *code.co_consts)


def forget_length(model: Any) -> None:
    """Take back what earlier passes have left of dynamic scaling, by a pass of one token."""
    if any(_kind(entry) == "dynamic" for entry in _scalings(model.config.get_text_config())):
        with quiet_model(model):
            Stepper(model)(torch.zeros((1, 1), dtype=torch.long, device=input_device(model)))


def _scalings(config: Any) -> Iterator[Mapping[str, Any]]:
    """The rotary parameters of a config: one set, or one for each type of layer; under either of their two names."""
    for name in ("rope_parameters", "rope_scaling"):
        found = getattr(config, name, None)
        if isinstance(found, Mapping):
            yield found
            yield from (entry for entry in found.values() if isinstance(entry, Mapping))


def _kind(entry: Mapping[str, Any]) -> str | None:
    """``dynamic`` or ``longrope`` (``su`` in older configs); None for scalings that do not look at the length."""
    kind = str(entry.get("rope_type", entry.get("type")))
    if "dynamic" in kind:
        return "dynamic"
    return "longrope" if kind in ("longrope", "su") else None


def _original(config: Any, entry: Mapping[str, Any]) -> int:
    """The length a scaling starts from; dynamic scaling takes it from the config alone."""
    whole = int(config.max_position_embeddings)
    if _kind(entry) == "dynamic":
        return whole
    return int(entry.get(_ORIGINAL) or getattr(config, _ORIGINAL, None) or whole)
