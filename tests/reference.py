"""The judge: replay and metrics written slowly, straight from definitions.md, to check the fast batched library.

Plain numpy in float64, one layer at a time, loops where the paper has a quantifier. Nothing here is imported from the
library, and nothing is optimized. Only the quantizer and the rotary embedding work in float32: section 5 says so.

Words: a *unit* is a set of query heads that share one set of windows (reading A: the layer, the group of a key-value
head, or one head). Tiers are the strings full, quantized, evicted; regions add sinks and local. Readings are a dict
with the names of the library's table and its values; what is missing has the default of `DEFAULTS`.
"""

import dataclasses
import math
from collections import namedtuple
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

DEFAULTS = {
    "scope": "layer",  # A: layer | kv_head | head
    "score_queries": "every",  # B: every | event
    "policy_score": "teacher_forced",  # C: teacher_forced | restricted
    "universe": "historical",  # D: historical | accessible
    "churn_set": "retained",  # E: retained | full
    "lir_episodes": "literal",  # F: literal | after_exit
    "share_denominator": "cumulative",  # G: cumulative | instantaneous | sinks
    "fmm_denominator": "existing",  # H: existing | sinks | all | historical
    "qsa_support": "fullkv",  # I: fullkv | accessible, each also as .._cumulative
    "admission": "compete",  # J: compete | forced
    "newcomer_history": "birth",  # K: birth | local_exit
    "score_start": "all",  # L: all | last (32 queries) | one
    "lag": "endpoint",  # N: endpoint | first_passage
    "score_age": "sums",  # O: sums | per_query
    "levels": "end_points",  # P: end_points | bin_centres | clipped
}
FULL, QUANTIZED, EVICTED, LOCAL = TIERS = ("full", "quantized", "evicted", "local")

Capacities = namedtuple("Capacities", "full quantized history_bytes")
Ratio = namedtuple("Ratio", "numerator denominator value")  # value is NaN where the ratio is undefined
Lir = namedtuple("Lir", "rescued eligible value return_times")


@dataclass(frozen=True)
class Layer:
    """One recorded layer: what section 1 calls A is computed from these (axes: head, query, position, channel)."""

    query: np.ndarray  # [H, G, d] post-RoPE
    key: np.ndarray  # [KV, T, d] post-RoPE
    prompt_mass: np.ndarray  # [H, P]
    cos: np.ndarray | None = None  # [T, rotary_dim]
    sin: np.ndarray | None = None
    rope_style: str | None = None  # half | interleaved
    rope_start: int = 0
    scaling: float = 1.0
    sliding_window: int | None = None
    softcap: float | None = None
    sink_logits: tuple[float, ...] | None = None  # one for each query head
    value_dim: int | None = None
    prompt_query: np.ndarray | None = None  # [H, O, d] the last O prompt queries

    @property
    def heads(self):
        return self.query.shape[0]

    @property
    def kv_heads(self):
        return self.key.shape[0]

    @property
    def prefill(self):
        return self.prompt_mass.shape[1]

    @property
    def decode(self):
        return self.query.shape[1]

    @property
    def length(self):
        return self.prefill + self.decode

    def kv_head_of(self, head):
        return head // (self.heads // self.kv_heads)


@dataclass(frozen=True)
class Policy:
    """A condition of section 1. ``evicts`` is False for R0; ``quantized_readable`` is False for R3-full-only."""

    window: int
    quantized: bool = False
    promotion: bool = True
    evicts: bool = True
    quantized_readable: bool = True


CONDITIONS = {
    "R0": Policy(window=8, evicts=False),
    "R1": Policy(window=1),
    "R2": Policy(window=8),
    "R3": Policy(window=8, quantized=True),
    "R4": Policy(window=32, quantized=True),
    "R3-full-only": Policy(window=8, quantized=True, quantized_readable=False),
    "R3-one-way": Policy(window=8, quantized=True, promotion=False),
}


@dataclass(frozen=True)
class Budget:
    """The settings of section 4."""

    ratio: Fraction = Fraction(1, 5)
    quantized_fraction: Fraction = Fraction(1, 2)
    bits: int = 2
    sinks: int = 5
    recent: int = 32
    element_bytes: int = 2


