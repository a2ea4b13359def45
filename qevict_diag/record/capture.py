"""The capture of one batch: what each attention call leaves behind, until its layer is complete.

Queries are copied as they pass; keys and values are taken from the last call, whose cache holds all of them, so that
recording needs no second cache. A layer is handed to ``emit`` the moment it has seen all T positions.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from qevict_diag.attention import fused
from qevict_diag.attention.spec import AttentionSpec, visible
from qevict_diag.attention.sums import attention_output, column_sums, row_lse
from qevict_diag.errors import RecordError
from qevict_diag.models.intercept import AttentionCall
from qevict_diag.record.finite import Watch, larger, refuse_not_finite
from qevict_diag.record.options import RecordOptions, probe_positions
from qevict_diag.record.probe import LayerPlan, layer_number
from qevict_diag.record.rotary import RopeTables, RotaryCall
from qevict_diag.record.selection import picked

RESIDUAL_LIMIT = {torch.float32: 5e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}
_CHECKED_ROWS = 32


@dataclass(frozen=True, eq=False)
class CapturedLayer:
    """A complete layer of one sequence of the batch, on the model's device."""

    number: int
    sequence: int
    query: Tensor  # [H, G, d]
    key: Tensor  # [KV, T, d]
    value: Tensor  # [KV, T, d_v]
    prompt_mass: Tensor  # float32 [H, P]
    prompt_query: Tensor  # [H, O, d]
    lse: Tensor  # float32 [H, G]


Emit = Callable[[CapturedLayer], None]


@dataclass(eq=False)
class _Layer:
    """What is known of a layer so far: queries [B, H, G, d], prompt_mass [B, H, P], prompt_query [B, H, O, d]."""

    plan: LayerPlan
    query: Tensor
    prompt_mass: Tensor
    prompt_query: Tensor
    exact: Tensor | None = None  # exact sums [B, H, P] of the layer in which an estimate's error is measured
    seen: int = 0
    residual: float = 0.0


