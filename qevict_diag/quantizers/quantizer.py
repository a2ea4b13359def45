"""What a quantizer is: windows of keys and values in, packed codes out, and back."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from torch import Tensor

from qevict_diag.quantizers.codes import Encoded
from qevict_diag.readings import Readings


class Quantizer(ABC):
    """How the windows of the quantized tier are stored. Frozen data; equal quantizers give equal codes.

    A window is written once, from the original values, on its own: its codes are a fixed function of its keys and
    values. Windows are [.., Ω, channel] with any leading axes.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]  # the paper
    rotated: ClassVar[bool] = False  # whether keys are quantized as the attention sees them, after the rotary embedding

    @abstractmethod
    def keys(self, windows: Tensor) -> Encoded:
        """Codes of windows of keys [.., Ω, d]."""

    @abstractmethod
    def values(self, windows: Tensor) -> Encoded:
        """Codes of windows of values [.., Ω, d_v]."""

    @abstractmethod
    def restore(self, codes: Any) -> Tensor:
        """What codes give back, float32 [.., Ω, channel]."""

    @abstractmethod
    def window_bytes(self, window: int, head_dim: int, value_dim: int) -> int:
        """Bytes of one window of Ω tokens, per key-value head: exactly those of its codes in memory."""

    def under(self, bits: int, readings: Readings) -> "Quantizer":
        """This quantizer with the bits and the reading of a replay, where it leaves them open."""
        return self
