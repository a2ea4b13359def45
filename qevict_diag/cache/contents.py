"""The tiers as a cache holds them: full-precision windows, packed codes, the write-once ledger, and nothing else.

A `TierStore` is fed as a cache is: tokens are appended as they are born, an event moves windows. A window that becomes
historical leaves the local tokens; a first demotion writes its codes; a promotion restores it from them, since they are
all that is left of it; an eviction frees it. Every part is measured as it lies in memory (definitions.md, section 4).

A *lane* is the memory of one key-value head (of one layer and text). One set of windows rules it, or several where the
query heads that read it have sets of their own: what any of them needs stays, once.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from qevict_diag.cache.held import Exact, Held
from qevict_diag.cache.tier import Tier
from qevict_diag.errors import InputError
from qevict_diag.quantizers.codes import Encoded
from qevict_diag.quantizers.quantizer import Quantizer


@dataclass(frozen=True)
class Layout:
    """How a store keeps windows of ``window`` tokens behind ``sinks`` sinks.

    Keys are given as the quantizer takes them: before the rotary embedding, unless it says otherwise. Without
    ``copies`` a promoted window is read from its codes, which are the same values in fewer bytes.
    """

    window: int
    sinks: int
    quantizer: Quantizer | None = None  # None: two tiers
    dtype: torch.dtype = torch.float16  # of what is at full precision
    copies: bool = True  # whether a promoted window has a full-precision copy beside its codes

    def encode(self, key: Exact, value: Exact) -> tuple[Encoded, Encoded]:
        """Codes of windows."""
        return self._quantizer.keys(key.data), self._quantizer.values(value.data)

    def restore(self, key: Encoded, value: Encoded) -> tuple[Exact, Exact]:
        """What codes give back, in the dtype of the store."""
        restore = self._quantizer.restore
        return Exact(restore(key).to(self.dtype)), Exact(restore(value).to(self.dtype))

    @property
    def _quantizer(self) -> Quantizer:
        if self.quantizer is None:
            raise InputError("windows were put into the quantized tier of a store without a quantizer; give it one")
        return self.quantizer


@dataclass(frozen=True)
class StoreBytes:
    """Bytes of keys and values in memory. Tables of where windows are take a few bytes for each, not counted here."""

    full: int  # the F tier, with the copies of promoted windows
    quantized: int
    ledger: int  # codes of promoted windows that no set has in Q
    outside: int  # sinks and local tokens

    @property
    def total(self) -> int:
        """All of them."""
        return self.full + self.quantized + self.ledger + self.outside


@dataclass(frozen=True, eq=False)
class TierStore:
    """What a cache holds between two events; a step gives a new store and shares with the old one what stays."""

    layout: Layout
    tier: Tensor  # uint8 [lane, set, window]
    written: Tensor  # bool [lane, set, window]: windows that a set has had in Q
    outside: tuple[Exact, Exact]  # keys and values [lane, token, channel]: sinks, then local tokens
    original: Held[Exact]  # full precision, as it came
    copies: Held[Exact]  # full precision, restored from codes
    codes: Held[Encoded]  # of Q, and behind promoted windows

    @classmethod
    def begin(cls, layout: Layout, key: Tensor, value: Tensor) -> "TierStore":
        """Nothing routed yet: the first tokens, keys and values [lane, token, channel], copied."""
        outside = Exact(_own(key, layout.dtype)), Exact(_own(value, layout.dtype))
        key_rows, value_rows = (Exact(x.data.new_zeros(0, layout.window, x.data.shape[-1])) for x in outside)
        tier = torch.zeros(len(key), 1, 0, dtype=torch.uint8, device=key.device)
        exact = Held(tier[:, 0].bool(), key_rows, value_rows)
        codes = (key_rows, value_rows) if layout.quantizer is None else layout.encode(key_rows, value_rows)
        return cls(layout, tier, tier.bool(), outside, exact, exact, Held(exact.mask, *codes))

    def append(self, key: Tensor, value: Tensor) -> "TierStore":
        """The store with the tokens [lane, token, channel] that follow those it has seen."""
        more = zip(self.outside, (key, value), strict=True)
        keys, values = (Exact(torch.cat((old.data, new.to(old.data)), 1)) for old, new in more)
        return replace(self, outside=(keys, values))

    def step(self, tier: Tensor) -> "TierStore":
        """The store after an event that put every window where ``tier`` uint8 [lane, set, window] says.

        InputError for what no cache can do: bring back what is evicted, route tokens that are not there, quantize
        without a quantizer.
        """
        old, layout = self._widened(tier), self.layout
        arriving, count = old._arriving(tier)
        written = old.written | (tier == Tier.QUANTIZED)
        exact, promoted = (((tier == Tier.FULL) & of).any(1) for of in (~written, written))
        coded = promoted | (tier == Tier.QUANTIZED).any(1)
        original = old.original.add(arriving, lambda _: old._leaving(count))
        codes = old.codes.become(coded, lambda new: layout.encode(*original.take(new)))
        copies = old.copies.become(promoted & layout.copies, lambda new: layout.restore(*codes.take(new)))
        return TierStore(layout, tier.clone(), written, old._staying(count), original.keep(exact), copies, codes)

    def seen(self, number: int = 0) -> Held[Exact]:
        """F and Q as a query of set ``number`` sees them, at full precision: what the set ever wrote, from codes."""
        tier, written = self.tier[:, number], self.written[:, number]
        kept = (tier == Tier.FULL) | (tier == Tier.QUANTIZED)
        copied = (tier == Tier.FULL) & written & self.copies.mask
        coded = kept & written & ~copied
        exact = self.original.keep(kept & ~written).add(copied, self.copies.take)
        return exact.add(coded, lambda new: self.layout.restore(*self.codes.take(new)))

    @property
    def bytes(self) -> StoreBytes:
        """What every part takes in memory."""
        quantized = int((self.codes.mask & (self.tier == Tier.QUANTIZED).any(1)).sum())
        codes = self.codes.nbytes
        read = codes * quantized // max(1, self.codes.count)
        full = self.original.nbytes + self.copies.nbytes
        return StoreBytes(full, read, codes - read, sum(part.storage_bytes for part in self.outside))

    def _widened(self, tier: Tensor) -> "TierStore":
        """The same store, its tables as wide as ``tier``."""
        sets, windows = tier.shape[1:]
        old, written = (
            pad(table.expand(-1, sets, -1), (0, windows - table.shape[-1])) for table in (self.tier, self.written)
        )
        return replace(
            self,
            tier=old,
            written=written,
            original=self.original.widened(windows),
            copies=self.copies.widened(windows),
            codes=self.codes.widened(windows),
        )

    def _arriving(self, tier: Tensor) -> tuple[Tensor, int]:
        """Windows that become historical now, bool [lane, window], and how many in each lane."""
        gone = (self.tier == Tier.EVICTED) & (tier != Tier.EVICTED)
        if bool(gone.any()):
            raise InputError(f"{int(gone.sum())} evicted windows were to come back; a cache has nothing left of them")
        routed = tier != Tier.LOCAL
        before, after = (int((table[:1, :1] != Tier.LOCAL).sum()) for table in (self.tier, tier))
        if not torch.equal(routed, (torch.arange(tier.shape[-1], device=tier.device) < after).expand_as(routed)):
            raise InputError("windows become historical in order, in every lane at once; those after them are local")
        there = (self.outside[0].data.shape[1] - self.layout.sinks) // self.layout.window
        if not 0 <= after - before <= there:
            raise InputError(f"{after} windows were routed after {before}; the local tokens make {there} whole ones")
        return routed[:, 0] & (self.tier[:, 0] == Tier.LOCAL), after - before

    def _leaving(self, count: int) -> tuple[Exact, Exact]:
        """The first ``count`` windows behind the sinks of every lane."""
        sinks, window = self.layout.sinks, self.layout.window
        key, value = (x.data[:, sinks : sinks + count * window].unflatten(1, (count, window)) for x in self.outside)
        return Exact(key.flatten(0, 1)), Exact(value.flatten(0, 1))

    def _staying(self, count: int) -> tuple[Exact, Exact]:
        """Sinks and local tokens without the first ``count`` windows."""
        sinks, start = self.layout.sinks, self.layout.sinks + count * self.layout.window
        key, value = (Exact(torch.cat((x.data[:, :sinks], x.data[:, start:]), 1)) for x in self.outside)
        return key, value


def _own(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """A copy that keeps nothing else alive."""
    return tensor.to(dtype, copy=True, memory_format=torch.contiguous_format)
