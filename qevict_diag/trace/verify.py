"""Verify a trace: every byte against its checksum, every tensor against the laws of attention.

Checked are the names of the files and the SHA-256 of each; by reading, CRC-32, shapes and dtypes; the tokens against
the vocabulary; and for every layer all that `laws` has to say.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from qevict_diag.errors import TraceError
from qevict_diag.trace.laws import broken_in_full, rows_differ
from qevict_diag.trace.manifest import MANIFEST, layer_file_name
from qevict_diag.trace.tensor_file import TensorFile

if TYPE_CHECKING:
    from qevict_diag.trace.trace import Trace


def verify(trace: "Trace") -> None:
    """Check everything about ``trace``; TraceError names the first thing that is wrong."""
    _check_files(trace)
    _check_tokens(trace)
    for number in trace.layers:
        _check_layer(trace, number)


def _check_files(trace: "Trace") -> None:
    present = {path.name for path in Path(trace.path).iterdir()} - {MANIFEST}
    if present != set(trace.files):
        raise _wrong(
            trace, f"the folder and its manifest disagree about {', '.join(sorted(present ^ set(trace.files)))[:200]}"
        )
    for name, file in _opened(trace):
        if file.sha256() != trace.files[name].sha256:
            raise _wrong(trace, f"{name} has another SHA-256 than its manifest says")


def _opened(trace: "Trace") -> Iterator[tuple[str, TensorFile]]:
    yield "tokens.safetensors", trace.token_file()
    if "rope.safetensors" in trace.files:
        yield "rope.safetensors", trace.rope_file()
    for number in trace.layers:
        yield layer_file_name(number), trace.layer_file(number)


def _check_tokens(trace: "Trace") -> None:
    if trace.entry("source").get("redacted") is True:
        return
    tokens = trace.tokens
    if int(tokens.min()) < 0 or int(tokens.max()) >= trace.shape.vocab:
        raise _wrong(trace, f"a token id lies outside the vocabulary of {trace.shape.vocab}")


def _check_layer(trace: "Trace", number: int) -> None:
    layer, file = trace.layer(number), trace.layer_file(number)
    exact_sums = trace.entry("recorder").get("column_sums") is None
    wrong = broken_in_full(layer, exact_sums=exact_sums)
    if wrong is None and "neg_log_attention" in file:
        wrong = rows_differ(layer, file.read("neg_log_attention"))
    if wrong is not None:
        raise _wrong(trace, f"layer {number}: {wrong}")


def _wrong(trace: "Trace", what: str) -> TraceError:
    return TraceError(f"{trace.path}: {what}; the trace is damaged, record it again")