class Capture:
    """The observer of one batch; ``residuals``, ``ropes`` and ``tables`` are complete when the run is."""

    def __init__(
        self,
        plans: Sequence[LayerPlan],
        wanted: Sequence[LayerPlan],
        options: RecordOptions,
        emit: Emit,
        progress: Callable[[int], None],
    ) -> None:
        self._options, self._emit, self._progress = options, emit, progress
        self._known = {plan.spec.layer for plan in plans}
        self._plans = {plan.spec.layer: plan for plan in wanted}
        self._layers: dict[int, _Layer] = {}
        self._shared = {p.spec.kv_of for p in wanted} - {None}
        self._caches: dict[int, tuple[Tensor, Tensor]] = {}  # of complete layers whose keys others share
        self._ropes = RopeTables([plan.spec for plan in plans])
        self._watch = Watch(options.prefill)
        self._probes = probe_positions(options)
        self.sums_error: float | None = None  # of estimated column sums: mean over heads of Σ|estimate - exact| / P
        self._calls: list[Callable[[], RotaryCall | None]] = []

    def rotary(self, call: Callable[[], RotaryCall | None]) -> None:
        """Observe a rotary function; its tables belong to the attention call that follows."""
        self._calls.append(call)

    def attention(self, call: AttentionCall) -> None:
        """Observe an attention call."""
        number = layer_number(call)
        if number not in self._known:
            raise RecordError(f"layer {number} attends now, but did not in the dry run; this model cannot be recorded")
        if self._calls:
            self._ropes.keep(number, self._calls[-1])
            self._calls.clear()
        self._watch.see(number, call.key.shape[2] - call.query.shape[2], call.output)
        if number in self._plans:
            self._observe(self._layer(self._plans[number], call), call)
        self._progress(call.query.shape[2])

    def logits(self, logits: Tensor, stop: int) -> None:
        """Observe what a pass that ends at position ``stop`` predicts; NotFiniteError for NaN in any of its layers."""
        self._watch.settle(logits, stop)

    @property
    def residuals(self) -> dict[int, float]:
        """Largest relative difference between recomputed P·V and the kernel's output, by layer."""
        return {number: layer.residual for number, layer in self._layers.items()}

    @property
    def ropes(self) -> Mapping[int, str]:
        """The name of the rotary kind of each layer that has one, told apart over the whole run."""
        return self._ropes.names()

    def tables(self) -> dict[str, Tensor]:
        """The rotary tables ``cos.NAME``, ``sin.NAME``, float32 [T, rotary_dim], of the recorded layers."""
        return self._ropes.stacked(self._plans, self._options.length)

    def finish(self) -> None:
        """RecordError unless every wanted layer has seen every position exactly once."""
        length = self._options.length
        for number in self._plans:
            seen = self._layers[number].seen if number in self._layers else 0
            if seen != length:
                raise RecordError(
                    f"layer {number} was seen at {seen} of {length} positions; the model skipped it, nothing is written"
                )

    def _layer(self, plan: LayerPlan, call: AttentionCall) -> _Layer:
        if plan.spec.layer not in self._layers:
            batch, device, dtype = call.query.shape[0], call.query.device, call.query.dtype
            shape, kept = (batch, plan.heads), len(self._options.prompt_query_positions)
            measured = self._probes is not None and plan.spec.layer == min(self._plans)
            self._layers[plan.spec.layer] = _Layer(
                plan,
                torch.empty((*shape, self._options.decode, plan.head_dim), dtype=dtype, device=device),
                torch.zeros((*shape, self._options.prefill), device=device),
                torch.empty((*shape, kept, plan.head_dim), dtype=dtype, device=device),
                torch.zeros((*shape, self._options.prefill), device=device) if measured else None,
            )
        return self._layers[plan.spec.layer]

    def _observe(self, layer: _Layer, call: AttentionCall) -> None:
        first, stop = layer.seen, layer.seen + call.query.shape[2]
        _check_call(layer, call, stop)
        prefill, length = self._options.prefill, self._options.length
        if stop == length:
            self._check_sharing(layer.plan.spec, call)
        call = picked(call, layer.plan)
        if stop <= prefill:
            self._keep_prompt(layer, call, first, stop)
        else:
            layer.query[:, :, first - prefill : stop - prefill] = call.query
        if first in (0, prefill) or stop in (prefill, length):
            layer.residual = larger(layer.residual, _residual(layer.plan.spec, call, first))
            if math.isnan(layer.residual):
                self._watch.settle()  # where the kernel's output is finite, the recomputation alone is not
            _check_residual(layer, call)
        layer.seen = stop
        if stop == length:
            self._complete(layer, call)

    def _check_sharing(self, spec: AttentionSpec, call: AttentionCall) -> None:
        """RecordError when a layer does not attend to the keys and values that were found to be shared."""
        if spec.layer in self._shared:
            self._caches[spec.layer] = call.key, call.value
        if spec.kv_of is None:
            return
        if not all(torch.equal(a, b) for a, b in zip((call.key, call.value), self._caches[spec.kv_of], strict=True)):
            raise RecordError(
                f"layer {spec.layer} read the keys of layer {spec.kv_of} in the dry run, but does not now; this model "
                "cannot be recorded"
            )

    def _keep_prompt(self, layer: _Layer, call: AttentionCall, first: int, stop: int) -> None:
        for b, (query, key) in enumerate(zip(call.query, call.key, strict=True)):
            layer.prompt_mass[b, :, :stop] += self._prompt_sums(query, key, layer.plan.spec, first)
            if layer.exact is not None:
                layer.exact[b, :, :stop] += column_sums(query, key, layer.plan.spec, first, self._options.block_bytes)
        kept = self._options.prompt_query_positions
        start = max(first, kept.start)
        if start < stop and len(kept):
            layer.prompt_query[:, :, start - kept.start : stop - kept.start] = call.query[:, :, start - first :]

    def _prompt_sums(self, query: Tensor, key: Tensor, spec: AttentionSpec, first: int) -> Tensor:
        """Exact column sums of the queries from ``first`` on, or their estimate from the probes among them."""
        if self._options.fused:
            fused.require(query.device)
            return fused.column_sums(query, key, spec, first)
        if self._probes is None:
            return column_sums(query, key, spec, first, self._options.block_bytes)
        some = self._probes[(self._probes >= first) & (self._probes < first + query.shape[1])]
        if not len(some):
            return query.new_zeros(())
        sums = column_sums(query[:, some - first], key, spec, some, self._options.block_bytes)
        return sums * (self._options.prefill / len(self._probes))

    def _complete(self, layer: _Layer, call: AttentionCall) -> None:
        spec, prefill = layer.plan.spec, self._options.prefill
        for b, (key, value) in enumerate(zip(call.key, call.value, strict=True)):
            lse = row_lse(layer.query[b], key, spec, prefill, self._options.block_bytes)
            kept = {
                "query": layer.query[b],
                "key": key,
                "value": value,
                "prompt_mass": layer.prompt_mass[b],
                "prompt_query": layer.prompt_query[b],
                "lse": lse,
            }
            refuse_not_finite(spec.layer, **kept)
            self._emit(CapturedLayer(spec.layer, b, **kept))
        if layer.exact is not None:
            self.sums_error = float((layer.prompt_mass - layer.exact).abs().sum(-1).mean() / prefill)
        layer.query = layer.prompt_mass = layer.prompt_query = torch.empty(0)


