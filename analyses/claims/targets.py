"""What the paper prints as numbers, as quantities that can be measured: what a combination of readings is held against.

Left out are medians, which are whole events; counts, which grow with the layers of a model; and shares that are 0 by
definition. Claim II-c is a limit and no number: a value at or below it is met.
"""

from dataclasses import dataclass

from qevict_diag.analyses import published
from qevict_diag.analyses.claims.checks import Quantity, Setting
from qevict_diag.metrics.transitions import LAGS
from qevict_diag.replay.settings import Settings

GROUPS = {"R2": ("full", "evicted", "local"), "R3": ("full", "quantized", "evicted", "local")}
BELOW = 1.0  # R_Q of the claim II-c


@dataclass(frozen=True)
class Target:
    """A published number and the quantity that it is of; ``limit``: any value that is not above it will do."""

    quantity: Quantity
    published: float
    setting: Setting = "diagnostic"
    limit: bool = False

    def away(self, value: float) -> float:
        """How far a measured value is from it, with its sign; NaN stays NaN."""
        gap = value - self.published
        return 0.0 if self.limit and gap <= 0 else gap


def targets(settings: Settings | None = None) -> tuple[Target, ...]:
    """Every published number that a replay can be held against, with the m of Global LIR that the paper has."""
    m = (settings or Settings()).min_inactive
    churn = [(Quantity(f"churn({name})", name, "churn"), ("churn_per_event", name)) for name in ("R1", "R3", "R4")]
    shares = [
        (Quantity(f"{group} share({name})", name, "mass_share", group=group), ("mass_share", name, group))
        for name, groups in GROUPS.items()
        for group in groups
    ]
    lir = [
        (Quantity(f"LIR({group}, m={m})", "R3", "lir", "pooled", group, m), ("lir", f"{group}_R3"))
        for group in ("oracle", "policy")
    ]
    moves = [
        (
            Quantity(f"P{way}({lag})", "R3", "transitions", "pooled", way, lag),
            ("transitions", "R3", f"P{way}", str(lag)),
        )
        for way in ("01", "10")
        for lag in LAGS
    ]
    qsa = [(Quantity("QSA(R3)", "R3", "qsa"), ("qsa", "R3"))]
    early = [_target(quantity, *path) for quantity, path in (*churn, *shares, *qsa, *lir, *moves)]
    below = Target(Quantity("R_Q(R3)", "R3", "mass_ratio", "pooled"), BELOW, limit=True)
    return (*(one for one in early if one is not None), below, *_promotion(m))


def _promotion(m: int) -> tuple[Target, ...]:
    found = []
    for side, name in (("without", "R3-one-way"), ("with", "R3")):
        asked = {
            "fmm": Quantity(f"FMM({name})", name, "fmm"),
            "qsa": Quantity(f"QSA({name})", name, "qsa"),
            "mass_ratio": Quantity(f"R_Q({name})", name, "mass_ratio", "pooled"),
            "lir": Quantity(f"LIR({name}, m={m})", name, "lir", "pooled", "policy", m),
        }
        found += [_target(quantity, "promotion", side, path, setting="promotion") for path, quantity in asked.items()]
    return tuple(one for one in found if one is not None)


def _target(quantity: Quantity, *path: str, setting: Setting = "diagnostic") -> Target | None:
    value = published.value(*path)
    return None if value is None else Target(quantity, value, setting)