@dataclass
class Event:
    """One routing event of one unit, after the decision."""

    number: int  # r
    length: int  # n_r
    tiers: dict[int, str]  # every historical window -> tier
    scores: dict[int, float]  # the policy score of every candidate
    newcomers: list[int]
    ledger: set[int]  # windows with an entry after this event
    positions: dict[str, list[int]]  # the partition of 0..n_r-1: sinks, full, quantized, evicted, local


@dataclass
class Unit:
    """The query heads that share one set of windows, and what happened to that set."""

    heads: list[int]
    events: list[Event] = field(default_factory=list)


@dataclass
class Replay:
    """A layer replayed under one policy."""

    policy: Policy
    budget: Budget
    capacities: Capacities
    units: list[Unit]
    levels: str = "end_points"

    def unit_of(self, head):
        return next(unit for unit in self.units if head in unit.heads)


# --- section 2: regions and windows ---------------------------------------------------------------------------------


def window_positions(window, size, sinks):
    """Section 2: window w holds [S + wΩ, S + (w+1)Ω)."""
    return list(range(sinks + window * size, sinks + (window + 1) * size))


def historical_windows(length, size, sinks, recent):
    """Section 2: w is historical at length n when S + (w+1)Ω <= n - R."""
    windows = []
    while sinks + (len(windows) + 1) * size <= length - recent:
        windows.append(len(windows))
    return windows


def event_lengths(prefill, decode, size):
    """Section 1: event r happens at length n_r = P + rΩ while rΩ < G."""
    return [prefill + r * size for r in range(decode + 1) if r * size < decode]


def partition(length, tiers, size, sinks):
    """Section 2: sinks, full, quantized, evicted and local positions; together exactly 0..n-1."""
    regions = {"sinks": [], FULL: [], QUANTIZED: [], EVICTED: [], LOCAL: []}
    for position in range(length):
        window = (position - sinks) // size
        region = "sinks" if position < sinks else tiers.get(window, LOCAL)
        regions[region].append(position)
    return regions


# --- section 4: bytes -------------------------------------------------------------------------------------------------


def capacities(window, prefill, decode, head_dim, value_dim=None, budget=Budget(), quantized=True):
    """Section 4: K_f, K_q and B_hist in exact arithmetic; ValueError when the budget leaves no history."""
    value_dim = head_dim if value_dim is None else value_dim
    tokens = math.floor(budget.ratio * (prefill + decode)) - budget.sinks - budget.recent
    if tokens <= 0:
        raise ValueError(f"{tokens} tokens of history: the budget does not cover the sinks and recent tokens")
    full = window * (head_dim + value_dim) * budget.element_bytes
    low = Fraction(window * (head_dim + value_dim) * budget.bits, 8) + 2 * head_dim * 2 + 2 * window * 2
    history = tokens * (head_dim + value_dim) * budget.element_bytes
    share = Fraction(budget.quantized_fraction) if quantized else Fraction(0)
    return Capacities(math.floor((1 - share) * history / full), math.floor(share * history / low), history)


# --- section 5: quantization ----------------------------------------------------------------------------------------


def quantize(group, bits, levels="end_points"):
    """Section 5 for one group of values: (codes, scale, zero), scale and zero as stored in fp16, the rest float32.

    Reading P: levels at the end points, (max - min) / (2^b - 1) apart; else (max - min) / 2^b apart, the code being the
    bin (bin_centres) or the nearest level (clipped).
    """
    group = np.asarray(group, np.float32)
    top = 2**bits - 1
    zero = np.float16(group.min())
    scale = np.float16((group.max() - group.min()) / np.float32(top if levels == "end_points" else top + 1))
    if scale == 0:
        return np.zeros(group.shape, np.uint8), scale, zero
    place = (group - np.float32(zero)) / np.float32(scale)
    codes = np.floor(place) if levels == "bin_centres" else np.rint(place)  # rint rounds half to even
    return np.clip(codes, 0, top).astype(np.uint8), scale, zero


def dequantize(codes, scale, zero, levels="end_points"):
    """Section 5: x̂ = zero + scale · code, in float32 from the stored scale and zero; at bin centres code + 1/2."""
    codes = codes.astype(np.float32) + np.float32(0.5 if levels == "bin_centres" else 0)
    return np.float32(zero) + np.float32(scale) * codes


