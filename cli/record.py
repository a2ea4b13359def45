"""`qevict-diag record`: record traces of texts."""

from pathlib import Path
from typing import Annotated

import typer


def record(
    out: Annotated[Path, typer.Option(help="Folder that gets one trace folder per text.")],
    model: Annotated[str, typer.Option(help="Alias, local folder, .gguf file or hub id.")] = "smollm2-135m",
    text: Annotated[
        list[Path] | None, typer.Option(help="UTF-8 text file; may be repeated. Default: the built-in articles.")
    ] = None,
    tokens: Annotated[list[Path] | None, typer.Option(help="JSON list of token ids; may be repeated.")] = None,
    prefill: Annotated[int, typer.Option(help="Prompt length P in tokens.")] = 512,
    decode: Annotated[int, typer.Option(help="Number of decode queries G.")] = 256,
    continuation: Annotated[
        str, typer.Option(help="greedy, sample or teacher (the text's own next tokens).")
    ] = "greedy",
    seed: Annotated[int, typer.Option(help="Seed of --continuation sample.")] = 0,
    layers: Annotated[str | None, typer.Option(help="Layers to record, like 0,4,8-11. Default: all.")] = None,
    store_attention: Annotated[
        bool, typer.Option("--store-attention", help="Store the decode rows too (large).")
    ] = False,
    dtype: Annotated[str | None, typer.Option(help="Store queries, keys, values as fp16 or bf16.")] = None,
    prompt_queries: Annotated[str, typer.Option(help="How many of the last prompt queries to store, or all.")] = "64",
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "cpu",
    backend: Annotated[
        str | None, typer.Option(help="Attention implementation: sdpa, flash_attention_2, ... Default: the model's.")
    ] = None,
    load_dtype: Annotated[
        str | None, typer.Option(help="Run the model in fp32, fp16 or bf16. Default: its own.")
    ] = None,
    accept_terms: Annotated[
        bool, typer.Option("--accept-terms", help="Accept the conditions of use of a built-in model.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
) -> None:
    """Record one uncompressed run of a model per text: what every KV-cache policy is later compared with."""
    from qevict_diag.articles import built_in, read_text, read_tokens
    from qevict_diag.cli.progress import progress_bar
    from qevict_diag.models import load, torch_dtype
    from qevict_diag.record import RecordOptions, parse_layers
    from qevict_diag.record import record as record_traces

    sources = [read_text(path) for path in text or []] + [read_tokens(path) for path in tokens or []]
    options = RecordOptions(
        prefill=prefill,
        decode=decode,
        continuation=continuation,  # type: ignore[arg-type]
        seed=seed,
        layers=None if layers is None else parse_layers(layers),
        store_attention=store_attention,
        dtype=None if dtype is None else str(torch_dtype(dtype)).removeprefix("torch."),
        prompt_queries=parse_count(prompt_queries),
    )
    loaded = load(model, dtype=load_dtype, device=device, backend=backend, accept_terms=_terms(accept_terms))
    with progress_bar("recording", quiet) as progress:
        paths = record_traces(
            loaded.model,
            loaded.tokenizer,
            sources or built_in(),
            options,
            out=out,
            identity=loaded.identity,
            progress=progress,
        )
    _report(paths)


def parse_count(text: str) -> int:
    """A number of prompt queries; -1 for ``all``."""
    from qevict_diag.errors import InputError

    if text == "all":
        return -1
    if not text.isdecimal():
        raise InputError(f"--prompt-queries {text!r}; give a number or all")
    return int(text)


def _terms(accepted: bool):
    def show(terms: str) -> bool:
        typer.echo(terms)
        return accepted

    return show


def _report(paths: list[Path]) -> None:
    from qevict_diag.trace import Trace

    for path in paths:
        trace = Trace.open(path)
        share = trace.entry("source").get("distinct_4grams")
        size = sum(entry.bytes for entry in trace.files.values())
        loop = "" if share is None else f", {share:.0%} of the continuation's 4-grams distinct"
        typer.echo(f"{path}  {trace.shape.prefill}+{trace.shape.decode} tokens, {size / 1e6:.1f} MB{loop}")
