"""The replay on a CUDA device: the same code, the same decisions and measurements as on the CPU."""

import polars as pl
import pytest
import torch

from qevict_diag.cache.budget import Budget
from qevict_diag.measure.traces import measure
from qevict_diag.policies.catalogue import policies
from qevict_diag.replay.loop import replay
from qevict_diag.replay.settings import Settings
from qevict_diag.testing.traces import random_trace

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine"),
]
NAMES = ("R1", "R2", "R3", "R3-one-way", "R3[random]", "R3[persistence]", "R3[irreversible]")


def settings(device: str) -> Settings:
    return Settings(budget=Budget("1/2", sinks=3, recent=6), horizon=8, dtype=torch.float64, device=device)


def test_decisions_on_cuda_are_those_on_the_cpu():
    trace = random_trace(3, layers=2, prefill=60, decode=40)
    for here, there in zip(*(replay(trace, policies(NAMES), settings(d)) for d in ("cpu", "cuda")), strict=True):
        assert torch.equal(here.tier, there.tier.cpu()), here.policy.name


def test_measurements_on_cuda_are_those_on_the_cpu():
    trace = random_trace(4, layers=2, prefill=60, decode=40)
    here, there = (measure([trace], NAMES, settings=settings(d)).frame for d in ("cpu", "cuda"))
    keys = [name for name in here.columns if name not in ("value", "numerator", "denominator")]
    assert here.select(keys).equals(there.select(keys))
    for name in ("value", "numerator", "denominator"):
        gap = (here[name].fill_nan(-1) - there[name].fill_nan(-1)).abs().fill_null(0).max()
        assert gap < 1e-9, name
    assert here.filter(pl.col("metric") == "fmm").height
