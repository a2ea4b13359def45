"""One recorded layer: what its attention saw, and what follows from it.

Axes: H query heads, KV key-value heads (query head h reads key-value head h // (H / KV)), P prompt length, G decode
queries, T = P + G positions, d head width, d_v value width. Decode query t sits at position P + t.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from qevict_diag.attention import rope
from qevict_diag.attention.logits import logits
from qevict_diag.attention.rope import Style
from qevict_diag.attention.spec import AttentionSpec
from qevict_diag.errors import MetricError

IMPORTED = "imported"  # the ``rope`` of rows without their keys: imported, or recorded with --redact-keys


@dataclass(frozen=True)
class TraceShape:
    """Sizes of a trace; lengths in tokens, widths in channels."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    prefill: int
    decode: int
    vocab: int

    @property
    def length(self) -> int:
        """Final length T = P + G."""
        return self.prefill + self.decode


@dataclass(frozen=True, eq=False)
class LayerTrace:
    """The recorded tensors of one layer, in the model's own dtype unless said otherwise."""

    spec: AttentionSpec
    query: Tensor  # [H, G, d] decode queries as the attention saw them (post-RoPE)
    key: Tensor  # [KV, T, d] all keys (post-RoPE)
    value: Tensor  # [KV, T, d_v]
    prompt_mass: Tensor  # float32 [H, P] what all prompt queries together gave each position
    lse: Tensor  # float32 [H, G] log-sum-exp of each decode query's logits, as recorded
    prompt_query: Tensor | None = None  # [H, O, d]
    prompt_query_positions: tuple[int, ...] = ()
    cos: Tensor | None = None  # float32 [T, rotary_dim]
    sin: Tensor | None = None

    @property
    def prefill(self) -> int:
        """Prompt length P."""
        return self.prompt_mass.shape[-1]

    @property
    def decode(self) -> int:
        """Number of recorded decode queries G."""
        return self.query.shape[-2]

    @property
    def imported(self) -> bool:
        """Whether only the attention rows are known (`qevict_diag.trace.rows`); keys and values are stand-ins."""
        return self.spec.rope == IMPORTED

    @property
    def head_numbers(self) -> tuple[int, ...]:
        """Numbers of the recorded query heads, as in the model."""
        return self.spec.head_numbers or tuple(range(self.query.shape[0]))

    @property
    def kv_head_numbers(self) -> tuple[int, ...]:
        """Numbers of the recorded key-value heads, as in the model."""
        return self.spec.kv_head_numbers or tuple(range(self.key.shape[0]))

    def logits(self, queries: slice = slice(None), key: Tensor | None = None) -> Tensor:
        """Attention logits [H, g, T] of the decode queries ``queries``, -inf where a position is invisible.

        ``key`` [KV, T, d] replaces the recorded keys (the quantized tier asks for this). float32.
        """
        key = self.key if key is None else key
        return logits(self.query[:, queries], key, self.spec, self._positions()[queries])

    def attention(self, queries: slice = slice(None)) -> Tensor:
        """FullKV attention probabilities [H, g, T] = exp(logits - lse) of the decode queries, float32.

        Rows add up to 1, or to 1 minus the sink logit's share in models that have one.
        """
        return torch.exp(self.logits(queries) - self.lse[:, queries, None])

    def prompt_attention(self) -> Tensor:
        """Probabilities [H, O, T] of the stored prompt queries, float32; MetricError when none were stored."""
        if self.prompt_query is None:
            raise MetricError("the trace stores no prompt queries; record again with --prompt-queries")
        found = logits(self.prompt_query, self.key, self.spec, torch.tensor(self.prompt_query_positions))
        normalizer = torch.logsumexp(found, dim=-1)
        if self.spec.sink_logits is not None:
            normalizer = torch.logaddexp(normalizer, torch.tensor(self.spec.sink_logits)[:, None])
        return torch.exp(found - normalizer[..., None])

    def key_pre_rope(self) -> Tensor:
        """Keys [KV, T, d] before the rotary embedding (after any key norm), float32.

        Equals the recorded keys in a layer without rotary embedding. MetricError when the layer has one that the
        recorder could not identify.
        """
        key = self.key.float()
        tables = self._tables()
        return key if tables is None else rope.unrotate(key, *tables, self.spec.rotary_start)

    def rotate(self, key: Tensor) -> Tensor:
        """Put keys [KV, T, d] of `key_pre_rope` back at their absolute positions."""
        tables = self._tables()
        return key if tables is None else rope.rotate(key, *tables, self.spec.rotary_start)

    def _tables(self) -> tuple[Tensor, Tensor, Style] | None:
        if self.spec.rope is None:
            return None
        if self.cos is None or self.sin is None or self.spec.rope_style is None:
            raise MetricError(
                f"layer {self.spec.layer} has rows alone (imported, or recorded with --redact-keys), or a rotary "
                "embedding that recording did not identify: its keys before it are unknown; what needs them (the "
                "quantized tier) is refused, use a two-tier policy"
            )
        return self.cos, self.sin, self.spec.rope_style

    def _positions(self) -> Tensor:
        return torch.arange(self.prefill, self.prefill + self.decode)


class Recorded(Protocol):
    """What a replay needs of a trace: its shape and its recorded layers. `qevict_diag.trace.Trace` is one."""

    @property
    def name(self) -> str:
        """What its rows are called."""

    @property
    def model_id(self) -> str:
        """The model it was recorded from."""

    @property
    def shape(self) -> TraceShape:
        """Sizes."""

    @property
    def layers(self) -> tuple[int, ...]:
        """Recorded layer numbers."""

    def layer(self, layer: int) -> LayerTrace:
        """One recorded layer."""

    def layer_shape(self, layer: int) -> TraceShape:
        """Sizes of one layer: those of the trace, except for heads and widths that differ."""