def quantize_dequantize(x, axis, bits, levels="end_points"):
    """Section 5: the reconstruction of the matrix ``x``; each group runs along ``axis``.

    Keys [Ω, d]: axis 0 (one group per channel over the window's tokens). Values: axis 1 (one group per token).
    """
    groups = np.moveaxis(np.array(x, np.float32), axis, -1)
    for index in np.ndindex(groups.shape[:-1]):
        groups[index] = dequantize(*quantize(groups[index], bits, levels), levels)
    return np.moveaxis(groups, -1, axis)


def rotary_pairs(rotary_dim, style):
    """The pairs of channels that turn together: (c, c + rotary_dim/2) or (2c, 2c+1)."""
    half = rotary_dim // 2
    return [(c, c + half) if style == "half" else (2 * c, 2 * c + 1) for c in range(half)]


def turn_keys(layer, key, backwards):
    """Rotate float32 keys [T, d] to their absolute positions, or back to the pre-RoPE domain (section 5).

    y_a = x_a cos_a - x_b sin_a, y_b = x_b cos_b + x_a sin_b; backwards with -sin, divided by cos² + sin².
    """
    if layer.cos is None or layer.sin is None or layer.rope_style is None:
        return np.array(key, np.float32)
    key, cos, sin = (np.array(x, np.float32) for x in (key, layer.cos, layer.sin))
    turned = key.copy()
    for a, b in rotary_pairs(cos.shape[1], layer.rope_style):
        x_a, x_b = key[:, layer.rope_start + a], key[:, layer.rope_start + b]
        if backwards:
            y_a = (x_a * cos[:, a] + x_b * sin[:, a]) / (cos[:, a] * cos[:, a] + sin[:, a] * sin[:, a])
            y_b = (x_b * cos[:, b] - x_a * sin[:, b]) / (cos[:, b] * cos[:, b] + sin[:, b] * sin[:, b])
        else:
            y_a = x_a * cos[:, a] - x_b * sin[:, a]
            y_b = x_b * cos[:, b] + x_a * sin[:, b]
        turned[:, layer.rope_start + a], turned[:, layer.rope_start + b] = y_a, y_b
    return turned


def reconstructed_keys(layer, size, sinks, bits, levels="end_points"):
    """Section 5: keys [KV, T, d] as the write-once ledger gives back every complete window; the rest as recorded."""
    result = np.array(layer.key, np.float32)
    for kv_head in range(layer.kv_heads):
        plain = turn_keys(layer, layer.key[kv_head], backwards=True)
        written = []
        for window in historical_windows(layer.length, size, sinks, recent=0):
            positions = window_positions(window, size, sinks)
            plain[positions] = quantize_dequantize(plain[positions], axis=0, bits=bits, levels=levels)
            written += positions
        result[kv_head, written] = turn_keys(layer, plain, backwards=False)[written]
    return result


# --- attention --------------------------------------------------------------------------------------------------------


def logits(layer, key):
    """Attention logits [H, G, T] of every decode query on the keys [KV, T, d]; -inf where a query cannot see.

    Query t sits at P + t: causal, in a sliding layer only the last ``sliding_window`` positions with its own.
    """
    result = np.full((layer.heads, layer.decode, layer.length), -np.inf)
    for head in range(layer.heads):
        keys = np.asarray(key[layer.kv_head_of(head)], np.float64)
        for t in range(layer.decode):
            raw = keys @ np.asarray(layer.query[head, t], np.float64) * layer.scaling
            if layer.softcap is not None:
                raw = layer.softcap * np.tanh(raw / layer.softcap)
            own = layer.prefill + t
            first = 0 if layer.sliding_window is None else max(0, own - layer.sliding_window + 1)
            result[head, t, first : own + 1] = raw[first : own + 1]
    return result


def softmax(row, sink_logit=None):
    """Probabilities [T] of one query from its logits; a sink logit takes its share and is then dropped."""
    top = max(row.max(), -np.inf if sink_logit is None else sink_logit)
    weights = np.exp(row - top)
    total = weights.sum() + (0.0 if sink_logit is None else np.exp(sink_logit - top))
    return weights / total


def softmax_of_head(layer, head, row):
    return softmax(row, None if layer.sink_logits is None else layer.sink_logits[head])


def full_attention(layer):
    """Section 1: A[h, t, i], the FullKV probabilities [H, G, T]."""
    rows = logits(layer, layer.key)
    for head in range(layer.heads):
        for t in range(layer.decode):
            rows[head, t] = softmax_of_head(layer, head, rows[head, t])
    return rows


