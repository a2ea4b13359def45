"""Quantizers: from windows to packed codes and back.

`QUANTIZERS` lists them; another package adds one by announcing a class of `Quantizer`, whose parameters have defaults,
in the entry-point group `QUANTIZER_POINTS`.
"""

from qevict_diag import plugins
from qevict_diag.quantizers.qevict import WindowMinMax
from qevict_diag.quantizers.quantizer import Quantizer

QUANTIZER_POINTS = "qevict_diag.quantizers"
QUANTIZERS: dict[str, type[Quantizer]] = {kind.name: kind for kind in (WindowMinMax,)}


def quantizer(name: str) -> type[Quantizer]:
    """The quantizer called ``name``, built in or announced; InputError when there is none."""
    return plugins.find(
        "quantizer", name, QUANTIZERS, QUANTIZER_POINTS, lambda found: plugins.is_kind(found, Quantizer)
    )


def quantizer_names() -> tuple[str, ...]:
    """Every quantizer there is."""
    return plugins.names(QUANTIZERS, QUANTIZER_POINTS)
