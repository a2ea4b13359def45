"""The three tiers as a cache would hold them: full-precision windows, packed codes, and the write-once ledger.

The replay needs none of this to decide (a window's reconstruction is one fixed function of its keys), but a byte
count is only worth something when the bytes exist. `TierStore.step` moves windows as a decision says: demotion writes
packed codes on the first time only, promotion reconstructs from them, eviction frees them, and every tier is measured
in memory.

A *lane* is one (layer, head) pair that owns windows: the key-value heads, or the query heads under reading A = head.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from qevict_diag.cache.tier import Tier
from qevict_diag.cache.windows import Grid
from qevict_diag.quantizers.codes import Encoded
from qevict_diag.quantizers.quantizer import Quantizer


@dataclass(frozen=True, eq=False)
class Ledger:
    """Packed codes of every window quantized so far, written once; ``entry`` [lane, window] is its row or -1."""

    entry: Tensor
    key: Encoded
    value: Encoded

    @property
    def written(self) -> Tensor:
        """Which windows have an entry: bool [lane, window]."""
        return self.entry >= 0

    def write(self, wanted: Tensor, key: Tensor, value: Tensor, quantizer: Quantizer) -> "Ledger":
        """Quantize the ``wanted`` windows [lane, window] that have no entry yet; entries never change."""
        new = wanted & ~self.written
        entry = self.entry.clone()
        entry[new] = int(self.written.sum()) + torch.arange(int(new.sum()), device=entry.device)
        keys, values = quantizer.keys(key[new]), quantizer.values(value[new])
        return Ledger(entry, self.key.append(keys), self.value.append(values))

    def free(self, gone: Tensor) -> "Ledger":
        """Drop the entries of windows that are evicted for good."""
        kept = self.written & ~gone
        rows = self.entry[kept]
        entry = torch.full_like(self.entry, -1)
        entry[kept] = torch.arange(len(rows), device=entry.device)
        return Ledger(entry, self.key[rows], self.value[rows])

    def nbytes(self, among: Tensor) -> int:
        """Bytes of the entries of some windows, as they lie in memory."""
        rows = self.entry[among & self.written]
        return self.key[rows].nbytes + self.value[rows].nbytes


@dataclass(frozen=True, eq=False)
class TierStore:
    """Contents of the tiers between two events. Keys are pre-RoPE; ``dtype`` is that of the full-precision tier."""

    original_key: Tensor  # [lane, window, Ω, d] the recorded windows: what enters the cache when it is written
    original_value: Tensor  # [lane, window, Ω, d_v]
    quantizer: Quantizer
    dtype: torch.dtype
    tier: Tensor  # uint8 [lane, window]
    ledger: Ledger
    full_key: Tensor  # [entry, Ω, d] the F tier, in the order of (tier == FULL).nonzero()
    full_value: Tensor

    @classmethod
    def empty(
        cls, key: Tensor, value: Tensor, grid: Grid, quantizer: Quantizer, dtype: torch.dtype = torch.float16
    ) -> "TierStore":
        """Nothing routed yet. ``key`` (pre-RoPE) and ``value`` are [lane, position, channel]."""
        complete = grid.sinks + (grid.length - grid.sinks) // grid.window * grid.window
        keys, values = (torch.unflatten(x[:, grid.sinks : complete], 1, (-1, grid.window)) for x in (key, value))
        tier = torch.zeros(keys.shape[:2], dtype=torch.uint8, device=key.device)
        nothing = torch.zeros_like(tier, dtype=torch.bool)
        codes = (quantizer.keys(keys[nothing]), quantizer.values(values[nothing]))
        ledger = Ledger(torch.full_like(tier, -1, dtype=torch.int64), *codes)
        return cls(keys, values, quantizer, dtype, tier, ledger, keys[nothing].to(dtype), values[nothing].to(dtype))

    def step(self, tier: Tensor) -> "TierStore":
        """Move every window to where an event put it; ``tier`` [lane, window] of complete windows."""
        ledger = self.ledger.write(tier == Tier.QUANTIZED, self.original_key, self.original_value, self.quantizer)
        ledger = ledger.free(tier == Tier.EVICTED)
        full = tier == Tier.FULL
        return replace(
            self,
            tier=tier,
            ledger=ledger,
            full_key=self._contents(self.original_key, ledger, ledger.key, full).to(self.dtype),
            full_value=self._contents(self.original_value, ledger, ledger.value, full).to(self.dtype),
        )

    @property
    def full_bytes(self) -> int:
        """Bytes of the full-precision tier."""
        return self.full_key.nbytes + self.full_value.nbytes

    @property
    def quantized_bytes(self) -> int:
        """Bytes of the quantized tier."""
        return self.ledger.nbytes(self.tier == Tier.QUANTIZED)

    @property
    def ledger_bytes(self) -> int:
        """Bytes of codes kept for windows that are in the full tier now (reading M)."""
        return self.ledger.nbytes(self.tier == Tier.FULL)

    def _contents(self, original: Tensor, ledger: Ledger, codes: Encoded, chosen: Tensor) -> Tensor:
        """Contents of the chosen windows [entry, Ω, channel]: the original until a first demotion, then its codes."""
        contents = original[chosen].float()
        recovered = ledger.entry[chosen]
        contents[recovered >= 0] = self.quantizer.restore(codes[recovered[recovered >= 0]])
        return contents
