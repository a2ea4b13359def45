"""An opened trace: the recorded run of one sequence, read layer by layer.

    trace = Trace.open("traces/lighthouse")
    layer = trace.layer(0)          # query [H, G, d], key [KV, T, d], value [KV, T, d_v], prompt_mass [H, P], ...
    layer.attention()               # [H, G, T]

Opening reads the manifest only. A trace is treated as hostile: see `tensor_file`, `manifest` and `laws`, and
docs/trace-format.md for the rules.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from qevict_diag.attention.spec import AttentionSpec
from qevict_diag.errors import MetricError, TraceError
from qevict_diag.files import HIDDEN
from qevict_diag.trace.laws import broken
from qevict_diag.trace.layer import LayerTrace, TraceShape
from qevict_diag.trace.manifest import FORMAT, MANIFEST, VERSION, Reader, checksum, layer_file_name
from qevict_diag.trace.tensor_file import FileEntry, TensorFile, open_beneath, parse_json

if TYPE_CHECKING:
    import polars as pl
    import xarray

MAX_MANIFEST = 16 << 20
_MODEL_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True, eq=False)
class Trace:
    """One recorded sequence. Make it with `Trace.open`."""

    path: Path
    manifest: dict[str, Any]
    shape: TraceShape
    specs: dict[int, AttentionSpec]
    shapes: dict[int, TraceShape]
    files: dict[str, FileEntry]

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Open the trace folder ``path``; TraceError when it is missing, damaged or of an unknown version."""
        folder = Path(path)
        if not folder.is_dir():
            raise TraceError(f"{folder} is no trace folder; give a folder that `qevict-diag record` has written")
        _check_name(folder)
        manifest = parse_json(_read_manifest(folder), str(folder / MANIFEST))
        read = Reader(str(folder / MANIFEST))
        if manifest.get("format") != FORMAT:
            raise read.bad(f"its format is not {FORMAT!r}")
        if type(manifest.get("version")) is not int or manifest["version"] != VERSION:
            raise TraceError(
                f"{folder} is a trace of version {str(manifest.get('version'))[:20]}, this program reads {VERSION}; "
                "use the release that wrote it or record it again"
            )
        if "checksum" in manifest and manifest["checksum"] != checksum(manifest):
            raise read.bad("it was changed after it was written")
        read.facts(manifest)
        shape = read.shape(manifest.get("shape"))
        files = {name: read.file(name, entry) for name, entry in read.mapping(manifest.get("files"), "files").items()}
        return cls(folder, manifest, shape, *_layers(read, manifest, shape, files), files)

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: a process that works in another folder finds this one by its absolute path."""
        return vars(self) | {"path": self.path.absolute()}

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.resolve().name

    def entry(self, name: str) -> dict[str, Any]:
        """An optional object of the manifest (model, source, recorder, software); empty when it is not there."""
        return self.manifest.get(name) or {}

    @property
    def model_id(self) -> str:
        """Which model was recorded, as it was named then."""
        return self.entry("model").get("id") or "unknown"

    @property
    def layers(self) -> tuple[int, ...]:
        """Numbers of the recorded layers, as in the model, ascending."""
        return tuple(self.specs)

    @cached_property
    def tokens(self) -> Tensor:
        """Token ids, int64 [T]: the prompt and the tokens that were decoded; MetricError when they were redacted."""
        if self.entry("source").get("redacted") is True:
            raise MetricError(
                f"{self.path} was recorded with --redact-text or --redact-keys, so its tokens are not there"
            )
        return _of_dtype(self.token_file().read("token_ids"), (torch.int64,), self.path)

    def layer(self, number: int) -> LayerTrace:
        """The recorded layer ``number``; TraceError when it was not recorded, is damaged or breaks a law of `laws`."""
        layer = self._read_layer(self._spec(number))
        wrong = broken(layer)
        if wrong is not None:
            raise TraceError(f"{self.path}: layer {number}: {wrong}; the trace is damaged, record it again")
        return layer

    def _read_layer(self, spec: AttentionSpec) -> LayerTrace:
        file = self.layer_file(spec.layer)
        shared = file if spec.kv_of is None else self.layer_file(spec.kv_of)
        sources = {"query": file, "key": shared, "value": shared}
        tensors = {name: _of_dtype(source.read(name), _MODEL_DTYPES, self.path) for name, source in sources.items()}
        sums = {name: _of_dtype(file.read(name), (torch.float32,), self.path) for name in ("prompt_mass", "lse")}
        positions = tuple(self._prompt_query_positions()) if "prompt_query" in file else ()
        prompt_query = _of_dtype(file.read("prompt_query"), _MODEL_DTYPES, self.path) if positions else None
        cos, sin = self._rope(spec)
        return LayerTrace(
            spec, **tensors, **sums, prompt_query=prompt_query, prompt_query_positions=positions, cos=cos, sin=sin
        )

    def token_file(self) -> TensorFile:
        """The checked file of the token ids."""
        return self._file("tokens.safetensors", {"token_ids": (self.shape.length,)})

    def layer_file(self, number: int) -> TensorFile:
        """The checked file of a recorded layer."""
        file = self._file(layer_file_name(number), self._layer_shapes(number))
        if self._spec(number).kv_of is not None and ("key" in file or "value" in file):
            raise TraceError(f"{self.path}: layer {number} holds keys beside those it shares; record it again")
        return file

    def rope_file(self) -> TensorFile:
        """The checked file of the rotary tables."""
        widths = {spec.rope: spec.rotary_dim for spec in self.specs.values() if spec.rope_style is not None}
        shapes = {
            f"{part}.{name}": (self.shape.length, width) for name, width in widths.items() for part in ("cos", "sin")
        }
        return self._file("rope.safetensors", shapes)

    def to_polars(self, layer: int) -> "pl.DataFrame":
        """Decode attention of one layer as a tidy frame; see `trace_export.attention_frame`."""
        from qevict_diag.trace.export import attention_frame

        return attention_frame(self, layer)

    def to_xarray(self, layers: Sequence[int] | None = None) -> "xarray.Dataset":
        """Decode attention and prompt masses with named axes; see `trace_export.to_xarray`."""
        from qevict_diag.trace.export import to_xarray

        return to_xarray(self, layers)

    def verify(self) -> None:
        """Check every byte and law of the trace; TraceError names the first that fails. See `trace_verify`."""
        from qevict_diag.trace.verify import verify

        verify(self)

    def _file(self, name: str, shapes: Mapping[str, tuple[int, ...]]) -> TensorFile:
        if name not in self.files:
            raise TraceError(f"{self.path} lists no {name}; the trace is incomplete, record it again")
        return TensorFile(self.path, name, self.files[name], shapes)

    def _layer_shapes(self, number: int) -> dict[str, tuple[int, ...]]:
        shape = self.layer_shape(number)
        heads, keys = shape.heads, (shape.kv_heads, shape.length)
        return {
            "query": (heads, shape.decode, shape.head_dim),
            "key": (*keys, shape.head_dim),
            "value": (*keys, shape.value_dim),
            "prompt_mass": (heads, shape.prefill),
            "prompt_query": (heads, len(self._prompt_query_positions()), shape.head_dim),
            "lse": (heads, shape.decode),
            "neg_log_attention": (heads, shape.decode, shape.length),
        }

    def layer_shape(self, number: int) -> TraceShape:
        """The shape of one layer: that of the trace, except for widths and heads that differ (Gemma 4)."""
        return self.shapes[self._spec(number).layer]

    def _spec(self, number: int) -> AttentionSpec:
        if number not in self.specs:
            raise TraceError(f"layer {number} is not in {self.path}; recorded are {', '.join(map(str, self.layers))}")
        return self.specs[number]

    def _prompt_query_positions(self) -> range:
        entry = self.manifest.get("prompt_queries")
        if entry is None:
            return range(0)
        read = Reader(str(self.path / MANIFEST))
        first, count = (read.count(read.mapping(entry, "prompt_queries").get(key), key) for key in ("first", "count"))
        if first + count > self.shape.prefill:
            raise read.bad(f"prompt_queries end at {first + count}, after the prompt's {self.shape.prefill} tokens")
        return range(first, first + count)

    @cached_property
    def _ropes(self) -> TensorFile:
        return self.rope_file()

    def _rope(self, spec: AttentionSpec) -> tuple[Tensor | None, Tensor | None]:
        if spec.rope is None or spec.rope_style is None:
            return None, None
        cos, sin = (
            _of_dtype(self._ropes.read(f"{part}.{spec.rope}"), (torch.float32,), self.path) for part in ("cos", "sin")
        )
        return cos, sin


def _read_manifest(folder: Path) -> bytes:
    if not (folder / MANIFEST).exists():
        raise TraceError(f"{folder} has no {MANIFEST}, so it is no trace or an unfinished one; record it again")
    with os.fdopen(open_beneath(folder, MANIFEST), "rb") as file:
        data = file.read(MAX_MANIFEST + 1)
    if len(data) > MAX_MANIFEST:
        raise TraceError(f"{folder / MANIFEST} has more than {MAX_MANIFEST} bytes; no trace needs that many")
    return data


def _check_name(folder: Path) -> None:
    """A trace is called what its folder is called: rows are told apart by it, so it has to be text, and final."""
    name = folder.resolve().name
    if HIDDEN.fullmatch(name):
        raise TraceError(f"{folder} is what a killed recording left; record it again, or remove it")
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise TraceError(f"the name of {str(folder)!a} is not UTF-8; rename the folder") from None


def _layers(
    read: Reader, manifest: dict[str, Any], shape: TraceShape, files: dict[str, FileEntry]
) -> tuple[dict[int, AttentionSpec], dict[int, TraceShape]]:
    """How each recorded layer attends and its shape, by number, ascending."""
    entries = manifest.get("attention")
    if not isinstance(entries, list) or not 0 < len(entries) <= shape.layers:
        raise read.bad(f"attention does not list between 1 and {shape.layers} layers")
    specs, shapes = {}, {}
    for entry in entries:
        spec = read.spec(entry)
        if spec.layer in specs or spec.layer >= shape.layers:
            raise read.bad(f"layer {spec.layer} is listed twice or is not in a model of {shape.layers} layers")
        specs[spec.layer], shapes[spec.layer] = spec, _layer_shape(read, entry, shape)
        _check_widths(read, spec, shapes[spec.layer])
    _check_file_names(read, specs, files)
    _check_together(read, specs, shapes)
    return dict(sorted(specs.items())), dict(sorted(shapes.items()))


def _check_file_names(read: Reader, specs: dict[int, AttentionSpec], files: dict[str, FileEntry]) -> None:
    """Each layer has a file, and each file is a layer's, the tokens or the tables."""
    layers = set(map(layer_file_name, specs))
    if layers - set(files):
        raise read.bad(f"{min(layers - set(files))} is not listed")
    strangers = set(files) - layers - {"tokens.safetensors", "rope.safetensors"}
    if strangers:
        raise read.bad(f"{min(strangers)} belongs to no layer")


