"""A bounded slice of `make fuzz`; whatever is done to a trace, the reader answers as before or with a TraceError."""

import fuzz_trace


def test_mutated_traces_are_refused_or_unchanged():
    outcomes = fuzz_trace.fuzz(400, first=1_000_000)
    assert sum(outcomes.values()) == 400
    assert outcomes["refused"] > 280
    assert outcomes.get("same", 0) > 5
