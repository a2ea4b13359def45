"""AdaKV: SnapKV's scores, a layer's budget divided over its heads by them (Feng et al. 2024)."""

from dataclasses import replace

from qevict_diag.errors import one_of
from qevict_diag.policies.allotment import Adaptive, Pooled
from qevict_diag.policies.methods.snapkv import snapkv
from qevict_diag.policies.policy import Policy


def adakv(window: int = 32, kernel: int = 7, pool: str = "max", floor: float = 0.2, quirks: str = "repaired") -> Policy:
    """The layer's best tokens whichever head they belong to; each head has ``floor`` of an equal share for itself.

    Defaults are those of the original's runner (its helper has a floor of 0.5). ``quirks`` as_code rounds each head's
    share as the original does, which may keep a few tokens more or fewer than the budget; repaired takes the floors
    first and then the best of the rest, which is exact and what kvpress does. InputError for others. A key-value head
    has one set, by the mean over its query heads (the original's ``gqa_support``).
    """
    one_of("adakv quirks", quirks, ("as_code", "repaired"))
    return replace(
        snapkv(window, kernel, pool),
        name="adakv",
        summary="AdaKV: SnapKV with a layer's budget divided over its heads",
        allotment=Pooled(floor) if quirks == "repaired" else Adaptive(floor),
        source="Feng et al. 2024, Ada-KV: Optimizing KV Cache Eviction by Adaptive Budget Allocation",
    )
