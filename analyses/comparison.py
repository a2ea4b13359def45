"""Any policies on the same traces, at the same bytes: who misses least, and what cannot be told apart."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import polars as pl

from qevict_diag.analyses.estimates import Cells, cells, described, estimates, rows_of, sample
from qevict_diag.errors import InputError, ReadingError, one_of
from qevict_diag.measure.match import Use, full_bytes, holding, mean_bytes, peak_bytes
from qevict_diag.measure.traces import Measurements, Wanted, measure_each
from qevict_diag.policies.catalogue import POLICIES
from qevict_diag.policies.policy import Policy
from qevict_diag.progress import Progress, Steps, silent
from qevict_diag.readings import Readings
from qevict_diag.replay.plan import make_plan
from qevict_diag.replay.settings import Settings
from qevict_diag.statistics.intervals import minus
from qevict_diag.sweep.engine import Engine
from qevict_diag.trace.layer import Recorded, TraceShape

MATCHES: dict[str, Use | None] = {"peak": peak_bytes, "mean": mean_bytes, "budget": None}
METRICS = ("fmm", "churn")
EVERY = tuple(name for name, one in POLICIES.items() if one.evicts and one.readable and one.moves.promotion)
ROUNDING = 1e-9
ASKED = "asked"  # the share of FullKV's bytes that was asked for, as text


@dataclass(frozen=True)
class Comparison:
    """Policies at one or more budgets, shares of FullKV's bytes at the end; ``match`` says which bytes are equal."""

    policies: tuple[Policy, ...]
    budgets: tuple[Fraction, ...]
    match: str = "peak"

    def __post_init__(self) -> None:
        one_of("match", self.match, MATCHES)
        names = [one.name for one in self.policies]
        if not names or len(set(names)) < len(names):
            raise InputError(f"policies {', '.join(names) or '(none)'}: give at least one, each once")

    def settings(self, policy: Policy, budget: Fraction, shape: TraceShape, settings: Settings) -> Settings:
        """The settings under which a policy holds its share of the bytes, or as near to it from below as it can."""
        own = replace(settings, budget=replace(settings.budget, ratio=budget))
        use = MATCHES[self.match]
        if use is None:
            return own
        everything = full_bytes(make_plan(policy, shape, replace(own, budget=replace(own.budget, ratio=Fraction(1)))))
        return holding(policy, shape, own, budget * everything, use)


def measured(
    traces: Sequence[Recorded],
    comparison: Comparison,
    settings: Settings,
    *,
    workers: int = 1,
    progress: Progress = silent,
) -> Measurements:
    """Replay every policy at every budget, on one stream of masses for each trace; rows carry the share `ASKED` for.

    Missed mass counts as a share of all attention on existing positions, the first ones included (reading H = sinks,
    or all where that is asked for), since policies protect different numbers of them. Traces are of one shape;
    ``workers`` processes share them, and a step of ``progress`` is a trace. Raises ReadingError for H = historical, and
    what `measure` raises.
    """
    shape = traces[0].shape
    common = replace(settings, readings=_counting_alike(settings.readings))
    asked = [(one, budget) for budget in comparison.budgets for one in comparison.policies]
    wanted = [Wanted(one, METRICS, comparison.settings(one, budget, shape, common)) for one, budget in asked]
    calls = [(trace, wanted, [budget for _, budget in asked]) for trace in traces]
    engine = Engine(workers=min(workers, len(traces)))
    found = engine.collect(_of_trace, calls, Steps(progress, "replaying", len(traces)))
    return Measurements(pl.concat([one.frame for one in found]), pl.concat([one.bytes for one in found]))


def _counting_alike(readings: Readings) -> Readings:
    """The readings, with first tokens in FMM's denominator."""
    if readings.fmm_denominator == "historical":
        raise ReadingError("reading fmm_denominator=historical leaves out what a policy protects; give sinks or all")
    return readings.with_(fmm_denominator="all" if readings.fmm_denominator == "all" else "sinks")


def _of_trace(trace: Recorded, wanted: Sequence[Wanted], budgets: Sequence[Fraction]) -> Measurements:
    frames, used = [], []
    for one, budget in zip(measure_each([trace], wanted), budgets, strict=True):
        frames.append(one.frame.with_columns(pl.lit(str(budget)).alias(ASKED)))
        used.append(one.bytes.with_columns(pl.lit(str(budget)).alias(ASKED)))
    return Measurements(pl.concat(frames), pl.concat(used))


