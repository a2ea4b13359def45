"""From a share of the FullKV bytes to whole windows: the one place where budgets become integers.

Per layer and key-value head, with element size e, key width d and value width d_v (definitions.md, section 4):

    full(Ω)   = Ω·(d + d_v)·e
    low(Ω, b) = bytes of a window in the quantizer's codes (`qevict_diag.quantizers`)
    B_hist    = (floor(ρ·T) - S - R)·(d + d_v)·e
    K_f = floor((1 - q)·B_hist / full(Ω)),  K_q = floor(q·B_hist / low(Ω, b))

ρ and q are exact rationals. The paper's diagnostics use q = 1/2, its general default is 7/10.
"""

import re
import reprlib
from dataclasses import dataclass, fields
from fractions import Fraction

from qevict_diag.errors import LARGEST, BudgetError, within
from qevict_diag.quantizers.quantizer import Quantizer

BITS = (2, 4)
LONGEST = 400  # digits, and the largest power of ten: any float is within
_EXPONENT = re.compile(r"[eE]([+-]?[\d_]+)")


def exact(value: "str | int | float | Fraction", name: str = "budget") -> Fraction:
    """Read ``1/5``, ``0.2`` or ``20%`` as an exact rational; a float is read as it prints, so 0.2 is 1/5.

    BudgetError for anything else, and for numbers too long to be worth their exact arithmetic (``1e999999999``).
    """
    try:
        text = str(value).strip()
        if len(text) > LONGEST or any(abs(int(exponent)) > LONGEST for exponent in _EXPONENT.findall(text)):
            raise ValueError
        return Fraction(text[:-1]) / 100 if text.endswith("%") else Fraction(text)
    except (ValueError, ZeroDivisionError):
        given = repr(value)[:40] if isinstance(value, str) else type(value).__name__
        raise BudgetError(
            f"{name} {given}: write a fraction (1/5), a decimal (0.2) or a percentage (20%) of at most {LONGEST} digits"
        ) from None


@dataclass(frozen=True)
class Geometry:
    """What the byte counts depend on: lengths in tokens, widths in channels, element size in bytes."""

    prefill: int
    decode: int
    head_dim: int
    value_dim: int
    element_size: int = 2

    def __post_init__(self) -> None:
        for field in fields(self):
            within(field.name.replace("_", " "), getattr(self, field.name), 1)

    @property
    def length(self) -> int:
        """Final length T = P + G."""
        return self.prefill + self.decode

    @property
    def widths(self) -> int:
        """Channels of one token's key and value, d + d_v."""
        return self.head_dim + self.value_dim

    @property
    def token_bytes(self) -> int:
        """Bytes of one token's key and value at full precision, one key-value head."""
        return self.widths * self.element_size


@dataclass(frozen=True)
class Budget:
    """The settings that turn bytes into windows; ratios are exact rationals."""

    ratio: Fraction = Fraction(1, 5)
    quantized_fraction: Fraction = Fraction(1, 2)
    bits: int = 2
    sinks: int = 5
    recent: int = 32

    def __post_init__(self) -> None:
        object.__setattr__(self, "ratio", exact(self.ratio))
        object.__setattr__(self, "quantized_fraction", exact(self.quantized_fraction, "quantized fraction"))
        if not 0 < self.ratio <= 1:
            raise BudgetError(f"budget {self.ratio}: must be above 0 and at most 1")
        if not 0 <= self.quantized_fraction <= 1:
            raise BudgetError(f"quantized fraction {self.quantized_fraction}: must lie in 0..1")
        if self.bits not in BITS:
            raise BudgetError(f"bits {reprlib.repr(self.bits)}: allowed are {', '.join(map(str, BITS))}")
        if not (0 <= self.sinks <= LARGEST and 0 <= self.recent <= LARGEST):
            given = f"sinks {reprlib.repr(self.sinks)}, recent {reprlib.repr(self.recent)}"
            raise BudgetError(f"{given}: both must be >= 0 and not above {LARGEST}")


@dataclass(frozen=True)
class Capacity:
    """Whole windows for each tier, and the bytes they come from (per layer and set of windows)."""

    window: int
    full: int  # K_f
    quantized: int  # K_q
    history_bytes: int  # B_hist
    full_window_bytes: int
    quantized_window_bytes: int

    @property
    def kept(self) -> int:
        """K_f + K_q."""
        return self.full + self.quantized

    @property
    def used_bytes(self) -> int:
        """Bytes of a cache whose two tiers are both filled."""
        return self.bytes_of(self.full, self.quantized)

    def bytes_of(self, full_windows: int, quantized_windows: int) -> int:
        """Bytes of so many full-precision and quantized windows."""
        return full_windows * self.full_window_bytes + quantized_windows * self.quantized_window_bytes


def full_window_bytes(window: int, geometry: Geometry) -> int:
    """full(Ω) in bytes."""
    return window * geometry.token_bytes


def capacity(
    budget: Budget, geometry: Geometry, window: int, quantizer: Quantizer | None = None, sharing: int = 1
) -> Capacity:
    """K_f and K_q of a policy with windows of ``window`` tokens; without a ``quantizer`` q = 0.

    ``sharing`` sets share the history's bytes (the sets of the query heads that read one key-value head). At ρ = 1
    nothing has to go: B_hist then covers every historical position and the sinks and recent tokens besides. Raises
    BudgetError when the budget leaves no history or the window is larger than the history.
    """
    _check_window(window, budget, geometry)
    tokens = int(budget.ratio * geometry.length) - budget.sinks - budget.recent
    if tokens < 1:
        raise BudgetError(
            f"budget {budget.ratio} of {geometry.length} tokens leaves no history after {budget.sinks} sinks and "
            f"{budget.recent} recent tokens; raise --budget to "
            f"{Fraction(budget.sinks + budget.recent + 1, geometry.length)} at least, or lower --recent"
        )
    history = tokens * geometry.token_bytes
    whole = history if budget.ratio == 1 else history // sharing
    full = full_window_bytes(window, geometry)
    if quantizer is None:
        return Capacity(window, whole // full, 0, history, full, full)
    low, share = quantizer.window_bytes(window, geometry.head_dim, geometry.value_dim), budget.quantized_fraction
    return Capacity(window, int((1 - share) * whole / full), int(share * whole / low), history, full, low)


def _check_window(window: int, budget: Budget, geometry: Geometry) -> None:
    history = geometry.length - budget.sinks - budget.recent
    if not 1 <= window <= history:
        raise BudgetError(
            f"window {reprlib.repr(window)}: must lie in 1..{history} (length {geometry.length} less "
            f"{budget.sinks} sinks and {budget.recent} recent tokens)"
        )
