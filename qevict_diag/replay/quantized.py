"""Keys as the quantized tier gives them back."""

from torch import Tensor

from qevict_diag.cache.windows import Grid
from qevict_diag.quantizers.minmax import TOKEN_AXIS, dequantize, quantize
from qevict_diag.trace.layer import LayerTrace


def _round_trip(trace: LayerTrace, grid: Grid, bits: int) -> Tensor:
    pre = trace.key_pre_rope()
    kept = grid.sinks + (grid.length - grid.sinks) // grid.window * grid.window
    windows = pre[:, grid.sinks : kept].unflatten(1, (-1, grid.window))
    restored = pre.clone()
    restored[:, grid.sinks : kept] = dequantize(quantize(windows, TOKEN_AXIS, bits)).flatten(1, 2)
    rotated = trace.rotate(restored)
    rotated[:, : grid.sinks], rotated[:, kept:] = trace.key[:, : grid.sinks].float(), trace.key[:, kept:].float()
    return rotated
