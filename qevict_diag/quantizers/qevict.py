"""The quantizer of the paper's recoverable tier: asymmetric min-max per window (QEvict; after KIVI, Liu et al. 2024).

    low(Ω, b) = Ω·d·b/8 + Ω·d_v·b/8 + 2·d·2 + 2·Ω·2      bytes of a window, per key-value head

Keys before the rotary embedding, per channel over the window's tokens; values per token over the channels.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, final

from torch import Tensor

from qevict_diag.quantizers.codes import Codes
from qevict_diag.quantizers.minmax import CHANNEL_AXIS, TOKEN_AXIS, dequantize, quantize
from qevict_diag.quantizers.quantizer import Quantizer
from qevict_diag.readings import Readings

METADATA_BYTES = 2  # scales and zeros are fp16


@final
@dataclass(frozen=True)
class WindowMinMax(Quantizer):
    """Min-max codes of ``bits`` bits (None: those of the budget), levels by reading P."""

    name: ClassVar[str] = "minmax"
    summary: ClassVar[str] = "asymmetric min-max per window: keys per channel before rotation, values per token"
    source: ClassVar[str] = "QEvict"

    bits: int | None = None
    levels: str = "end_points"

    def keys(self, windows: Tensor) -> Codes:
        """One (scale, zero) per channel and window."""
        return quantize(windows, TOKEN_AXIS, self._bits, self.levels)

    def values(self, windows: Tensor) -> Codes:
        """One (scale, zero) per token."""
        return quantize(windows, CHANNEL_AXIS, self._bits, self.levels)

    def restore(self, codes: Codes) -> Tensor:
        """x̂ of every element."""
        return dequantize(codes)

    def window_bytes(self, window: int, head_dim: int, value_dim: int) -> int:
        """low(Ω, b)."""
        codes = sum(-(-window * width * self._bits // 8) for width in (head_dim, value_dim))
        return codes + 2 * METADATA_BYTES * (head_dim + window)

    def under(self, bits: int, readings: Readings) -> "WindowMinMax":
        """Bits of the budget unless given; levels by reading P."""
        return replace(self, bits=self.bits or bits, levels=readings.levels)

    @property
    def _bits(self) -> int:
        return 2 if self.bits is None else self.bits
