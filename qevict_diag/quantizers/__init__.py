"""Quantizers: from windows to packed codes and back. `QUANTIZERS` lists them."""

from qevict_diag.quantizers.qevict import WindowMinMax
from qevict_diag.quantizers.quantizer import Quantizer

QUANTIZERS: dict[str, type[Quantizer]] = {kind.name: kind for kind in (WindowMinMax,)}