def policy_attention(layer, head, t, event, full_logits, ledger_logits, size, sinks):
    """Section 3: probabilities [T] that the policy's cache after ``event`` gives the FullKV query t.

    Softmax over the accessible positions (all but the evicted); windows with a ledger entry use the dequantized key.
    """
    row = full_logits[head, t].copy()
    for window in event.ledger:
        positions = window_positions(window, size, sinks)
        row[positions] = ledger_logits[head, t, positions]
    row[event.positions[EVICTED]] = -np.inf
    return softmax_of_head(layer, head, row)


# --- section 3: scores ------------------------------------------------------------------------------------------------


def reference_mass(layer, attention, heads, r, size):
    """Section 3: the terms of C_r by position [T], summed over ``heads``: prompt queries and decode queries t < rΩ."""
    mass = np.zeros(layer.length)
    for head in heads:
        mass[: layer.prefill] += layer.prompt_mass[head]
        for t in range(r * size):
            mass += attention[head, t]
    return mass


def reference_scores(layer, attention, heads, r, size, budget):
    """Section 3: C_r(w) for every window that is historical at event r."""
    mass = reference_mass(layer, attention, heads, r, size)
    windows = historical_windows(layer.prefill + r * size, size, budget.sinks, budget.recent)
    return {w: mass[window_positions(w, size, budget.sinks)].sum() for w in windows}


def ranked(windows, scores):
    """Section 3, ties: higher score first, then lower window id."""
    return sorted(windows, key=lambda w: (-scores[w], w))


# --- section 6: routing -----------------------------------------------------------------------------------------------


def route(tiers, newcomers, scores, full, quantized, promotion=True, forced=False):
    """Section 6: one routing event. ``tiers`` holds the windows routed before; returns the tier of every window.

    Candidates are F, Q and the newcomers; the evicted never return. Reading J, forced (not at event 0, which has no
    incumbents): newcomers enter the retained set first, the best of them when they are more than fit.
    """
    old_full = [w for w in tiers if tiers[w] == FULL]
    old_quantized = [w for w in tiers if tiers[w] == QUANTIZED]
    candidates = ranked(old_full + old_quantized + newcomers, scores)
    if forced and tiers:
        entering = ranked(newcomers, scores)[: full + quantized]
        staying = ranked(old_full + old_quantized, scores)[: full + quantized - len(entering)]
        candidates = ranked(entering + staying, scores)
    may_be_full = candidates if promotion else [w for w in candidates if w not in old_quantized]
    new_full = may_be_full[:full]
    new_quantized = [w for w in candidates if w not in new_full][:quantized]
    result = {}
    for window in [*tiers, *newcomers]:
        result[window] = FULL if window in new_full else QUANTIZED if window in new_quantized else EVICTED
    return result


def units_of(layer, scope):
    """Reading A: the groups of query heads that share one set of windows."""
    if scope == "layer":
        return [list(range(layer.heads))]
    if scope == "head":
        return [[head] for head in range(layer.heads)]
    return [[h for h in range(layer.heads) if layer.kv_head_of(h) == kv] for kv in range(layer.kv_heads)]


def replay(layer, policy, budget=Budget(), readings=None):
    """Section 6: replay one layer under ``policy``; every unit of reading A on its own."""
    readings = {**DEFAULTS, **(readings or {})}
    if policy.evicts:
        capacity = capacities(
            policy.window, layer.prefill, layer.decode, layer.query.shape[2], layer.value_dim, budget, policy.quantized
        )
    else:
        everything = len(historical_windows(layer.length, policy.window, budget.sinks, budget.recent))
        capacity = Capacities(everything, 0, None)
    full_logits = logits(layer, layer.key)
    levels = readings["levels"]
    ledger_logits = logits(layer, reconstructed_keys(layer, policy.window, budget.sinks, budget.bits, levels))
    units = [
        replay_unit(layer, heads, policy, budget, capacity, readings, full_logits, ledger_logits)
        for heads in units_of(layer, readings["scope"])
    ]
    return Replay(policy, budget, capacity, units, levels)


