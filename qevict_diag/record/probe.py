"""A dry run of a few tokens: which layers attend, how, and whether they can be recorded at all."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from qevict_diag.attention.spec import AttentionSpec
from qevict_diag.errors import ModelError
from qevict_diag.models.intercept import AttentionCall, intercept
from qevict_diag.models.stepper import Stepper, input_device, quiet_model, vocabulary
from qevict_diag.record.rotary import RotaryCall, find_style, has_rotary, same_memory, watch_rotary

TOKENS = 8
REFUSED = ("position_bias", "attention_bias", "head_mask")


@dataclass(frozen=True)
class LayerPlan:
    """One attending layer: its specification and the widths of its tensors."""

    spec: AttentionSpec
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int


def probe(model: Any) -> tuple[LayerPlan, ...]:
    """What every attending layer of ``model`` does, by layer number, found by running a few tokens through it.

    ModelError when the model cannot be recorded: its attention never goes through transformers' attention interface
    (falcon, bloom, mpt), it is no decoder, or it adds a bias to its logits.
    """
    seen = _Seen()
    tokens = torch.arange(TOKENS, device=input_device(model))[None] % vocabulary(model)
    with quiet_model(model), watch_rotary(model, seen.rotary), intercept(model, seen.attention):
        Stepper(model)(tokens)
    if not seen.plans:
        raise ModelError(
            f"{type(model).__name__} never calls transformers' attention interface (falcon, bloom and mpt do not), "
            "so nothing can be recorded; use a model that does, such as Llama, Qwen, Gemma or Mistral"
        )
    plans = [seen.plans[layer] for layer in sorted(seen.plans)]
    if has_rotary(model) and all(plan.spec.rope is None for plan in plans):
        plans = [replace(plan, spec=replace(plan.spec, rope="unknown")) for plan in plans]
    return tuple(plans)


def layer_number(call: AttentionCall) -> int:
    """The layer's number in the model; ModelError for a module that does not know it."""
    number = getattr(call.module, "layer_idx", None)
    if not isinstance(number, int):
        raise ModelError(f"{type(call.module).__name__} does not say which layer it is, so it cannot be recorded")
    return number


def call_spec(call: AttentionCall) -> AttentionSpec:
    """What the call itself says: scaling, sliding window, softcap, sinks; without rotary embedding."""
    for name in REFUSED:
        if call.options.get(name) is not None:
            raise ModelError(f"{type(call.module).__name__} adds {name} to its logits, which a trace cannot hold")
    sinks = call.options.get("s_aux")
    scaling = call.options.get("scaling")
    return AttentionSpec(
        layer=layer_number(call),
        scaling=float(call.query.shape[-1] ** -0.5 if scaling is None else scaling),
        sliding_window=call.options.get("sliding_window"),
        softcap=call.options.get("softcap"),
        sink_logits=None if sinks is None else tuple(sinks.float().flatten().tolist()),
    )


@dataclass(eq=False)
class _Seen:
    """Collects the plans of one forward pass; rotary calls belong to the attention call that follows them."""

    plans: dict[int, LayerPlan] = field(default_factory=dict)
    calls: list[RotaryCall] = field(default_factory=list)
    tables: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    caches: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)  # layers with keys and values of their own

    def rotary(self, describe: Callable[[], RotaryCall | None]) -> None:
        call = describe()
        if call is not None:
            self.calls.append(call)

    def attention(self, call: AttentionCall) -> None:
        spec = call_spec(call)
        if spec.layer in self.plans:
            raise ModelError(f"layer {spec.layer} attends twice in one pass, which a trace cannot hold")
        if call.query.shape[1] % call.key.shape[1]:
            raise ModelError(
                f"layer {spec.layer}: {call.query.shape[1]} query heads do not group on {call.key.shape[1]}"
            )
        widths = (call.query.shape[1], call.key.shape[1], call.query.shape[-1], call.value.shape[-1])
        spec = replace(self._with_rotary(spec, call), kv_of=self._shared(spec.layer, call))
        self.plans[spec.layer] = LayerPlan(spec, *widths)
        self.calls.clear()

    def _shared(self, layer: int, call: AttentionCall) -> int | None:
        """The earlier layer whose very tensors this one attends to; they are held, so no memory is used twice."""
        own = call.key, call.value
        for other, cache in self.caches.items():
            if all(same_memory(a, b) for a, b in zip(own, cache, strict=True)):
                return other
        self.caches[layer] = own
        return None

    def _with_rotary(self, spec: AttentionSpec, call: AttentionCall) -> AttentionSpec:
        if not self.calls:
            return spec
        found = find_style(self.calls, call.query, call.key)
        style, source = found or (None, None)
        if style is None or style.style is None or source is None:
            return replace(spec, rope="unknown")  # named, without a style: downstream refuses instead of guessing
        name = f"rope{self._kind(*source.full(style.width, style.style))}"
        return replace(spec, rope=name, rope_style=style.style, rotary_dim=style.width, rotary_start=style.start)

    def _kind(self, cos: Tensor, sin: Tensor) -> int:
        for number, (known_cos, known_sin) in enumerate(self.tables):
            same = cos.shape == known_cos.shape
            if same and torch.equal(cos, known_cos.to(cos.device)) and torch.equal(sin, known_sin.to(sin.device)):
                return number
        self.tables.append((cos, sin))
        return len(self.tables) - 1
