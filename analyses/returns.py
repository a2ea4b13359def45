"""Time to return as a survival curve: episodes still open at the end are censored, not counted as failures."""

import numpy as np
import polars as pl

from qevict_diag.analyses.estimates import rows_of
from qevict_diag.statistics.survival import SurvivalCurve, kaplan_meier

KEYS = ("policy", "reading", "group", "lag")


def curves(frame: pl.DataFrame) -> dict[tuple[object, ...], SurvivalCurve]:
    """Kaplan-Meier curve of each policy, reading, group (oracle or policy) and m, pooled over layers and traces.

    The pointwise interval takes episodes as independent, which those of one trace are not.
    """
    rows = rows_of(frame, "episodes")
    return {key: _curve(part) for key, part in rows.group_by(KEYS, maintain_order=True)}


def returned(frame: pl.DataFrame) -> pl.DataFrame:
    """The curves as a tidy frame: KEYS, event (since eligibility), returned (1 - S) with low and high, at_risk."""
    parts = []
    for key, curve in curves(frame).items():
        columns = {"event": curve.time, "returned": 1 - curve.survival, "low": 1 - curve.high, "high": 1 - curve.low}
        named = {name: pl.lit(value) for name, value in zip(KEYS, key, strict=True)}
        parts.append(pl.DataFrame({**columns, "at_risk": curve.at_risk}).with_columns(**named))
    return pl.concat(parts).select(*KEYS, "event", "returned", "low", "high", "at_risk")


def _curve(rows: pl.DataFrame) -> SurvivalCurve:
    waited, rescued, all_ = (rows[name].to_numpy() for name in ("value", "numerator", "denominator"))
    back, still = rescued.astype(int), (all_ - rescued).astype(int)
    duration = np.concatenate((np.repeat(waited, back), np.repeat(waited, still)))
    return kaplan_meier(duration, np.repeat([True, False], [back.sum(), still.sum()]))
