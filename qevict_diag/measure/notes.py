"""What to know of numbers before they are read: one prompt twice, nothing kept, nothing lost, unlike denominators."""

from collections.abc import Iterator, Sequence

from qevict_diag.measure.models import model_names
from qevict_diag.policies.policy import Policy
from qevict_diag.replay.plan import make_plan
from qevict_diag.replay.settings import Settings
from qevict_diag.trace.trace import Trace


def notes(traces: Sequence[Trace], policies: Sequence[Policy], settings: Settings) -> Iterator[str]:
    """A sentence for each thing to know of these policies' numbers on these traces."""
    yield from _of_one_prompt(traces)
    yield from _empty(traces, policies, settings)
    yield from _unlike(policies, settings)
    yield from _narrow(traces, settings)


def _of_one_prompt(traces: Sequence[Trace]) -> Iterator[str]:
    """Traces that continue one prompt: other runs, and no independent articles. Redacted ones do not tell."""
    prompts: dict[tuple[str, ...], list[str]] = {}
    for trace, model in zip(traces, model_names(traces), strict=True):
        if trace.entry("source").get("redacted") is not True:
            prompt = map(str, trace.tokens[: trace.shape.prefill].tolist())
            prompts.setdefault((model, *prompt), []).append(trace.name)
    for names in prompts.values():
        if len(names) > 1:
            yield (
                f"{', '.join(names[:4])}{f' and {len(names) - 4} more' if len(names) > 4 else ''} continue one prompt: "
                "intervals take them for independent articles, which they are not"
            )


def _empty(traces: Sequence[Trace], policies: Sequence[Policy], settings: Settings) -> Iterator[str]:
    """Policies whose budget holds not one of their windows."""
    shapes = {trace.layer_shape(layer) for trace in traces for layer in trace.layers}
    for policy in policies:
        if any(make_plan(policy, shape, settings).capacity.kept == 0 for shape in shapes):
            yield (
                f"{policy.name} keeps no window of {policy.grain} tokens at budget {settings.budget.ratio}: sinks and "
                "recent tokens are all it has; raise --budget, or take smaller windows"
            )


def _unlike(policies: Sequence[Policy], settings: Settings) -> Iterator[str]:
    """Policies whose missed mass is a share of different attention, since they set aside other first tokens."""
    own = {one.name: settings.budget.sinks if one.protected.sinks is None else one.protected.sinks for one in policies}
    if len(set(own.values())) > 1 and settings.readings.fmm_denominator in ("existing", "historical"):
        yield (
            f"{', '.join(f'{name} ({sinks})' for name, sinks in own.items())} set aside different numbers of first "
            "tokens, whose attention missed mass leaves out; `compare` and --reading fmm_denominator=sinks count alike"
        )


def _narrow(traces: Sequence[Trace], settings: Settings) -> Iterator[str]:
    """Layers that look back no further than what the budget holds."""
    found: dict[tuple[int, int], set[int]] = {}
    for trace in traces:
        kept = int(settings.budget.ratio * trace.shape.length)
        for layer, spec in trace.specs.items():
            if spec.sliding_window is not None and spec.sliding_window <= kept < trace.shape.length:
                found.setdefault((spec.sliding_window, kept), set()).add(layer)
    for (window, kept), layers in sorted(found.items()):
        yield (
            f"layers {_ranges(sorted(layers))} look back {window} tokens and the budget holds {kept}: nothing that "
            "they see has to go, so a missed mass of 0 there says nothing of a policy"
        )


def _ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers as ``0-4, 6``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