def _check_call(layer: _Layer, call: AttentionCall, stop: int) -> None:
    number, length = layer.plan.spec.layer, call.key.shape[2]
    if length != stop:
        raise RecordError(f"layer {number} attends {length} keys at position {stop}; record under a plain DynamicCache")
    if call.options.get("dropout"):
        raise RecordError(f"layer {number} applies dropout {call.options['dropout']}; put the model into eval mode")


def _check_residual(layer: _Layer, call: AttentionCall) -> None:
    limit = RESIDUAL_LIMIT.get(call.query.dtype, 4e-2)
    if not layer.residual <= limit:
        raise RecordError(
            f"layer {layer.plan.spec.layer}: recomputed P·V differs from the kernel's output by {layer.residual:.2g} "
            f"(relative), at most {limit:g} is allowed for {call.query.dtype}; the model does not attend as its "
            "call says, so no trace was written; try another --backend"
        )


def _residual(spec: AttentionSpec, call: AttentionCall, offset: int) -> float:
    """Largest ``|P·V - output| / max|output|`` over the first and last rows of the call."""
    count = call.query.shape[2]
    rows = [(0, min(count, _CHECKED_ROWS)), (max(0, count - _CHECKED_ROWS), count)]
    return reduce(larger, (_row_residual(spec, call, offset, start, stop) for start, stop in dict.fromkeys(rows)))


def _row_residual(spec: AttentionSpec, call: AttentionCall, offset: int, start: int, stop: int) -> float:
    _check_mask(spec, call, offset + start, start, stop)
    worst = 0.0
    for b in range(call.query.shape[0]):
        end = offset + stop
        expected = attention_output(
            call.query[b, :, start:stop], call.key[b, :, :end], call.value[b, :, :end], spec, offset + start
        )
        output = call.output[b, start:stop].transpose(0, 1).float()
        worst = larger(worst, float((expected - output).abs().amax() / output.abs().amax().clamp_min(1e-20)))
    return worst


def _check_mask(spec: AttentionSpec, call: AttentionCall, first: int, start: int, stop: int) -> None:
    """RecordError when a 4-d mask shows other positions than causality and the layer's sliding window do."""
    if not isinstance(call.mask, Tensor) or call.mask.ndim != 4:
        return
    mask = call.mask[:, :, start:stop, : call.key.shape[2]]
    shown = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
    positions = torch.arange(first, first + stop - start, device=mask.device)
    if not torch.equal(shown, visible(positions, shown.shape[-1], spec.sliding_window).expand_as(shown)):
        raise RecordError(
            f"layer {spec.layer} masks more than causality and its sliding window ({spec.sliding_window}), such as "
            "padding or chunks; a trace cannot hold that, record unpadded prompts without chunked attention"
        )
