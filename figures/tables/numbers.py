"""How numbers are written in tables."""

import math
from collections.abc import Callable

EMPTY = "–"


def text(value: object) -> str:
    """Write any value as it is."""
    return EMPTY if value is None or value == "" else str(value)


def number(decimals: int, scale: float = 1.0) -> Callable[[float | None], str]:
    """Make a writer of numbers with so many decimals, multiplied by ``scale`` first."""

    def write(value: float | None) -> str:
        return EMPTY if value is None or math.isnan(value) else _grouped(f"{value * scale:,.{decimals}f}")

    return write


def significant(digits: int) -> Callable[[float | None], str]:
    """Make a writer of numbers with so many significant digits."""

    def write(value: float | None) -> str:
        return EMPTY if value is None or math.isnan(value) else f"{value:.{digits}g}".replace("-", "−")

    return write


def p_value(decimals: int = 4) -> Callable[[float | None], str]:
    """Make a writer of p-values: one too small for the decimals is said to be below the last of them, never 0."""
    plain, least = number(decimals), 10.0**-decimals

    def write(value: float | None) -> str:
        return f"< {least:.{decimals}f}" if value is not None and value < least else plain(value)

    return write


def _grouped(digits: str) -> str:
    """Use a space that does not break between thousands, a true minus sign, and none before zero."""
    digits = digits if any(digit in digits for digit in "123456789") else digits.removeprefix("-")
    return digits.replace(",", "\u00a0").replace("-", "−")


def percent(decimals: int = 1) -> Callable[[float | None], str]:
    """Make a writer of shares as percentages, without the sign."""
    return number(decimals, 100.0)


def limits(one: Callable[[float | None], str]) -> Callable[[float | None, float | None], str]:
    """Make a writer of confidence limits; empty where there are none."""

    def write(low: float | None, high: float | None) -> str:
        ends = (one(low), one(high))
        return EMPTY if EMPTY in ends else f"{ends[0]} to {ends[1]}"

    return write
