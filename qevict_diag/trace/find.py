"""Find traces by path, and tell apart what counts as an article."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from qevict_diag.errors import InputError, TraceError
from qevict_diag.trace.manifest import MANIFEST
from qevict_diag.trace.trace import Trace


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
    names: dict[tuple, Trace] = {}
    for trace in traces:
        if names.setdefault((trace.name, None if one_length else trace.shape), trace) is not trace:
            raise InputError(
                f"trace name {trace.name} stands twice, once at {trace.path}; give each trace its own name"
            )


def copies(traces: Iterable[Trace]) -> dict[Path, Trace]:
    """Traces that hold the very recording of an earlier one, by path, with that one: they are no further articles."""
    first: dict[tuple, Trace] = {}
    earlier = {trace.path: first.setdefault(_content(trace), trace) for trace in traces}
    return {path: one for path, one in earlier.items() if one.path != path}


def _content(trace: Trace) -> tuple:
    return tuple(sorted((name, file.sha256) for name, file in trace.files.items()))


def _expanded(path: Path) -> Iterator[Path]:
    inside = sorted(manifest.parent for manifest in path.glob(f"*/{MANIFEST}")) if path.is_dir() else []
    if (path / MANIFEST).exists() or not inside:
        yield path
    else:
        yield from (folder for folder in inside if not folder.name.startswith("."))
