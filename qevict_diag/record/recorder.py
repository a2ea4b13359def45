"""Record traces: the library's entry point behind `qevict-diag record`."""

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from qevict_diag.attention import fused
from qevict_diag.errors import InputError
from qevict_diag.models.identity import difference, identify
from qevict_diag.models.intercept import intercept
from qevict_diag.models.positions import last_position
from qevict_diag.models.stepper import input_device, quiet_model, vocabulary
from qevict_diag.progress import Progress, Steps, silent
from qevict_diag.record.capture import Capture, CapturedLayer
from qevict_diag.record.contents import estimate_entry, layer_tensors, manifest, shape, source_entry
from qevict_diag.record.cost import price, refuse_full_disk
from qevict_diag.record.decode import run
from qevict_diag.record.options import RecordOptions
from qevict_diag.record.probe import LayerPlan, probe
from qevict_diag.record.rotary import watch_rotary
from qevict_diag.record.selection import wanted
from qevict_diag.texts.source import Source, unique_names
from qevict_diag.trace.trace import Trace
from qevict_diag.trace.writer import TraceWriter, refuse_existing

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
) -> list[Path]:
    """Record one trace per source below ``out`` and return their folders.

    Prompts have one length, P, so up to ``options.batch`` of them are decoded as one batch, without padding; the traces
    of a batch appear together at its end. A step of ``progress`` is one position in one layer of a batch. With
    ``resume``, traces that are there already, of the same text, model and options, are kept and only the others are
    recorded; a redacted trace does not tell its text, and is kept by its name with a warning. InputError for a text
    that is too short or a target that exists, ModelError for a model that cannot be recorded, RecordError when the
    recording disagrees with the model.
    """
    note = note_untested()
    if note is not None:
        warnings.warn(note, stacklevel=2)
    model = getattr(model, "_orig_mod", model)  # what torch.compile wraps: compiled code is recorded uncompiled
    targets = [Path(out) / name for name in unique_names(sources)]
    who = dict(identity or identify(model, getattr(model.config, "name_or_path", "") or type(model).__name__))
    todo = [
        (source, target)
        for source, target in zip(sources, targets, strict=True)
        if not (resume and _is_done(source, target, options, who))
    ]
    for _, target in todo:
        refuse_existing(target)
    if todo:
        _record_all(model, tokenizer, todo, options, who, progress)
    return targets


def _record_all(
    model: Any,
    tokenizer: Any,
    todo: Sequence[tuple[Source, Path]],
    options: RecordOptions,
    who: Mapping[str, Any],
    progress: Progress,
) -> None:
    prompts = check(model, tokenizer, [source for source, _ in todo], options)
    plans = probe(model)
    kept = wanted(plans, options)
    out = todo[0][1].parent
    refuse_full_disk(price(kept, model.dtype, options, len(todo), out), out)
    starts = range(0, len(todo), options.batch)
    finished = Steps(progress, "recording", len(plans) * options.length * len(starts))
    for start in starts:
        batch = slice(start, start + options.batch)
        some = [source for source, _ in todo[batch]], [target for _, target in todo[batch]]
        job = _Batch(model, plans, kept, options, *some, who)
        job.record(torch.tensor(prompts[batch]), finished)


def check(model: Any, tokenizer: Any, sources: Sequence[Source], options: RecordOptions) -> list[list[int]]:
    """The prompts of a recording, if model and options allow it at all; InputError otherwise, before anything runs."""
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
    return [tokenize(tokenizer, source, options, vocabulary(model)) for source in sources]


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


def _is_done(source: Source, target: Path, options: RecordOptions, who: Mapping[str, Any]) -> bool:
    """Whether ``target`` is a whole trace of this text, model and options; InputError when it is another one."""
    if not target.exists():
        return False
    trace = Trace.open(target)
    found = trace.entry("source").get("text_sha256"), trace.entry("recorder").get("options")
    text = None if options.redact_text else source.sha256
    if options.redact_text:
        warnings.warn(f"{target} is redacted and kept by its name; its text was not compared", stacklevel=4)
    if found != (text, json.loads(json.dumps(asdict(options)))) or difference(trace.entry("model"), who):
        raise InputError(
            f"{target} was recorded from another text, model or options; choose another --out to keep both"
        )
    return True


def tokenize(tokenizer: Any, source: Source, options: RecordOptions, vocab: int) -> list[int]:
    """The token ids a recording needs: P, or P + G when the text itself is the continuation."""
    if source.tokens is not None:
        ids = list(source.tokens)
    elif tokenizer is None:
        raise InputError(
            f"the model has no tokenizer, so {source.name} cannot be read as text; give token ids with --tokens"
        )
    else:
        ids = tokenizer(source.text, verbose=False)["input_ids"]
    needed = options.length if options.continuation == "teacher" else options.prefill
    if len(ids) < needed:
        what = "prompt and continuation need" if options.continuation == "teacher" else "--prefill is"
        raise InputError(
            f"{source.name} has {len(ids)} tokens, {what} {needed}; give a longer text or lower --prefill or --decode"
        )
    wrong = next((token for token in ids[:needed] if not 0 <= token < vocab), None)
    if wrong is not None:
        raise InputError(f"{source.name} holds token id {wrong}, the model's vocabulary has {vocab}; ids start at 0")
    return ids[:needed]


class _Batch:
    """One batch on its way to disk."""

    def __init__(
        self,
        model: Any,
        plans: Sequence[LayerPlan],
        kept: Sequence[LayerPlan],
        options: RecordOptions,
        sources: Sequence[Source],
        targets: Sequence[Path],
        who: Mapping[str, Any],
    ) -> None:
        self.model, self.plans, self.kept, self.options = model, plans, kept, options
        self.sources, self.targets, self.who = sources, targets, who
        self.specs = {plan.spec.layer: plan.spec for plan in kept}

    def record(self, prompts: Tensor, finished: Callable[[int], None]) -> list[Path]:
        with ExitStack() as stack:
            self._writers = [stack.enter_context(TraceWriter(target)) for target in self.targets]
            capture = Capture(self.plans, self.kept, self.options, self._write, finished)
            with (
                quiet_model(self.model),
                watch_rotary(self.model, capture.rotary),
                intercept(self.model, capture.attention),
            ):
                tokens = run(self.model, prompts, self.options, [self.options.seed] * len(self.sources))
            capture.finish()
            return [self._publish(i, tokens[i], capture) for i in range(len(self.sources))]

    def _write(self, layer: CapturedLayer) -> None:
        tensors = layer_tensors(layer, self.specs[layer.number], self.options)
        self._writers[layer.sequence].write_layer(layer.number, tensors)

    def _publish(self, i: int, tokens: Tensor, capture: Capture) -> Path:
        writer = self._writers[i]
        writer.write_tokens(torch.zeros_like(tokens) if self.options.redact_text else tokens.to(torch.int64))
        writer.write_rope(capture.tables())
        residuals = sorted(capture.residuals.items())
        specs = [replace(self.specs[number], pv_residual=residual) for number, residual in residuals]
        content = manifest(self.kept, specs, self.options, self.who)
        content["shape"] = shape(self.kept[0], self.options, self._model_layers(), vocabulary(self.model))
        if capture.sums_error is not None:
            content["recorder"]["column_sums"] = estimate_entry(self.options, specs[0].layer, capture.sums_error)
        content["source"] = source_entry(self.sources[i], tokens.tolist(), self.options)
        return writer.publish(content)

    def _model_layers(self) -> int:
        text = self.model.config.get_text_config()
        return max(int(getattr(text, "num_hidden_layers", 0)), self.plans[-1].spec.layer + 1)
