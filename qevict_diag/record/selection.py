"""Which layers and heads of a model are recorded: whole layers, or some query heads and the keys that they read."""

import reprlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from qevict_diag.errors import InputError
from qevict_diag.models.intercept import AttentionCall
from qevict_diag.record.options import RecordOptions
from qevict_diag.record.probe import LayerPlan


def wanted(plans: Sequence[LayerPlan], options: RecordOptions) -> tuple[LayerPlan, ...]:
    """The layers that are recorded, with the widths of what is kept of them.

    InputError for layers that do not attend, heads that do not exist, and heads that read their key-value heads
    unevenly: query head h of a trace reads key-value head h // (H / KV).
    """
    attending = [plan.spec.layer for plan in plans]
    missing = sorted(set(options.layers or ()) - set(attending))
    if missing:
        raise InputError(
            f"layers {reprlib.repr(missing)} do not attend; this model's attending layers are {attending[0]} to "
            f"{attending[-1]}"
        )
    chosen = [plan for plan in plans if options.layers is None or plan.spec.layer in options.layers]
    if options.heads is not None:
        chosen = [_with_heads(plan, options.heads) for plan in chosen]
    _check_numbers(chosen)
    return _sharing(chosen)


def picked(call: AttentionCall, plan: LayerPlan) -> AttentionCall:
    """What the recorded heads of a layer took part in."""
    heads, kv_heads = plan.spec.head_numbers, plan.spec.kv_head_numbers
    if heads is None or kv_heads is None:
        return call
    some, read = _index(heads), _index(kv_heads)
    return replace(
        call,
        query=call.query[:, some],
        key=call.key[:, read],
        value=call.value[:, read],
        output=call.output[:, :, some],
    )


def _check_numbers(plans: Sequence[LayerPlan]) -> None:
    """InputError when layers of one shape would hold key-value heads of different numbers."""
    known: dict[tuple[object, ...], LayerPlan] = {}
    for plan in plans:
        widths = (plan.heads, plan.kv_heads, plan.head_dim, plan.value_dim)
        other = known.setdefault(widths, plan)
        if other.spec.kv_head_numbers != plan.spec.kv_head_numbers:
            raise InputError(
                f"layers {other.spec.layer} and {plan.spec.layer} group their heads differently; record them apart"
            )


def _sharing(plans: Sequence[LayerPlan]) -> tuple[LayerPlan, ...]:
    """The same plans, keys and values that layers share with the first of them that is recorded."""
    first: dict[tuple[object, ...], int] = {}
    found = []
    for plan in plans:
        spec = plan.spec
        cache = (spec.layer if spec.kv_of is None else spec.kv_of, spec.kv_head_numbers)
        owner = first.setdefault(cache, spec.layer)
        found.append(replace(plan, spec=replace(spec, kv_of=None if owner == spec.layer else owner)))
    return tuple(found)


def _index(numbers: tuple[int, ...]) -> slice | list[int]:
    """A slice where the numbers are in a row, so that tensors are viewed and not copied."""
    in_a_row = numbers == tuple(range(numbers[0], numbers[-1] + 1))
    return slice(numbers[0], numbers[-1] + 1) if in_a_row else list(numbers)


def _with_heads(plan: LayerPlan, heads: tuple[int, ...]) -> LayerPlan:
    group = plan.heads // plan.kv_heads
    read = Counter(head // group for head in heads)
    if max(heads) >= plan.heads:
        raise InputError(f"head {max(heads)} is not there: layer {plan.spec.layer} has heads 0 to {plan.heads - 1}")
    if len(set(read.values())) > 1:
        told = ", ".join(f"{count} of key-value head {kv_head}" for kv_head, count in sorted(read.items()))
        raise InputError(
            f"heads {', '.join(map(str, heads))} of layer {plan.spec.layer} are {told}; choose as many of each "
            f"(a key-value head is read by {group} query heads in a row)"
        )
    sinks = plan.spec.sink_logits
    spec = replace(
        plan.spec,
        sink_logits=None if sinks is None else tuple(sinks[head] for head in heads),
        head_numbers=heads,
        kv_head_numbers=tuple(sorted(read)),
    )
    return replace(plan, spec=spec, heads=len(heads), kv_heads=len(read))
