"""How a layer attends: scaling, softcap, sinks, sliding window, rotary embedding; and which positions a query sees."""

from dataclasses import dataclass

import torch
from torch import Tensor

from qevict_diag.attention.rope import Style


@dataclass(frozen=True)
class AttentionSpec:
    """How a layer turns queries and keys into probabilities (an entry of the manifest's ``attention`` list)."""

    layer: int
    scaling: float
    sliding_window: int | None = None
    softcap: float | None = None
    sink_logits: tuple[float, ...] | None = None
    rope: str | None = None
    rope_style: Style | None = None
    rotary_dim: int = 0
    rotary_start: int = 0
    pv_residual: float = 0.0
    head_numbers: tuple[int, ...] | None = None  # the model's numbers of the recorded heads; None: all
    kv_head_numbers: tuple[int, ...] | None = None
    kv_of: int | None = None  # the layer whose keys and values this one reads (KV sharing); None: its own


def visible(positions: Tensor, length: int, sliding_window: int | None) -> Tensor:
    """Which of ``length`` key positions a query at each of ``positions`` sees: bool [query, position].

    Causal, and in a sliding layer only the last ``sliding_window`` positions, the query's own among them.
    """
    distance = positions[:, None] - torch.arange(length, device=positions.device)
    seen = distance >= 0
    return seen if sliding_window is None else seen & (distance < sliding_window)
