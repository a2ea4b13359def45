"""One batch of prompts on its way to disk."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from qevict_diag.attention.spec import AttentionSpec
from qevict_diag.errors import RecordError
from qevict_diag.models.frequencies import forget_length
from qevict_diag.models.intercept import intercept
from qevict_diag.models.stepper import end_tokens, quiet_model, vocabulary
from qevict_diag.record.capture import Capture, CapturedLayer
from qevict_diag.record.contents import estimate_entry, layer_tensors, manifest, shape, source_entry
from qevict_diag.record.decode import run
from qevict_diag.record.finite import NotFiniteError, cure
from qevict_diag.record.options import RecordOptions
from qevict_diag.record.probe import LayerPlan
from qevict_diag.record.rotary import watch_rotary
from qevict_diag.record.rows_only import rows_plans, rows_tensors
from qevict_diag.texts.source import Source
from qevict_diag.trace.writer import TraceWriter


@dataclass(frozen=True, eq=False)
class Item:
    """One trace to be: its source, where it goes, the chat template it is put into, and the ids it runs on."""

    source: Source
    target: Path
    template_sha256: str | None
    ids: tuple[int, ...] = ()


class Batch:
    """Records some items together and publishes their traces at the end."""

    def __init__(
        self,
        model: Any,
        plans: Sequence[LayerPlan],
        kept: Sequence[LayerPlan],
        options: RecordOptions,
        items: Sequence[Item],
        who: Mapping[str, Any],
    ) -> None:
        self.model, self.plans, self.kept, self.options = model, plans, kept, options
        self.items, self.who, self.ends = items, who, end_tokens(model)
        self.stored = rows_plans(kept, options.length) if options.redact_keys else tuple(kept)
        self.specs = {plan.spec.layer: (plan.spec, own.spec) for plan, own in zip(kept, self.stored, strict=True)}

    def record(self, finished: Callable[[int], None]) -> list[Path]:
        """Run the model and write the traces, whole or not at all; RecordError when the self-check fails."""
        with ExitStack() as stack:
            self._writers = [stack.enter_context(TraceWriter(item.target)) for item in self.items]
            capture = Capture(self.plans, self.kept, self.options, self._write, finished)
            try:
                tokens = self._run(capture)
            except NotFiniteError as error:
                raise RecordError(f"{error}, so no trace was written; {cure(self.model)}") from error
            capture.finish()
            return [self._publish(i, tokens[i], capture) for i in range(len(self.items))]

    def _run(self, capture: Capture) -> Tensor:
        prompts, seeds = torch.tensor([item.ids for item in self.items]), [self.options.seed] * len(self.items)
        forget_length(self.model)
        with (
            quiet_model(self.model),
            watch_rotary(self.model, capture.rotary),
            intercept(self.model, capture.attention),
        ):
            return run(self.model, prompts, self.options, seeds, capture.logits)

    def _write(self, layer: CapturedLayer) -> None:
        spec, stored = self.specs[layer.number]
        rows = self.options.redact_keys
        tensors = rows_tensors(layer, spec, stored) if rows else layer_tensors(layer, spec, self.options)
        self._writers[layer.sequence].write_layer(layer.number, tensors)

    def _publish(self, i: int, tokens: Tensor, capture: Capture) -> Path:
        writer, item = self._writers[i], self.items[i]
        writer.write_tokens(torch.zeros_like(tokens) if self.options.redacted else tokens.to(torch.int64))
        writer.write_rope({} if self.options.redact_keys else capture.tables())
        specs = self._final_specs(capture)
        content = manifest(self.stored, specs, self.options, self.who)
        content["shape"] = shape(self.stored[0], self.options, self._model_layers(), vocabulary(self.model))
        if capture.sums_error is not None:
            content["recorder"]["column_sums"] = estimate_entry(self.options, specs[0].layer, capture.sums_error)
        content["source"] = source_entry(item.source, tokens.tolist(), self.options, self.ends, item.template_sha256)
        return writer.publish(content)

    def _final_specs(self, capture: Capture) -> list[AttentionSpec]:
        """What is known of the layers at the end of the run: residuals, and rotary kinds over its whole length."""
        ropes = {} if self.options.redact_keys else capture.ropes
        return [
            replace(spec, pv_residual=capture.residuals[number], rope=ropes.get(number, spec.rope))
            for number, (_, spec) in self.specs.items()
        ]

    def _model_layers(self) -> int:
        text = self.model.config.get_text_config()
        return max(int(getattr(text, "num_hidden_layers", 0)), self.plans[-1].spec.layer + 1)
