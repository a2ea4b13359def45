"""Made-up measurement frames in the tidy schema, with known truths to find again."""

import numpy as np
import polars as pl

from qevict_diag.metrics.eviction_age import CLASSES

SCHEMA = {
    "trace": pl.String,
    "model": pl.String,
    "policy": pl.String,
    "budget": pl.String,
    "metric": pl.String,
    "reading": pl.String,
    "layer": pl.Int64,
    "head": pl.Int64,
    "event": pl.Int64,
    "step": pl.Int64,
    "group": pl.String,
    "lag": pl.Int64,
    "value": pl.Float64,
    "numerator": pl.Float64,
    "denominator": pl.Float64,
}
WINDOWS = {"R1": 1, "R2": 8, "R3": 8, "R4": 32, "R3-full-only": 8, "R3-one-way": 8}
FMM = {"R1": 0.40, "R2": 0.38, "R3": 0.20, "R4": 0.25, "R3-full-only": 0.45, "R3-one-way": 0.21}
CHURN = {"R1": 0.017, "R2": 0.01, "R3": 0.0012, "R4": 0.018, "R3-full-only": 0.0012, "R3-one-way": 0.0015}
SHARES = {"R2": (0.33, 0.0, 0.65, 0.02), "R3": (0.2, 0.42, 0.36, 0.02)}
AGES = (0.4, 0.3, 0.2, 0.1)  # of what is missed
GROUPS = ("full", "quantized", "evicted", "local")
LIR_LAGS = (1, 2, 3, 4, 8)
LIR_COUNTS = {  # rescued and eligible of each layer; the two readings of episodes differ in their order
    "": {"oracle": (2, 200), "policy": (12, 200)},
    "lir_episodes=after_exit": {"oracle": (3, 40), "policy": (2, 40)},
}


def measurements(traces=2, layers=4, heads=2, decode=64, policies=tuple(FMM), seed=0, noise=0.01, prefill=512):
    """Every metric of every policy, values scattered by ``noise`` about the constants above."""
    rng = np.random.default_rng(seed)
    rows = []
    for trace in range(traces):
        for policy in policies:
            for layer in range(layers):
                rows += _layer(f"article-{trace}", policy, layer, heads, decode, rng, noise)
    frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    return frame.with_columns(window=pl.col("policy").replace_strict(WINDOWS, return_dtype=pl.Int64))


def bytes_frame(traces=2, policies=tuple(FMM)):
    """Byte use of each policy, as `measure` reports it."""
    used = {"R1": 29696, "R2": 28672, "R3": 29344, "R4": 24000, "R3-full-only": 29344, "R3-one-way": 29344}
    rows = [
        (f"article-{t}", p, "1/5", WINDOWS[p], 7, 0 if p in ("R1", "R2") else 27, 29696, used[p])
        for t in range(traces)
        for p in policies
    ]
    names = ("trace", "policy", "budget", "window", "full_windows", "quantized_windows", "history_bytes", "used_bytes")
    frame = pl.DataFrame(rows, schema=list(names), orient="row")
    return frame.with_columns(
        share_of_allowance=pl.col("used_bytes") / pl.col("history_bytes"),
        share_after_event=pl.lit(0.2),
        share_mean=pl.lit(0.205),
        share_peak=pl.lit(0.21),
        share_peak_with_ledger=pl.lit(0.225),
    )


def _layer(trace, policy, layer, heads, decode, rng, noise):
    window = WINDOWS[policy]
    events = -(-decode // window)

    def row(metric, value, num, den, head=None, event=None, group=None, lag=None, reading=""):
        step = None if event is None else event * window
        return (
            *(trace, "toy", policy, "1/5", metric, reading, layer, head, event, step, group, lag),
            *(value, float(num), float(den)),
        )

    def about(centre):
        return float(np.clip(centre + rng.normal(0, noise), 0, 1))

    rows = []
    for event in range(events):
        for head in range(heads):
            mass = rng.uniform(0.5, 2)
            missed = about(FMM[policy])
            rows.append(row("fmm", missed, missed * mass, mass, head, event))
            parts = [(name, share * missed) for name, share in zip(CLASSES, AGES, strict=True)]
            rows += [row("missed_age", part, part * mass, mass, head, event, group=name) for name, part in parts]
            if policy in ("R3", "R4", "R3-one-way"):
                one_way = policy == "R3-one-way"
                qsa, ratio = about(0.94 if one_way else 0.985), (0.87 if one_way else 0.9) + rng.normal(0, noise)
                rows.append(row("qsa", qsa, qsa * mass, mass, head, event))
                rows.append(row("mass_ratio", ratio, ratio * mass, mass, head, event))
        if event:
            union = 100.0
            rows.append(row("churn", CHURN[policy], CHURN[policy] * union, union, event=event))
        shares = SHARES.get(policy, (0.3, 0.3, 0.38, 0.02))
        rows += [row("mass_share", s, s, 1, event=event, group=g) for g, s in zip(GROUPS, shares, strict=True)]
        moves = 0 if policy == "R3-one-way" or event == 0 else int(rng.integers(0, 3))
        rows.append(row("promotions", moves, moves, 1, event=event))
    if policy in ("R3", "R4", "R3-one-way"):
        rows += _episodes(policy, rng, row)
        for head in range(heads):
            rows.append(row("logit_bias", 0.01, 10, 1000, head))
            rows.append(row("logit_variance", 0.2, 200, 1000, head))
    return rows


def _episodes(policy, rng, row):
    rows = []
    for reading, counts in LIR_COUNTS.items():
        for group, (rescued, eligible) in counts.items():
            rescued = 0 if policy == "R3-one-way" and group == "policy" else rescued
            for lag in LIR_LAGS:
                where = {"group": group, "lag": lag, "reading": reading}
                rows.append(row("lir", rescued / eligible, rescued, eligible, **where))
                times = rng.integers(1, 15, rescued)
                rows += [row("return_time", t, t, 1, **where) for t in map(float, times)]
    for lag in (1, 2, 4, 8):
        rows.append(row("transitions", 0.003 * lag, 3 * lag, 1000, group="01", lag=lag))
        rows.append(row("transitions", 0.03 * lag, 3 * lag, 100, group="10", lag=lag))
    return rows
