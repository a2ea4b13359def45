"""PyramidKV: SnapKV's scores, larger budgets for lower layers (Cai et al. 2024)."""

from dataclasses import replace

from qevict_diag.errors import one_of
from qevict_diag.policies.allotment import Pyramid
from qevict_diag.policies.methods.snapkv import snapkv
from qevict_diag.policies.policy import Policy


def pyramidkv(window: int = 8, kernel: int = 7, pool: str = "max", beta: int = 20, quirks: str = "repaired") -> Policy:
    """SnapKV in each layer, with budgets that fall from layer to layer (`allotment.Pyramid`).

    Defaults are those of the original's LongBench runner. ``quirks`` as_code rounds the step between layers as the code
    does, which overspends a little; repaired never keeps more than the layers' budgets together. InputError for others.
    """
    one_of("pyramidkv quirks", quirks, ("as_code", "repaired"))
    return replace(
        snapkv(window, kernel, pool),
        name="pyramidkv",
        summary="PyramidKV: SnapKV with larger budgets for lower layers",
        allotment=Pyramid(beta, exact=quirks == "repaired"),
        source="Cai et al. 2024, PyramidKV: Dynamic KV Cache Compression based on Pyramidal Information Funneling",
    )
