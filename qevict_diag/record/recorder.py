"""Record traces: the library's entry point behind `qevict-diag record`."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from qevict_diag.attention import fused
from qevict_diag.errors import InputError
from qevict_diag.models.identity import identify
from qevict_diag.models.positions import last_position
from qevict_diag.models.state import state_sha256
from qevict_diag.models.stepper import input_device, vocabulary
from qevict_diag.progress import Progress, Steps, silent
from qevict_diag.record.batch import Batch, Item
from qevict_diag.record.cost import price, refuse_full_disk
from qevict_diag.record.lengths import refuse_lengths
from qevict_diag.record.options import RecordOptions
from qevict_diag.record.probe import probe
from qevict_diag.record.prompts import Ids, notes, prompts, refuse_none, template_digest
from qevict_diag.record.resume import is_done
from qevict_diag.record.selection import wanted
from qevict_diag.texts.source import Source, unique_names
from qevict_diag.trace.writer import refuse_existing

TESTED = ((4, 57), (5, 24))  # releases of transformers, first and last; see noxfile.py
STORED = (torch.float32, torch.float16, torch.bfloat16)


def record(
    model: Any,
    tokenizer: Any,
    sources: Sequence[Source],
    options: RecordOptions,
    *,
    out: Path,
    identity: Mapping[str, Any] | None = None,
    progress: Progress = silent,
    resume: bool = False,
    skip_short: bool = False,
) -> list[Path]:
    """Record one trace per source below ``out`` and return their folders.

    Prompts have one length, P, so up to ``options.batch`` of them are decoded as one batch, without padding; the traces
    of a batch appear together at its end. A step of ``progress`` is one position in one layer of a batch. With
    ``resume``, traces that are there already, of the same text, model and options, are kept and only the others are
    recorded; a redacted trace does not tell its text, and is kept by its name. With ``skip_short``, texts that are too
    short are left out. Warns of what is worth knowing of texts and template. InputError for a text that is too short or
    a target that exists, ModelError for a model that cannot be recorded, RecordError when the recording disagrees with
    the model.
    """
    untested = note_untested()
    if untested is not None:
        warnings.warn(untested, stacklevel=2)
    model = getattr(model, "_orig_mod", model)  # what torch.compile wraps: compiled code is recorded uncompiled
    who = dict(identity or _in_memory(model))
    asked = [
        Item(source, Path(out) / name, template_digest(tokenizer, source, options))
        for source, name in zip(sources, unique_names(sources), strict=True)
    ]
    done = [item for item in asked if resume and is_done(item, options, who)]
    todo = [item for item in asked if item not in done]
    for item in todo:
        refuse_existing(item.target)
    ids = check(model, tokenizer, [item.source for item in todo], options, skip_short=skip_short) if todo else []
    if not done:
        refuse_none(ids)
    todo = [replace(item, ids=tuple(some)) for item, some in zip(todo, ids, strict=True) if some is not None]
    if todo:
        _record_all(model, todo, options, who, progress)
    there = {item.target for item in (*done, *todo)}
    return [item.target for item in asked if item.target in there]


def _in_memory(model: Any) -> dict[str, Any]:
    """The manifest's ``model`` entry of a model that somebody made or loaded, who did not say who it is."""
    name = getattr(model.config, "name_or_path", "") or type(model).__name__
    return identify(model, name, {"state_sha256": state_sha256(model)})


def _record_all(
    model: Any, items: Sequence[Item], options: RecordOptions, who: Mapping[str, Any], progress: Progress
) -> None:
    plans = probe(model)
    refuse_lengths(model, plans, options)
    kept = wanted(plans, options)
    out = items[0].target.parent
    refuse_full_disk(price(kept, model.dtype, options, len(items), out), out)
    starts = range(0, len(items), options.batch)
    finished = Steps(progress, "recording", len(plans) * options.length * len(starts))
    for start in starts:
        Batch(model, plans, kept, options, items[start : start + options.batch], who).record(finished)


def check(
    model: Any,
    tokenizer: Any,
    sources: Sequence[Source],
    options: RecordOptions,
    *,
    skip_short: bool = False,
) -> list[Ids | None]:
    """The prompts of a recording, if model and options allow it at all; InputError otherwise, before anything runs.

    None stands for a text that is too short, where such are skipped. Warns of what is worth knowing of the prompts.
    """
    if model.dtype not in STORED:
        raise InputError(f"the model computes in {model.dtype}, which a trace cannot hold; load it in float32")
    if options.fused:
        fused.require(input_device(model))
    limit = last_position(model)
    if limit is not None and options.length > limit:
        raise InputError(
            f"prompt and continuation need {options.length} positions, {type(model).__name__} has {limit}; "
            "lower --prefill or --decode"
        )
    found = prompts(tokenizer, sources, options, vocabulary(model), skip_short=skip_short)
    for one in notes(tokenizer, sources, found, options):
        warnings.warn(one, stacklevel=2)
    return found


def note_untested() -> str | None:
    """What to know about the installed transformers: None within the range of releases the recorder is tested with."""
    version = metadata.version("transformers")
    number = tuple(int(part) for part in version.split(".")[:2])
    if TESTED[0] <= number <= TESTED[1]:
        return None
    low, high = (".".join(map(str, bound)) for bound in TESTED)
    return (
        f"transformers {version} is outside of {low} to {high}, which the recorder is tested with; "
        "its self-check still compares every layer with the model's own kernel"
    )