def replay_unit(layer, heads, policy, budget, capacity, readings, full_logits, ledger_logits):
    """Sections 3 and 6 for one unit: score, route, let the queries of the interval look, and again."""
    size, sinks = policy.window, budget.sinks
    unit = Unit(heads)
    tiers, ledger = {}, set()
    mass = np.zeros(layer.length)  # the policy score, by position
    counted = {"all": layer.prefill, "last": min(32, layer.prefill), "one": 1}[readings["score_start"]]
    queries = list(range(layer.prefill - counted, layer.prefill))  # positions of the queries that feed the score
    for head in heads:
        mass[: layer.prefill] += (
            layer.prompt_mass[head] if counted == layer.prefill else last_rows(layer, head, counted)
        )
    for r, length in enumerate(event_lengths(layer.prefill, layer.decode, size)):
        newcomers = [w for w in historical_windows(length, size, sinks, budget.recent) if w not in tiers]
        if readings["newcomer_history"] == "local_exit" and r > 0:
            for window in newcomers:
                mass[window_positions(window, size, sinks)] = 0.0
        candidates = newcomers + [w for w in tiers if tiers[w] != EVICTED]
        scores = {w: mass[window_positions(w, size, sinks)].sum() for w in candidates}
        if readings["score_age"] == "per_query":
            scores = {w: scores[w] / max(1, sightings(layer, w, queries, size, sinks)) for w in candidates}
        forced = readings["admission"] == "forced"
        tiers = route(tiers, newcomers, scores, capacity.full, capacity.quantized, policy.promotion, forced and r > 0)
        ledger = ledger | {w for w in tiers if tiers[w] == QUANTIZED}  # written on the first demotion, kept for ever
        event = Event(r, length, tiers, scores, newcomers, ledger, partition(length, tiers, size, sinks))
        unit.events.append(event)
        for t in interval(r, size, layer.decode):
            if readings["score_queries"] == "event" and t != (r + 1) * size - 1:
                continue  # reading B: only the last query before the next event counts
            queries.append(layer.prefill + t)
            for head in heads:
                if readings["policy_score"] == "restricted":
                    seen = softmax_of_head(layer, head, full_logits[head, t])
                    seen[event.positions[EVICTED]] = 0.0
                else:
                    seen = policy_attention(layer, head, t, event, full_logits, ledger_logits, size, sinks)
                mass += seen
    return unit


def last_rows(layer, head, count):
    """Reading L: what the last ``count`` prompt queries together give each prompt position [P]."""
    last = dataclasses.replace(
        layer,
        query=np.asarray(layer.prompt_query)[:, -count:],
        key=np.asarray(layer.key)[:, : layer.prefill],
        prompt_mass=layer.prompt_mass[:, : layer.prefill - count],
    )
    return sum(softmax_of_head(last, head, row) for row in logits(last, last.key)[head])


def sightings(layer, window, queries, size, sinks):
    """Reading O: how many of the queries at ``queries`` could see the whole window."""
    positions = window_positions(window, size, sinks)
    reach = layer.length if layer.sliding_window is None else layer.sliding_window
    return sum(positions[-1] <= p < positions[0] + reach for p in queries)


def interval(r, size, decode):
    """The queries rΩ .. (r+1)Ω-1 between event r and the next, as far as there are any."""
    return [t for t in range(r * size, (r + 1) * size) if t < decode]


# --- section 7: metrics -----------------------------------------------------------------------------------------------


def tiers_for_metrics(run, event):
    """The tiers as FMM, churn, mass shares and QSA see them: R3-full-only counts its quantized windows as evicted."""
    if run.policy.quantized_readable:
        return event.tiers
    return {w: EVICTED if tier == QUANTIZED else tier for w, tier in event.tiers.items()}


def windows_in(tiers, tier):
    return [w for w in sorted(tiers) if tiers[w] == tier]


def positions_in(run, event, *tiers):
    """Positions of all historical windows that the metrics see in one of ``tiers``."""
    seen = tiers_for_metrics(run, event)
    return [
        i for w in sorted(seen) if seen[w] in tiers for i in window_positions(w, run.policy.window, run.budget.sinks)
    ]


def ratio(numerator, denominator):
    """Numerator, denominator and their ratio; NaN where the denominator is zero or undefined."""
    value = np.full(numerator.shape, np.nan)
    for index in np.ndindex(numerator.shape):
        if denominator[index] > 0:
            value[index] = numerator[index] / denominator[index]
    return Ratio(numerator, denominator, value)


