"""What to record: the options of a recording, checked when they are made."""

import math
import re
import reprlib
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from qevict_diag.errors import InputError, within

Continuation = Literal["greedy", "sample", "teacher"]
ALL_QUERIES = -1
MAX_LENGTH = 2**31 - 1  # positions that a trace can number


@dataclass(frozen=True)
class RecordOptions:
    """Options of `record`; InputError for a value outside its range.

    ``continuation``: greedy (the paper's), sample (softmax at ``temperature``, seeded) or teacher (the text's own next
    tokens). ``layers``, ``heads``: None for all; heads are query heads, kept with the keys and values that they read.
    ``dtype``: store queries, keys and values as float16 or bfloat16 instead of the model's own. ``prompt_queries``: how
    many of the last prompt queries to store, -1 for all. ``chunk``: prompt tokens per forward pass, None for one pass.
    ``block_bytes``: what the temporary arrays of the column sums may take. ``probes``: None for exact column sums, or
    the share of prompt queries, drawn at random, that estimates them. ``fused``: column sums by the Triton kernels
    (CUDA). ``chat``: put each text into the model's chat template, as a user's message. ``redact_text``: keep the token
    ids and the text's checksum out of the trace, whose keys still name the tokens to anyone with the model;
    ``redact_keys``: keep queries, keys and values out too, and store the decode rows instead.
    """

    prefill: int = 512
    decode: int = 256
    continuation: Continuation = "greedy"
    seed: int = 0
    temperature: float = 1.0
    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None
    store_attention: bool = False
    dtype: str | None = None
    prompt_queries: int = 64
    batch: int = 8
    chunk: int | None = None
    block_bytes: int = 32 << 20
    probes: float | None = None
    fused: bool = False
    redact_text: bool = False
    redact_keys: bool = False
    chat: bool = False

    def __post_init__(self) -> None:
        if self.continuation not in get_args(Continuation):
            raise InputError(f"continuation {self.continuation!r}; allowed are {', '.join(get_args(Continuation))}")
        if self.dtype not in (None, "float32", "float16", "bfloat16"):
            raise InputError(f"stored dtype {self.dtype!r}; allowed are float32, float16 and bfloat16")
        at_least = {"prefill": 1, "decode": 1, "prompt_queries": ALL_QUERIES, "batch": 1, "block_bytes": 1 << 16}
        for name, least in (at_least | ({"chunk": 1} if self.chunk is not None else {})).items():
            if getattr(self, name) < least:
                raise InputError(f"{name} is {getattr(self, name)}; at least {least} is needed")
        for name in ("layers", "heads"):
            chosen = getattr(self, name)
            if chosen is not None and (not chosen or list(chosen) != sorted(set(chosen)) or chosen[0] < 0):
                raise InputError(
                    f"{name} {reprlib.repr(chosen)}: give at least one number from 0 on, in ascending order, each once"
                )
        if not 0 < self.temperature < math.inf:
            raise InputError(f"temperature is {self.temperature}; it must be above 0 (use greedy for 0)")
        if self.temperature != 1 and self.continuation != "sample":
            raise InputError(f"temperature {self.temperature} has no meaning in a {self.continuation} continuation")
        within("seed", self.seed, 0, 2**63 - 1)
        within("prefill and decode together,", self.length, 2, MAX_LENGTH)
        if self.probes is not None and not 0 < self.probes < 1:
            raise InputError(f"probes is {self.probes}; a share between 0 and 1 is needed, or none for exact sums")
        if self.fused and self.probes is not None:
            raise InputError("column sums are either fused or estimated from probes; choose one")
        if self.redact_keys and (self.dtype is not None or self.store_attention):
            raise InputError("redacted keys leave the decode rows alone, in float32; store neither them nor a dtype")

    @property
    def length(self) -> int:
        """T = P + G."""
        return self.prefill + self.decode

    @property
    def redacted(self) -> bool:
        """Whether token ids and the text's checksum stay out of the trace."""
        return self.redact_text or self.redact_keys

    @property
    def prompt_query_positions(self) -> range:
        """Positions of the stored prompt queries; none where keys are redacted."""
        count = self.prefill if self.prompt_queries == ALL_QUERIES else min(self.prompt_queries, self.prefill)
        count = 0 if self.redact_keys else count
        return range(self.prefill - count, self.prefill)


def probe_positions(options: RecordOptions) -> Tensor | None:
    """Ascending positions of the prompt queries that estimate the column sums; None when all of them do."""
    if options.probes is None:
        return None
    count = max(1, round(options.probes * options.prefill))
    generator = torch.Generator().manual_seed(options.seed)
    return torch.randperm(options.prefill, generator=generator)[:count].sort().values


def parse_probes(text: str) -> float | None:
    """The share in ``probes:10%`` or ``probes:0.1``; None for ``exact``."""
    found = re.fullmatch(r"probes:(\d{1,3}(?:\.\d{1,6})?)(%?)", text)
    if text == "exact":
        return None
    if found is None:
        raise InputError(
            f"column sums {text!r}; write exact, or probes:10% for an estimate from a tenth of the queries"
        )
    return float(found[1]) / (100 if found[2] else 1)


def parse_numbers(text: str, what: str) -> tuple[int, ...]:
    """Numbers of ``0,4,8-11``, sorted, each once; ``what`` they count is for the error's words."""
    numbers: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d{1,6})(?:\s*-\s*(\d{1,6}))?\s*", part)
        if found is None or int(found[2] or found[1]) < int(found[1]):
            raise InputError(f"{what} {text!r}: write numbers and ascending ranges like 0,4,8-11")
        numbers.update(range(int(found[1]), int(found[2] or found[1]) + 1))
    return tuple(sorted(numbers))
