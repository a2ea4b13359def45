"""Keys as the quantized tier gives them back."""

import torch
from torch import Tensor

from qevict_diag.cache.windows import Grid
from qevict_diag.quantizers.quantizer import Quantizer
from qevict_diag.trace.layer import LayerTrace


def restored_keys(trace: LayerTrace, grid: Grid, quantizer: Quantizer) -> Tensor:
    """Keys [KV, T, d] after the write-once round trip, as the attention would see them, float32.

    Each complete window is quantized on its own, before the rotary embedding unless the quantizer says otherwise. Sinks
    and the tail that fills no window keep their recorded keys.
    """
    recorded = trace.key.float()
    before = recorded if quantizer.rotated else trace.key_pre_rope()
    kept = grid.sinks + (grid.length - grid.sinks) // grid.window * grid.window
    windows = torch.unflatten(before[:, grid.sinks : kept], 1, (-1, grid.window))
    after = before.clone()
    after[:, grid.sinks : kept] = quantizer.restore(quantizer.keys(windows)).flatten(1, 2)
    seen = after if quantizer.rotated else trace.rotate(after)
    return torch.cat((recorded[:, : grid.sinks], seen[:, grid.sinks : kept], recorded[:, kept:]), dim=1)