def mass_on(rows, positions):
    """Σ_t Σ_i A[t, i] over the rows of one head and the positions that exist in them."""
    return float(sum(row[i] for row in rows for i in positions if i < len(row)))


def fmm(layer, run, horizon=32, denominator="existing", truncate=False):
    """Section 7, Future Missed Mass [head, event].

    FMM_r = Σ_{t=rΩ}^{rΩ+H-1} Σ_{i in E_r} A[t,i] / Σ_{t=rΩ}^{rΩ+H-1} Σ_{S <= i < n_r} A[t,i]

    Reading H: the denominator sums over S <= i < n_r (existing), 0 <= i < n_r (sinks), everything (all) or the
    historical windows (historical). NaN: no full horizon (unless ``truncate``: then the rows there are), no historical
    window at r, zero denominator.
    """
    attention = full_attention(layer)
    events = len(run.units[0].events)
    missed, total = (np.full((layer.heads, events), np.nan) for _ in range(2))
    for head in range(layer.heads):
        for event in run.unit_of(head).events:
            start = event.number * run.policy.window
            if (start + horizon > layer.decode and not truncate) or not event.tiers:
                continue
            counted = {
                "existing": range(run.budget.sinks, event.length),
                "sinks": range(event.length),
                "all": range(layer.length),
                "historical": positions_in(run, event, FULL, QUANTIZED, EVICTED),
            }[denominator]
            gone = positions_in(run, event, EVICTED)
            rows = attention[head, start : start + horizon]
            missed[head, event.number] = mass_on(rows, gone)
            total[head, event.number] = mass_on(rows, counted)
    return ratio(missed, total)


def jaccard_distance(before, after):
    """Section 7: 1 - |A ∩ B| / |A ∪ B|; two empty sets are at distance 0."""
    union = set(before) | set(after)
    return 1 - len(set(before) & set(after)) / len(union) if union else 0.0


def churn(run, churn_set="retained"):
    """Section 7, Selection Churn [unit, event] over positions, event r against r-1; NaN at event 0.

    Reading E: F ∪ Q (retained) or F (full).
    """
    tiers = (FULL, QUANTIZED) if churn_set == "retained" else (FULL,)
    result = np.full((len(run.units), len(run.units[0].events)), np.nan)
    for u, unit in enumerate(run.units):
        for before, after in zip(unit.events, unit.events[1:], strict=False):
            result[u, after.number] = jaccard_distance(
                positions_in(run, before, *tiers), positions_in(run, after, *tiers)
            )
    return result


def mass_share(layer, run, denominator="cumulative"):
    """Section 7, tier-mass share [unit, event, tier], tiers in the order of `TIERS`.

    share_z(r) = Σ_{w in z} C_r(w) / Σ_{all non-sink positions} C_r. Reading G: the sinks in the denominator too
    (sinks), or the mass that the queries of the interval after r give in place of C_r (instantaneous; full intervals
    only, positions born in the interval are local).
    """
    attention, size, sinks = full_attention(layer), run.policy.window, run.budget.sinks
    result = np.full((len(run.units), len(run.units[0].events), len(TIERS)), np.nan)
    for u, unit in enumerate(run.units):
        for event in unit.events:
            mass = reference_mass(layer, attention, unit.heads, event.number, size)
            if denominator == "instantaneous":
                queries = interval(event.number, size, layer.decode)
                if len(queries) < size:
                    continue
                mass = sum(attention[head, t] for head in unit.heads for t in queries)
            historical = {tier: positions_in(run, event, tier) for tier in TIERS[:3]}
            routed = {i for positions in historical.values() for i in positions}
            local = [i for i in range(sinks, layer.length) if i not in routed]
            total = mass[0 if denominator == "sinks" else sinks :].sum()
            for z, tier in enumerate(TIERS):
                if total > 0:
                    result[u, event.number, z] = mass[local if tier == LOCAL else historical[tier]].sum() / total
    return result


