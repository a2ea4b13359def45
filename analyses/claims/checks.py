"""The twelve claims of the paper as checks: a statistic of measured quantities, a threshold and the claimed side.

Where the paper has a word instead of a number ("substantially", "near 1") the threshold is ours; a check carries the
word, and every result says whose threshold it is. The first three observations are checked at 512+256, promotion
(Appendix K) at 256+1024.
"""

from dataclasses import dataclass
from typing import Literal

from qevict_diag.analyses.estimates import How
from qevict_diag.metrics.transitions import LAGS
from qevict_diag.replay.settings import Settings
from qevict_diag.statistics.intervals import Combine, Floats, itself, minus, ratios

Side = Literal["above", "below", "equal"]
Setting = Literal["diagnostic", "promotion"]
SUBSTANTIALLY = 1.5  # ours: half as much missed mass again
ORDER_OF_MAGNITUDE = 10.0
NEAR_ONE = 0.95  # ours
NO_DIFFERENCE = 1e-5  # ours, of missed mass: a thousandth of a percentage point


@dataclass(frozen=True)
class Quantity:
    """One pooled number: a metric of a policy, how it is averaged, and which rows."""

    label: str
    policy: str
    metric: str
    how: How = "mean"
    group: str | None = None
    lag: int | None = None
    after_exit: bool = False  # of Global LIR: only episodes that began by leaving, whatever the reading


@dataclass(frozen=True)
class Check:
    """One comparison: ``combine`` turns the quantities' values [..., quantity] into the statistic [...]."""

    claim: str
    statistic: str
    quantities: tuple[Quantity, ...]
    combine: Combine
    threshold: float
    side: Side
    setting: Setting = "diagnostic"
    word: str = ""  # the paper's word for what the threshold, then ours, puts in a number
    margin: float = 0.0  # ours: an interval that lies this close to the threshold shows no difference
    counts: bool = True  # whether the claim's verdict rests on it; otherwise it stands beside


def _over(values: Floats) -> Floats:
    return ratios(values[..., 0], values[..., 1])


def _fmm(policy: str) -> Quantity:
    return Quantity(f"FMM({policy})", policy, "fmm")


def _churn(policy: str) -> Quantity:
    return Quantity(f"churn({policy})", policy, "churn")


def _lir(group: str, lag: int, *, after_exit: bool = False) -> Quantity:
    label = f"{group} LIR(m={lag}{' after exit' if after_exit else ''})"
    return Quantity(label, "R3", "lir", "pooled", group, lag, after_exit)


def _moves(group: str, lag: int) -> Quantity:
    return Quantity(f"P{group}({lag})", "R3", "transitions", "pooled", group, lag)


def _observation_1() -> list[Check]:
    fmm = [
        Check("I-a", f"FMM(R1) - FMM({policy})", (_fmm("R1"), _fmm(policy)), minus, 0.0, "above")
        for policy in ("R2", "R3", "R4")
    ]
    sides: tuple[tuple[str, Side], ...] = (("R3", "above"), ("R4", "below"))
    churn = [
        Check("I-b", f"churn(R1) / churn({policy})", (_churn("R1"), _churn(policy)), _over, ORDER_OF_MAGNITUDE, side)
        for policy, side in sides
    ]
    both, name = (_fmm("R3-full-only"), _fmm("R3")), "FMM(R3-full-only) / FMM(R3)"
    return [*fmm, *churn, Check("I-c", name, both, _over, SUBSTANTIALLY, "above", word="substantially")]


def _observation_2() -> list[Check]:
    shares = tuple(
        Quantity(f"evicted share({policy})", policy, "mass_share", group="evicted") for policy in ("R2", "R3")
    )
    qsa, ratio = Quantity("QSA(R3)", "R3", "qsa"), Quantity("R_Q(R3)", "R3", "mass_ratio", "pooled")
    return [
        Check("II-a", "evicted share(R2) - evicted share(R3)", shares, minus, 0.0, "above"),
        Check("II-b", "QSA(R3)", (qsa,), itself, NEAR_ONE, "above", word="near 1"),
        Check("II-c", "R_Q(R3), ratio of sums", (ratio,), itself, 1.0, "below"),
    ]


def _observation_3(min_inactive: int) -> list[Check]:
    def revival(claim: str, lag: int, *, after_exit: bool = False) -> Check:
        pair = tuple(_lir(group, lag, after_exit=after_exit) for group in ("policy", "oracle"))
        name = f"LIR(policy) - LIR(oracle), R3, m={lag}{', after exit' if after_exit else ''}"
        return Check(claim, name, pair, minus, 0.0, "above", counts=not after_exit)

    def demotion(lag: int) -> Check:
        pair = (_moves("10", lag), _moves("01", lag))
        return Check("III-b", f"P10 - P01, R3, lag {lag}", pair, minus, 0.0, "above")

    return [
        revival("III-a", min_inactive),
        revival("III-a", min_inactive, after_exit=True),
        *(demotion(lag) for lag in LAGS),
        *(revival("III-c", lag) for lag in LAGS),
    ]


def _promotion(min_inactive: int) -> list[Check]:
    def pair(metric: str, how: How, name: str) -> tuple[Quantity, ...]:
        return tuple(Quantity(f"{name}({policy})", policy, metric, how) for policy in ("R3", "R3-one-way"))

    def revived(policy: str) -> tuple[Quantity]:
        return (Quantity(f"LIR({policy})", policy, "lir", "pooled", "policy", min_inactive),)

    def moved(policy: str) -> tuple[Quantity]:
        return (Quantity(f"Q→F per event({policy})", policy, "promotions"),)

    fmm = tuple(reversed(pair("fmm", "mean", "FMM")))
    found: list[tuple[str, str, tuple[Quantity, ...], Combine, Side]] = [
        ("K-a", "FMM(R3-one-way) - FMM(R3)", fmm, minus, "above"),
        ("K-b", "QSA(R3) - QSA(R3-one-way)", pair("qsa", "mean", "QSA"), minus, "above"),
        ("K-b", "R_Q(R3) - R_Q(R3-one-way)", pair("mass_ratio", "pooled", "R_Q"), minus, "above"),
        ("K-c", "Q→F per event, R3", moved("R3"), itself, "above"),
        ("K-c", "LIR(policy), R3", revived("R3"), itself, "above"),
        ("K-c", "Q→F per event, R3-one-way", moved("R3-one-way"), itself, "equal"),
        ("K-c", "LIR(policy), R3-one-way", revived("R3-one-way"), itself, "equal"),
    ]
    margin = {"K-a": NO_DIFFERENCE}
    return [
        Check(claim, name, what, how, 0.0, side, "promotion", margin=margin.get(claim, 0.0))
        for claim, name, what, how, side in found
    ]


def checks(settings: Settings | None = None) -> list[Check]:
    """Return all checks of the twelve claims, in the paper's order; those of Global LIR are at the settings' m."""
    m = (settings or Settings()).min_inactive
    return [*_observation_1(), *_observation_2(), *_observation_3(m), *_promotion(m)]
