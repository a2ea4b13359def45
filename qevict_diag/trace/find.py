"""Find traces by path, and tell apart what counts as an article."""

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from qevict_diag.errors import InputError, TraceError
from qevict_diag.trace.layer import Recorded
from qevict_diag.trace.manifest import MANIFEST
from qevict_diag.trace.trace import Trace

AnyTrace = TypeVar("AnyTrace", bound=Recorded)


def find_traces(paths: Iterable[Path]) -> list[Trace]:
    """Open trace folders; a folder that is no trace itself stands for the traces in it, but for hidden ones.

    TraceError when there is none at all, or one of them is damaged.
    """
    found = [folder for path in paths for folder in _expanded(path)]
    if not found:
        raise TraceError("no trace given; name trace folders, or a folder of traces as written by `record --out`")
    return [Trace.open(path) for path in found]


def check_names(traces: Sequence[Trace], *, one_length: bool = True) -> None:
    """Refuse two traces of one name (InputError): rows are told apart by it, so they would count as one article.

    Unless they are of ``one_length``, traces of different lengths may have one name: they are never measured together.
    """
    names: dict[tuple[object, ...], Trace] = {}
    for trace in traces:
        if names.setdefault((trace.name, None if one_length else trace.shape), trace) is not trace:
            raise InputError(
                f"trace name {trace.name} stands twice, once at {trace.path}; give each trace its own name"
            )


def copies(traces: Iterable[Trace]) -> dict[Path, Trace]:
    """Traces that hold the recording of an earlier one, by path, with that one: they are no further articles.

    Two traces are one recording when they are runs of one model over the same text under the same options, or over the
    same tokens, or hold the same numbers.
    """
    first: dict[str, Trace] = {}
    found: dict[Path, Trace] = {}
    for trace in traces:
        keys = list(_keys(trace))
        same = next((first[key] for key in keys if key in first), trace)
        first.update({key: same for key in keys if key not in first})
        if same.path != trace.path:
            found[trace.path] = same
    return found


def left_out(same: Mapping[Path, Trace]) -> list[str]:
    """What is said of `copies`, a line for every recording that has some."""
    by: dict[Path, list[Path]] = {}
    for path, other in same.items():
        by.setdefault(other.path, []).append(path)
    return [
        f"left out: {paths[0]} holds the same recording as {other}, so it is no further article"
        if len(paths) == 1
        else f"left out: {paths[0]} and {len(paths) - 1} more hold the same recording as {other}, so they are no "
        "further articles"
        for other, paths in by.items()
    ]


def articles(traces: Sequence[AnyTrace]) -> list[AnyTrace]:
    """The traces without `copies`, which a warning names; one in memory does not tell its text and is no copy."""
    same = copies(trace for trace in traces if isinstance(trace, Trace))
    for told in left_out(same):
        warnings.warn(told, stacklevel=3)
    return [trace for trace in traces if not (isinstance(trace, Trace) and trace.path in same)]


def _keys(trace: Trace) -> Iterator[str]:
    """What makes two traces one recording; checksums of files stand for what they hold."""
    source, model, options = trace.entry("source"), trace.entry("model"), trace.entry("recorder").get("options")
    weights, text = model.get("weights_sha256") or model.get("state_sha256"), source.get("text_sha256")
    heads = {layer: spec.head_numbers for layer, spec in trace.specs.items()}
    run = (weights or trace.model_id, model.get("dtype"), heads, trace.shape.prefill)
    if text is not None and "tokens.safetensors" in trace.files:
        yield json.dumps(["tokens", run, trace.files["tokens.safetensors"].sha256])
    if None not in (weights, text):  # a model of unknown weights may have been another one
        yield json.dumps(["text", run, text, source.get("chat_template_sha256"), options])
    yield json.dumps(["numbers", *(e.sha256 for name, e in sorted(trace.files.items()) if name.startswith("layer_"))])


def _expanded(path: Path) -> Iterator[Path]:
    inside = sorted(manifest.parent for manifest in path.glob(f"*/{MANIFEST}")) if path.is_dir() else []
    if (path / MANIFEST).exists() or not inside:
        yield path
    else:
        yield from (folder for folder in inside if not folder.name.startswith("."))