def quantized_scores(layer, run, support="fullkv"):
    """Section 7: {(head, event): (windows in Q, s^Q, s^Full)}, the mass that the interval after the event gives them.

    Full intervals only. s^Full is FullKV attention. Reading I, s^Q: FullKV support with the keys of the Q windows alone
    replaced (fullkv), or the policy's support with the key of every window in the ledger replaced (accessible).
    """
    size, sinks = run.policy.window, run.budget.sinks
    full_logits = logits(layer, layer.key)
    ledger_logits = logits(layer, reconstructed_keys(layer, size, sinks, run.budget.bits, run.levels))
    result = {}
    for head in range(layer.heads):
        for event in run.unit_of(head).events:
            queries = interval(event.number, size, layer.decode)
            if len(queries) < size:
                continue
            windows = windows_in(tiers_for_metrics(run, event), QUANTIZED)
            low, full = np.zeros(len(windows)), np.zeros(len(windows))
            for t in queries:
                original = softmax_of_head(layer, head, full_logits[head, t])
                replaced = full_logits[head, t].copy()
                for window in windows:
                    positions = window_positions(window, size, sinks)
                    replaced[positions] = ledger_logits[head, t, positions]
                with_codes = softmax_of_head(layer, head, replaced)
                if support.startswith("accessible"):
                    with_codes = policy_attention(layer, head, t, event, full_logits, ledger_logits, size, sinks)
                for j, window in enumerate(windows):
                    positions = window_positions(window, size, sinks)
                    low[j] += with_codes[positions].sum()
                    full[j] += original[positions].sum()
            result[head, event.number] = windows, low, full
    return added_up(result) if support.endswith("cumulative") else result


def logit_errors(layer, run):
    """Section 7: of each head, all errors of the logits on positions in Q, by the queries of each event's interval."""
    size, sinks = run.policy.window, run.budget.sinks
    full_logits = logits(layer, layer.key)
    ledger_logits = logits(layer, reconstructed_keys(layer, size, sinks, run.budget.bits, run.levels))
    found = []
    for head in range(layer.heads):
        errors = []
        for event in run.unit_of(head).events:
            for t in interval(event.number, size, layer.decode):
                for i in positions_in(run, event, QUANTIZED):
                    if np.isfinite(full_logits[head, t, i]):
                        errors.append(ledger_logits[head, t, i] - full_logits[head, t, i])
        found.append(np.array(errors))
    return found


def missed_by_age(layer, run, edges, horizon=32):
    """Section 7: missed mass by when it was evicted [class, head, event]: since event 0, else by queries ago."""
    attention, events = full_attention(layer), len(run.units[0].events)
    parts = np.zeros((len(edges) + 1, layer.heads, events))
    for head in range(layer.heads):
        gone_since = {}
        for event in run.unit_of(head).events:
            start = event.number * run.policy.window
            gone = windows_in(tiers_for_metrics(run, event), EVICTED)
            gone_since = {w: gone_since.get(w, event.number) for w in gone}
            for w, since in gone_since.items():
                age = (event.number - since) * run.policy.window
                kind = 0 if since == 0 else sum(age >= edge for edge in edges)
                rows = attention[head, start : start + horizon]
                positions = window_positions(w, run.policy.window, run.budget.sinks)
                parts[kind, head, event.number] += mass_on(rows, positions)
    return parts


def added_up(scores):
    """Reading I, cumulative: what each window collected in all intervals so far during which it was in Q."""
    totals, result = {}, {}
    for (head, event), (windows, low, full) in sorted(scores.items()):
        for j, window in enumerate(windows):
            before = totals.get((head, window), (0.0, 0.0))
            totals[head, window] = before[0] + low[j], before[1] + full[j]
        pairs = np.array([totals[head, window] for window in windows]).reshape(-1, 2)
        result[head, event] = windows, pairs[:, 0], pairs[:, 1]
    return result


def cosine(a, b):
    """cos(a, b); NaN for fewer than two entries or a zero norm."""
    norms = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(x * x for x in b))
    return sum(x * y for x, y in zip(a, b, strict=True)) / norms if len(a) > 1 and norms > 0 else math.nan


def qsa(layer, run, support="fullkv"):
    """Section 7, Quantized-Score Agreement [head, event] = cos(s_r^Q, s_r^Full)."""
    result = np.full((layer.heads, len(run.units[0].events)), np.nan)
    for index, (_, low, full) in quantized_scores(layer, run, support).items():
        result[index] = cosine(low, full)
    return result


