"""What other programs rely on: names, columns and the command line. A change here is a change for users."""

import importlib
import inspect

import pytest

from qevict_diag import frames
from qevict_diag.cli import COMMANDS

PUBLIC = {
    "qevict_diag.trace.trace": ("Trace",),
    "qevict_diag.record": ("RecordOptions", "record"),
    "qevict_diag.models.load": ("load",),
    "qevict_diag.policies.catalogue": ("POLICIES", "estimator", "policies", "policy"),
    "qevict_diag.policies.ranking": ("Estimator", "Foresight"),
    "qevict_diag.readings": ("READINGS", "Readings"),
    "qevict_diag.cache.budget": ("Budget", "capacity"),
    "qevict_diag.replay.loop": ("replay_blocks",),
    "qevict_diag.metrics": ("METRICS",),
    "qevict_diag.measure.traces": ("Measurements", "measure"),
    "qevict_diag.quantizers": ("QUANTIZERS", "quantizer"),
    "qevict_diag.statistics.intervals": (
        "Interval",
        "Statistic",
        "holm",
        "over_articles",
        "wilson",
    ),
    "qevict_diag.statistics.power": ("more_articles", "needed"),
    "qevict_diag.analyses.observation1": ("churn", "fmm", "series"),
    "qevict_diag.analyses.observation2": ("agreement", "mass_shares"),
    "qevict_diag.analyses.observation3": ("lir", "transitions"),
    "qevict_diag.analyses.promotion": ("compare",),
    "qevict_diag.analyses.importance": ("compare",),
    "qevict_diag.analyses.claims.evaluate": ("evaluate",),
    "qevict_diag.analyses.claims.verdicts": ("standing", "summary"),
    "qevict_diag.figures.figure1": ("plot_figure1", "plot_fmm", "plot_mass_shares"),
    "qevict_diag.figures.catalogue": ("FIGURES", "figure"),
    "qevict_diag.figures.figure": ("Figure",),
    "qevict_diag.figures.sweep": ("SWEEP_FIGURES",),
    "qevict_diag.figures.tables": ("TABLES", "build", "table"),
    "qevict_diag.figures.tables.sheet": ("Column", "Sheet"),
    "qevict_diag.figures.tables.table": ("Table",),
    "qevict_diag.figures.tables.formats": ("FORMATS", "render"),
}
MEASUREMENTS = (
    "trace model policy base estimator seed budget window quantized_fraction bits horizon prefill decode "
    "metric reading layer head event step group lag value numerator denominator"
)
DECISIONS = "trace policy base estimator seed layer event window tier"
NAMED = (
    "record inspect verify replay analyze figure table reproduce budget policies metrics quantizers tables figures "
    "readings"
)


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in PUBLIC.items() for name in names])
def test_public_names_are_there_and_documented(module, name):
    thing = getattr(importlib.import_module(module), name)
    if inspect.isfunction(thing) or inspect.isclass(thing):
        assert inspect.getdoc(thing)


@pytest.mark.parametrize("module", PUBLIC)
def test_public_functions_state_their_types(module):
    for name in PUBLIC[module]:
        thing = getattr(importlib.import_module(module), name)
        if inspect.isfunction(thing):
            assert "return" in thing.__annotations__, f"{module}.{name}"


def test_tidy_frames_keep_their_columns():
    assert list(frames.MEASUREMENTS) == MEASUREMENTS.split()
    assert list(frames.DECISIONS) == DECISIONS.split()


def test_every_command_is_wired_up_and_says_what_it_does():
    assert set(NAMED.split()) <= set(COMMANDS)
    assert all(inspect.getdoc(command) for command in COMMANDS.values())