def _check_widths(read: Reader, spec: AttentionSpec, shape: TraceShape) -> None:
    if spec.rotary_start + spec.rotary_dim > shape.head_dim or spec.rotary_dim % 2:
        raise read.bad(f"layer {spec.layer} rotates channels that a head of width {shape.head_dim} does not have")
    if spec.rope_style is not None and (spec.rope is None or spec.rotary_dim == 0):
        raise read.bad(f"layer {spec.layer} has a rotary style without a table")
    if spec.sink_logits is not None and len(spec.sink_logits) != shape.heads:
        raise read.bad(f"layer {spec.layer} has {len(spec.sink_logits)} sink logits for {shape.heads} heads")
    for numbers, heads in ((spec.head_numbers, shape.heads), (spec.kv_head_numbers, shape.kv_heads)):
        if numbers is not None and len(numbers) != heads:
            raise read.bad(f"layer {spec.layer} names {len(numbers)} heads where it has {heads}")


def _check_together(read: Reader, specs: dict[int, AttentionSpec], shapes: dict[int, TraceShape]) -> None:
    """Layers of one shape number their heads alike; keys and values that a layer shares are there, and they fit."""
    numbers: dict[TraceShape, tuple[object, ...]] = {}
    for spec in specs.values():
        own = (spec.head_numbers, spec.kv_head_numbers)
        if numbers.setdefault(shapes[spec.layer], own) != own:
            raise read.bad(f"layer {spec.layer} numbers its heads otherwise than layers of the same shape")
        if spec.kv_of is not None:
            _check_shared(read, spec, specs, shapes)


