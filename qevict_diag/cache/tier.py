"""The names of the tiers."""

from enum import IntEnum


class Tier(IntEnum):
    """Where a window is after a routing event; windows that are not historical yet are local."""

    LOCAL = 0
    FULL = 1
    QUANTIZED = 2
    EVICTED = 3

    @property
    def word(self) -> str:
        """The name used in tidy frames."""
        return self.name.lower()