def ranked(found: Measurements, match: str = "peak") -> pl.DataFrame:
    """One row for each budget and policy, the least missed mass first; last those that hold more bytes than asked for.

    Columns: asked, place (policies that the paired interval of their difference does not tell apart from the first of
    their place share it; null for those that hold more), policy, the interval's of FMM, difference to the best with its
    limits, churn, and the byte columns of `frames.BYTES`, the largest over the traces.
    """
    names = ("used_bytes", "resident_bytes", "share_after_event", "share_mean", "share_peak")
    used = found.bytes.group_by(ASKED, "policy").agg(pl.col(names).max())
    return pl.concat(
        _ranked(found.frame.filter(pl.col(ASKED) == asked), used.filter(pl.col(ASKED) == asked), match)
        for asked in _budgets(found.frame)
    )


def answers(table: pl.DataFrame) -> tuple[str, ...]:
    """What to use, in a sentence for each budget, made from the numbers of `ranked`."""
    return tuple(_answer(table.filter(pl.col(ASKED) == asked)) for asked in _budgets(table))


def _ranked(frame: pl.DataFrame, used: pl.DataFrame, match: str) -> pl.DataFrame:
    rows = rows_of(frame, "fmm")
    over = sample(rows)
    counted = cells(rows, over, (ASKED, "policy", "reading"), "mean")
    table = (
        described(counted, over).with_row_index("at").join(used, on=[ASKED, "policy"]).join(_churn(frame), on="policy")
    )
    table = table.with_columns(over=_holds_more(match))
    table = table.sort("over", "estimate", "at", nulls_last=True)
    order = table["at"].to_list()
    best = [counted.at([at, order[0]]).statistic(minus).interval() for at in order]
    return table.drop("at", "over").with_columns(
        place=pl.Series(_places(counted, order, int((~table["over"]).sum())), dtype=pl.Int64),
        difference=pl.Series([one.estimate for one in best]),
        difference_low=pl.Series([one.low for one in best]),
        difference_high=pl.Series([one.high for one in best]),
    )


def _holds_more(match: str) -> pl.Expr:
    """Whether a policy holds more than the share asked for, beyond rounding."""
    if MATCHES[match] is None:
        return pl.lit(value=False)
    asked = pl.col(ASKED).map_elements(lambda text: float(Fraction(text)), pl.Float64)
    return pl.col(f"share_{match}") > asked * (1 + ROUNDING)


def _places(counted: Cells, order: Sequence[int], fitting: int) -> list[int | None]:
    """Places of the first ``fitting`` policies in their order: a new one where the interval lies above 0."""
    places: list[int | None] = []
    leader = 0
    for rank, at in enumerate(order[:fitting]):
        apart = counted.at([at, order[leader]]).statistic(minus).interval()
        if rank and not (apart.bounded and apart.low <= 0):
            leader = rank
        places.append(leader + 1)
    return [*places, *[None] * (len(order) - fitting)]


def _churn(frame: pl.DataFrame) -> pl.DataFrame:
    rows = rows_of(frame, "churn")
    return estimates(rows, sample(rows), ("policy",), "mean").select("policy", churn="estimate")


def _budgets(frame: pl.DataFrame) -> Iterable[str]:
    found: list[str] = frame[ASKED].unique(maintain_order=True).to_list()
    return sorted(found, key=Fraction)


def _answer(rows: pl.DataFrame) -> str:
    share = f"{float(Fraction(rows[ASKED][0])):.0%} of FullKV's bytes"
    fitting, more = rows.filter(pl.col("place").is_not_null()), rows.filter(pl.col("place").is_null())
    beside = f" {', '.join(more['policy'])} hold more than that at any budget." if len(more) else ""
    if fitting.is_empty():
        return f"At {share} no policy can be compared.{beside}"
    best, worst = fitting.row(0, named=True), fitting.row(-1, named=True)
    tied = fitting.filter(place=1)["policy"].to_list()[1:]
    articles = f"{best['n']} article{'s' if best['n'] > 1 else ''}"
    told = f"At {share} {best['policy']} misses least, {best['estimate']:.1%} of the attention ({articles})"
    told += f"; {', '.join(tied)} cannot be told apart from it" if tied else ""
    told += f"; {worst['policy']} misses most, {worst['estimate']:.1%}" if len(fitting) > 1 else ""
    return f"{told}.{beside}"