def _check_shared(
    read: Reader, spec: AttentionSpec, specs: dict[int, AttentionSpec], shapes: dict[int, TraceShape]
) -> None:
    source = specs.get(spec.kv_of) if spec.kv_of is not None else None
    if source is None or source.kv_of is not None:
        raise read.bad(f"layer {spec.layer} shares keys of layer {spec.kv_of}, which has none of its own")
    names = ("kv_heads", "head_dim", "value_dim")
    if any(getattr(shapes[spec.layer], name) != getattr(shapes[source.layer], name) for name in names):
        raise read.bad(f"layer {spec.layer} shares keys of layer {spec.kv_of}, which have other widths")


def _layer_shape(read: Reader, entry: dict[str, Any], shape: TraceShape) -> TraceShape:
    """Optional entries ``heads, kv_heads, head_dim, value_dim`` of a layer override those of the trace."""
    names = ("heads", "kv_heads", "head_dim", "value_dim")
    own = {name: read.count(entry[name], name, 1) for name in names if name in entry}
    layer = replace(shape, **own)
    if layer.heads % layer.kv_heads:
        raise read.bad(f"{layer.heads} query heads do not group on {layer.kv_heads} key-value heads")
    return layer


def _of_dtype(tensor: Tensor, allowed: tuple[torch.dtype, ...], path: Path) -> Tensor:
    if tensor.dtype not in allowed:
        raise TraceError(f"{path} has a tensor of type {tensor.dtype} where {allowed[0]} belongs; record it again")
    return tensor