def mass_ratio(layer, run, support="fullkv"):
    """Section 7, R_Q [head, event] = Σ s_r^Q / Σ s_r^Full; NaN where Q is empty or has no mass."""
    numerator, denominator = (np.full((layer.heads, len(run.units[0].events)), np.nan) for _ in range(2))
    for index, (windows, low, full) in quantized_scores(layer, run, support).items():
        if windows:
            numerator[index], denominator[index] = low.sum(), full.sum()
    return ratio(numerator, denominator)


# --- section 7: the selection X[r, w], Global LIR, lagged transitions, promotions ------------------------------------


def policy_selection(run, unit, universe="historical"):
    """Section 7: X[event][window] of the policy, 1 for F, 0 otherwise, None where the window does not exist.

    Reading D: all historical windows, or (accessible) only until the policy evicts it. K_f = 0: undefined everywhere.
    """
    windows = sorted(unit.events[-1].tiers)
    selection = []
    for event in unit.events:
        row = [None] * len(windows)
        for w, tier in event.tiers.items():
            if run.capacities.full > 0 and not (universe == "accessible" and tier == EVICTED):
                row[w] = int(tier == FULL)
        selection.append(row)
    return selection


def oracle_selection(layer, run, unit, universe="historical"):
    """Section 7: X[event][window] of the oracle, the top K_f by C_r over the windows of the universe, ties as ever."""
    attention, size = full_attention(layer), run.policy.window
    selection = []
    for event in unit.events:
        scores = reference_scores(layer, attention, unit.heads, event.number, size, run.budget)
        existing = [w for w in scores if not (universe == "accessible" and event.tiers[w] == EVICTED)]
        top = ranked(existing, scores)[: run.capacities.full]
        row = [None] * len(unit.events[-1].tiers)
        for w in existing:
            row[w] = int(w in top) if run.capacities.full > 0 else None
        selection.append(row)
    return selection


def inactive_episodes(column, after_exit=False):
    """Maximal runs of zeros in one window's column of X, as [first, last] event.

    Reading F: all of them (literal), or only those that follow a selected event (after_exit).
    """
    episodes = []
    for event, state in enumerate(column):
        if state == 0 and event > 0 and column[event - 1] == 0:
            episodes[-1][1] = event
        elif state == 0:
            episodes.append([event, event])
    if after_exit:
        return [episode for episode in episodes if episode[0] > 0 and column[episode[0] - 1] == 1]
    return episodes


def lir(selection, min_inactive=3, episodes="literal"):
    """Section 7, Global LIR = rescued / eligible over X[event][window]; (rescued, eligible, value, return times).

    An episode is eligible once it has lasted m events, at event first + m - 1; it is rescued when the window is
    selected at a later event. Runs still open at the end count as not rescued. No eligible episode: NaN.
    """
    rescued, eligible, times = 0, 0, []
    for window in range(len(selection[0]) if selection else 0):
        column = [row[window] for row in selection]
        for first, last in inactive_episodes(column, after_exit=episodes == "after_exit"):
            if last - first + 1 < min_inactive:
                continue
            eligible += 1
            returns = [event for event in range(last + 1, len(column)) if column[event] == 1]
            if returns:
                rescued += 1
                times.append(returns[0] - (first + min_inactive - 1))
    return Lir(rescued, eligible, rescued / eligible if eligible else math.nan, times)


def transitions(selection, lag, start, counting="endpoint"):
    """Section 7: counts and rate of P01(Δ) (start 0) or P10(Δ) (start 1) over pairs where w exists at r.

    A window that exists no more later (reading D: accessible) is not selected there.

    Reading N: the state at r+Δ has changed (endpoint), or it has changed at some event of r+1..r+Δ (first_passage).
    """
    changed, pairs = 0, 0
    for r in range(len(selection) - lag):
        for window, state in enumerate(selection[r]):
            if state != start:
                continue
            pairs += 1
            later = range(r + lag, r + lag + 1) if counting == "endpoint" else range(r + 1, r + lag + 1)
            changed += any((selection[event][window] == 1) == (start == 0) for event in later)
    return Ratio(changed, pairs, changed / pairs if pairs else math.nan)


def promotions(unit):
    """Section 7: number of windows in Q at r-1 and in F at r, by event r; 0 at event 0."""
    counts = [0]
    for before, after in zip(unit.events, unit.events[1:], strict=False):
        counts.append(sum(before.tiers[w] == QUANTIZED and after.tiers[w] == FULL for w in before.tiers))
    return counts
