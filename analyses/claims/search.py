"""Which combinations of readings come nearest to all published numbers at once (definitions.md, section 9).

    distance(c) = sqrt( mean over the numbers v of ((measured(v, c) - published(v)) / unit(v))² )

unit(v) is half the width of our 95% t interval over articles for v where nothing is varied, the same for every
combination; the paper states no interval of its own. Readings that change decisions make the grid of replays. Each of
the others changes a few metrics, so those are measured under its values on every replay, and combined without another.

The nearest combination is not thereby the one that the paper used: many are tried on few numbers, of another model.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from qevict_diag.analyses.claims.checks import Quantity, Setting
from qevict_diag.analyses.claims.grid import grid_of, needed, touching
from qevict_diag.analyses.claims.targets import Target
from qevict_diag.analyses.estimates import cells, rows_of, sample
from qevict_diag.errors import InputError
from qevict_diag.measure.traces import Wanted, measure_each
from qevict_diag.policies.catalogue import policy
from qevict_diag.progress import Progress, Steps, silent
from qevict_diag.readings import Readings
from qevict_diag.replay.settings import Settings
from qevict_diag.statistics.intervals import Floats, Statistic, over_articles
from qevict_diag.sweep.engine import Engine
from qevict_diag.trace.layer import Recorded

NEAREST = 10
TOGETHER = 6  # combinations of decisions that are replayed on one stream of masses
ROUNDING = 1e-9  # of a number: articles that differ by less agree
STAGE = "replaying combinations of readings"
NOT_IDENTIFIED = (
    "Nearest is not identified: {tried} combinations were held against {values} published numbers, which are of "
    "another model and other texts. A combination that comes near is not thereby the one that the paper used."
)
COLUMNS: dict[str, Any] = {
    "rank": pl.Int64,
    "readings": pl.String,
    "distance": pl.Float64,
    "number": pl.String,
    "published": pl.Float64,
    "measured": pl.Float64,
    "unit": pl.Float64,
    "away": pl.Float64,
}
Key = tuple[Quantity, Readings]  # a quantity, and as much of a combination as it depends on
Sums = dict[Key, tuple[float, float]]  # of one article: numerator and denominator


def search(
    traces: Mapping[Setting, Sequence[Recorded]],
    settings: Settings,
    words: Sequence[str],
    targets: Sequence[Target],
    *,
    nearest: int = NEAREST,
    workers: int = 1,
    progress: Progress = silent,
) -> tuple[pl.DataFrame, int]:
    """The ``nearest`` combinations and the one where nothing is varied, and how many were tried.

    A row for each published number of each (`COLUMNS`): ``away`` is its distance in units, with its sign. ``traces`` as
    `sensitivity.by_setting` sorts them, ``words`` as `grid_of` reads them. Numbers that all articles agree on have no
    unit and are left out. A step of ``progress`` is a few replays of a trace. Raises InputError for one article,
    ReadingError for readings that no number depends on, and what `measure` raises.
    """
    _refuse_one_article(traces)
    asked = [target for target in targets if traces.get(target.setting)]
    grid = grid_of(words, touching([target.quantity for target in asked])).combinations()
    found = _measured(traces, settings, grid, asked, workers, progress)
    statistics = [[found[t.quantity, needed(one, t.quantity)] for t in asked] for one in grid]
    return _nearest(grid, asked, statistics, nearest), len(grid)


def ranked(found: pl.DataFrame) -> pl.DataFrame:
    """A row for each combination of `search`: rank, readings, distance, and the number that it is farthest from."""
    far = pl.col("away").abs().arg_max()
    farthest = {"farthest": pl.col("number").get(far), "by": pl.col("away").get(far)}
    return found.group_by("rank", "readings", "distance", maintain_order=True).agg(**farthest)


def _refuse_one_article(traces: Mapping[Setting, Sequence[Recorded]]) -> None:
    for setting, some in traces.items():
        if len(some) == 1:
            raise InputError(
                f"one article at the {setting} lengths ({some[0].name}) gives no interval, and so no unit to measure "
                "distances in; give two or more"
            )


def _nearest(
    grid: Sequence[Readings], asked: Sequence[Target], found: Sequence[Sequence[Statistic]], nearest: int
) -> pl.DataFrame:
    """Rank the combinations; the first of them is where nothing is varied."""
    usual = [one.interval() for one in found[0]]
    units = np.array([interval.high - interval.estimate for interval in usual])
    known = units > ROUNDING * np.abs([interval.estimate for interval in usual])
    if not known.any():
        raise InputError("no published number has an interval here to measure distances in; give more articles")
    away = np.array([[t.away(one.estimate) for t, one in zip(asked, row, strict=True)] for row in found])
    away = away[:, known] / units[known]
    distances: Floats = np.sqrt((away**2).mean(axis=1))
    order = np.argsort(distances, kind="stable")  # undefined ones last
    shown = dict.fromkeys([*order[:nearest].tolist(), 0])
    rank = {place: number for number, place in enumerate(order.tolist(), start=1)}
    columns = [(column, at, asked[at]) for column, at in enumerate(np.flatnonzero(known).tolist())]
    rows = [
        (
            *(rank[place], grid[place].label(), distances[place], target.quantity.label, target.published),
            *(found[place][at].estimate, units[at], away[place, column]),
        )
        for place in shown
        for column, at, target in columns
    ]
    return pl.DataFrame(rows, schema=COLUMNS, orient="row")


def _measured(
    traces: Mapping[Setting, Sequence[Recorded]],
    settings: Settings,
    grid: Sequence[Readings],
    asked: Sequence[Target],
    workers: int,
    progress: Progress,
) -> dict[Key, Statistic]:
    """Measure each quantity under every combination as far as it depends on it, over the articles of its setting."""
    calls = [
        (trace, settings, keys)
        for setting, some in traces.items()
        for keys in _together([t.quantity for t in asked if t.setting == setting], grid)
        for trace in some
    ]
    parts: dict[Key, list[tuple[float, float]]] = {}
    for sums in Engine(workers=min(workers, len(calls))).collect(_sums, calls, Steps(progress, STAGE, len(calls))):
        for key, pair in sums.items():
            parts.setdefault(key, []).append(pair)
    arrays = {key: np.array(pairs).T for key, pairs in parts.items()}  # [numerator or denominator, article]
    return {key: over_articles(array[:1], array[1:]) for key, array in arrays.items()}


def _together(quantities: Sequence[Quantity], grid: Iterable[Readings]) -> Iterator[tuple[Key, ...]]:
    """What is to be measured, each once, in groups of a few combinations of decisions."""
    keys = dict.fromkeys((one, needed(combination, one)) for combination in grid for one in quantities)
    by_decisions: dict[Readings, list[Key]] = {}
    for key in keys:
        by_decisions.setdefault(key[1].deciding(quantizes=True), []).append(key)
    groups = list(by_decisions.values())
    for start in range(0, len(groups), TOGETHER):
        yield tuple(key for group in groups[start : start + TOGETHER] for key in group)


def _sums(trace: Recorded, settings: Settings, keys: Sequence[Key]) -> Sums:
    """Numerator and denominator of each quantity on one trace, all replayed on one stream of masses."""
    metrics: dict[tuple[str, Readings], dict[str, None]] = {}
    for quantity, readings in keys:
        metrics.setdefault((quantity.policy, _replayed(readings)), {})[quantity.metric] = None
    wanted = [
        Wanted(policy(name), tuple(some), replace(settings, readings=readings))
        for (name, readings), some in metrics.items()
    ]
    frames = dict(zip(metrics, (one.frame for one in measure_each([trace], wanted)), strict=True))
    return {key: _pooled(frames[key[0].policy, _replayed(key[1])], *key) for key in keys}


def _replayed(readings: Readings) -> Readings:
    """The readings that a replay is measured under: Global LIR always comes under both readings of its episodes."""
    return readings.with_(lir_episodes="literal")


def _pooled(frame: pl.DataFrame, quantity: Quantity, readings: Readings) -> tuple[float, float]:
    asked = {"group": quantity.group, "lag": quantity.lag, "reading": readings.label()}
    where = {name: value for name, value in asked.items() if value is not None}
    rows = rows_of(frame, quantity.metric, **where)
    summed = cells(rows, sample(rows), ("policy",), quantity.how)
    return float(summed.numerator.sum()), float(summed.denominator.sum())
