"""`qevict-diag record`: record traces of texts."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from qevict_diag.cli.options import RemoteCode, Revision, Terms, show_terms

if TYPE_CHECKING:
    from qevict_diag.record import Plan
    from qevict_diag.record.options import Continuation
    from qevict_diag.texts.source import Source


def record(
    out: Annotated[Path, typer.Option(help="Folder that gets one trace folder per text.")],
    model: Annotated[str, typer.Option(help="Alias, local folder, .gguf file or hub id.")] = "smollm2-135m",
    text: Annotated[
        list[Path] | None,
        typer.Option(
            help="UTF-8 text, Markdown, JSON lines, a folder of them, or - for stdin; may be repeated. "
            "Default: the built-in articles."
        ),
    ] = None,
    tokens: Annotated[list[Path] | None, typer.Option(help="JSON list of token ids; may be repeated.")] = None,
    field: Annotated[
        str,
        typer.Option(help="Field of the JSON lines that holds the text, or with --chat a conversation; a.b is b in a."),
    ] = "text",
    chat: Annotated[
        bool,
        typer.Option(
            "--chat",
            help="Put each text into the model's chat template, as the user's message: the text is cut to --prefill, "
            "the template is not. JSON lines may hold messages or conversations; a reply at their end is what teacher "
            "goes on with.",
        ),
    ] = False,
    shard: Annotated[str | None, typer.Option(help="Record part i of n of the texts, like 2/8.")] = None,
    skip_short: Annotated[
        bool, typer.Option("--skip-short", help="Leave out texts with too few tokens instead of stopping.")
    ] = False,
    prefill: Annotated[int, typer.Option(help="Prompt length P in tokens.")] = 512,
    decode: Annotated[int, typer.Option(help="Number of decode queries G.")] = 256,
    continuation: Annotated[
        str, typer.Option(help="greedy, sample or teacher (the text's own next tokens).")
    ] = "greedy",
    seed: Annotated[int, typer.Option(help="Seed of --continuation sample.")] = 0,
    temperature: Annotated[float, typer.Option(help="Temperature of --continuation sample.")] = 1.0,
    layers: Annotated[str | None, typer.Option(help="Layers to record, like 0,4,8-11. Default: all.")] = None,
    heads: Annotated[
        str | None,
        typer.Option(
            help="Query heads to record, like 0-3, and the keys they read; policies then see these alone. Default: all."
        ),
    ] = None,
    store_attention: Annotated[
        bool, typer.Option("--store-attention", help="Store the decode rows too (large).")
    ] = False,
    store_dtype: Annotated[
        str | None, typer.Option(help="Store queries, keys, values as fp16 or bf16. Default: as the model ran.")
    ] = None,
    prompt_queries: Annotated[str, typer.Option(help="How many of the last prompt queries to store, or all.")] = "64",
    column_sums: Annotated[
        str, typer.Option(help="exact, fused (CUDA), or probes:10% of the queries at random.")
    ] = "exact",
    batch: Annotated[int, typer.Option(help="How many texts are decoded together.")] = 8,
    chunk: Annotated[int | None, typer.Option(help="Prompt tokens per forward pass. Default: all.")] = None,
    block: Annotated[int, typer.Option(help="MiB that the column sums may take at a time.")] = 32,
    redact_text: Annotated[
        bool,
        typer.Option(
            "--redact-text",
            help="Leave token ids and the text's checksum out. This hides the text from a glance only: the keys of "
            "layer 0 name every token to anyone who has the model.",
        ),
    ] = False,
    redact_keys: Annotated[
        bool,
        typer.Option(
            "--redact-keys",
            help="Leave queries, keys and values out too: attention rows and sums alone. What needs keys is refused "
            "later: the quantized tier (R3, R4, QSA, R_Q) and rankings by norms or the prompt's queries.",
        ),
    ] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "cpu",
    backend: Annotated[
        str | None, typer.Option(help="Attention implementation: sdpa, eager, flash_attention_2.")
    ] = None,
    run_dtype: Annotated[
        str | None, typer.Option(help="Run the model in fp32, fp16 or bf16. Default: its own.")
    ] = None,
    revision: Revision = None,
    trust_remote_code: RemoteCode = False,
    accept_terms: Terms = False,
    resume: Annotated[bool, typer.Option("--resume", help="Keep traces that are there and record the rest.")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Say what it will cost and stop.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
) -> None:
    """Record one uncompressed run of a model per text: what every KV-cache policy is later compared with."""
    from qevict_diag import files
    from qevict_diag.cli.progress import shown
    from qevict_diag.models.load import load, torch_dtype
    from qevict_diag.record import RecordOptions, check, parse_numbers, parse_probes, refuse_full_disk, refuse_none
    from qevict_diag.record import plan as plan_recording
    from qevict_diag.record import record as record_traces
    from qevict_diag.texts.read import shard as part_of

    files.check_folder(out)
    sources = _sources(text or [], tokens or [], field, chat)
    sources = sources if shard is None else part_of(sources, shard)
    options = RecordOptions(
        prefill=prefill,
        decode=decode,
        continuation=cast("Continuation", continuation),  # which it checks
        seed=seed,
        temperature=temperature,
        layers=None if layers is None else parse_numbers(layers, "layers"),
        heads=None if heads is None else parse_numbers(heads, "heads"),
        store_attention=store_attention,
        dtype=None if store_dtype is None else str(torch_dtype(store_dtype)).removeprefix("torch."),
        prompt_queries=_count(prompt_queries),
        probes=None if column_sums == "fused" else parse_probes(column_sums),
        fused=column_sums == "fused",
        batch=batch,
        chunk=chunk,
        block_bytes=block << 20,
        redact_text=redact_text,
        redact_keys=redact_keys,
        chat=chat,
    )
    loaded = load(
        model,
        dtype=run_dtype,
        device=device,
        backend=backend,
        revision=revision,
        trust_remote_code=trust_remote_code,
        accept_terms=show_terms(accept_terms),
    )
    if plan:
        prompts = check(loaded.model, loaded.tokenizer, sources, options, skip_short=skip_short)
        refuse_none(prompts)
        planned = plan_recording(loaded.model, options, len(prompts) - prompts.count(None), out)
        _print_plan(planned, as_json)
        refuse_full_disk(planned, out)
        return
    with shown(quiet) as progress:
        paths = record_traces(
            loaded.model,
            loaded.tokenizer,
            sources,
            options,
            out=out,
            identity=loaded.identity,
            progress=progress,
            resume=resume,
            skip_short=skip_short,
        )
    _report(paths, as_json)


def _sources(texts: list[Path], tokens: list[Path], field: str, chat: bool) -> "list[Source]":
    from qevict_diag.texts.read import read_inputs, read_tokens
    from qevict_diag.texts.source import built_in

    return [*read_inputs(texts, field, chat=chat), *map(read_tokens, tokens)] or list(built_in())


def _count(text: str) -> int:
    """A number of prompt queries; -1 for ``all``."""
    from qevict_diag.errors import InputError

    if text == "all":
        return -1
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise InputError(f"--prompt-queries {text[:40]!r}; give a number or all")
    return int(text)


def _print_plan(plan: "Plan", as_json: bool) -> None:
    from qevict_diag.cli.show import say, say_json

    facts = plan.to_json()
    if as_json:
        say_json(facts)
        return
    for name in ("queries", "keys", "values", "prompt_queries", "sums", "attention"):
        say(f"{name.replace('_', ' '):16} {facts[f'bytes_{name}'] / 1e6:12.2f} MB per trace")
    say(f"{'all traces':16} {plan.bytes_total / 1e6:12.2f} MB for {plan.traces}, {plan.bytes_free / 1e9:.1f} GB free")
    say(f"{'extra work':16} {plan.extra_flops / 1e9:12.2f} GFLOP: column sums, log-sum-exp, stored rows")
    if plan.seconds is not None and plan.extra_seconds is not None:
        say(f"{'time, roughly':16} {plan.seconds:12.0f} s, and {plan.extra_seconds:.0f} s for the extra work")


def _report(paths: list[Path], as_json: bool) -> None:
    from qevict_diag.cli.show import say, say_json
    from qevict_diag.trace.trace import Trace

    rows = [_row(Trace.open(path)) for path in paths]
    if as_json:
        say_json(rows)
        return
    for row in rows:
        share = row["distinct_4grams"]
        loop = "" if share is None else f", {share:.0%} of the continuation's 4-grams distinct"
        end = row["end_of_sequence_step"]
        ended = "" if end is None else f", the model ended its text at step {end}"
        sums = row["column_sums"]
        off = "" if sums is None else f", column sums estimated, {sums['relative_error']:.1%} off"
        say(f"{row['trace']}  {row['prefill']}+{row['decode']} tokens, {row['bytes'] / 1e6:.1f} MB{loop}{ended}{off}")


def _row(trace: Any) -> dict[str, Any]:
    return {
        "trace": str(trace.path),
        "prefill": trace.shape.prefill,
        "decode": trace.shape.decode,
        "bytes": sum(entry.bytes for entry in trace.files.values()),
        "column_sums": trace.entry("recorder").get("column_sums"),
        "distinct_4grams": trace.entry("source").get("distinct_4grams"),
        "end_of_sequence_step": trace.entry("source").get("end_of_sequence_step"),
    }
