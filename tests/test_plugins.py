"""Packages that announce rankings, policies and metrics: a broken one stops what asks for it, and none takes over."""

import json
from dataclasses import dataclass
from importlib.metadata import EntryPoint

import pytest
import torch
from typer.testing import CliRunner

from qevict_diag import plugins
from qevict_diag.cache.budget import Budget
from qevict_diag.cli.app import app
from qevict_diag.errors import InputError
from qevict_diag.figures.catalogue import FIGURE_POINTS, figure
from qevict_diag.figures.tables import TABLE_POINTS, table
from qevict_diag.measure.traces import measure
from qevict_diag.metrics import METRIC_POINTS, metric
from qevict_diag.policies.catalogue import ESTIMATOR_POINTS, POLICY_POINTS, policy
from qevict_diag.policies.ranking import Estimator, Foresight, Split
from qevict_diag.quantizers import QUANTIZER_POINTS
from qevict_diag.replay.settings import Settings
from qevict_diag.testing.traces import random_trace

TRACE = random_trace(prefill=60, decode=32)
SETTINGS = Settings(Budget("1/2", sinks=3, recent=6), horizon=8)


@pytest.fixture
def announce(monkeypatch):
    """Install packages that announce these ``(group, name, target)``."""

    def install(*announced):
        points = [EntryPoint(name, target, group) for group, name, target in announced]
        monkeypatch.setattr(plugins, "entry_points", lambda group: [one for one in points if one.group == group])
        plugins.announced.cache_clear()
        plugins.contested.cache_clear()

    yield install
    plugins.announced.cache_clear()
    plugins.contested.cache_clear()


def ranked_by(name):
    return measure([TRACE], [f"R2[{name}]"], ["fmm"], SETTINGS).frame


@dataclass(frozen=True)
class Wrong(Estimator):
    """A ranking whose scores are spoilt by ``spoil``."""

    def init(self, prompt):
        return prompt.mass

    def update(self, state, seen):
        return state

    def score(self, state):
        return self.spoil(state)


def _estimator(spoil):
    return dataclass(frozen=True)(type("Spoilt", (Wrong,), {"spoil": staticmethod(spoil), "__annotations__": {}}))


Nan = _estimator(lambda score: torch.where(torch.arange(score.shape[-1]) == 2, float("nan"), score))
OneForAll = _estimator(lambda score: score[..., :1])
OneLayer = _estimator(lambda score: score[0])
Longer = _estimator(lambda score: torch.cat((score, score), -1))
NoTensor = _estimator(lambda score: score.tolist())


@dataclass(frozen=True)
class FewEvents(Foresight):
    """Scores of one event, for all."""

    def scores(self, future):
        return future.gain[:, :, :1]


@dataclass(frozen=True)
class NoTiers(Split):
    """Tiers of one window, for all."""

    def tiers(self, future, capacity):
        return torch.zeros((*future.gain.shape[:3], 1), dtype=torch.uint8)


WRONG = {
    "Nan": "gave scores that are not numbers",
    "OneForAll": r"gave scores of shape \[2, 1, 1\]; shape \[2, 1, \d+\] is needed",
    "OneLayer": "gave scores of shape",
    "Longer": "gave scores of shape",
    "NoTensor": "gave scores of type list",
    "FewEvents": r"FewEvents gave scores of shape \[2, 1, 1, \d+\]",
    "NoTiers": "NoTiers gave scores of shape",
}


@pytest.mark.parametrize(("target", "told"), WRONG.items())
def test_a_ranking_that_gives_no_number_for_each_window_is_refused(announce, target, told):
    announce((ESTIMATOR_POINTS, "mine", f"{__name__}:{target}"))
    with pytest.raises(InputError, match=told):
        ranked_by("mine")


def test_no_package_replaces_what_is_built_in(announce):
    announce(
        (ESTIMATOR_POINTS, "cumulative", f"{__name__}:Nan"),
        (ESTIMATOR_POINTS, "random", f"{__name__}:Nan"),
        (POLICY_POINTS, "R3", f"{__name__}:Nan"),
        (METRIC_POINTS, "fmm", f"{__name__}:Nan"),
        (QUANTIZER_POINTS, "minmax", f"{__name__}:Nan"),
        (TABLE_POINTS, "14", f"{__name__}:Nan"),
        (FIGURE_POINTS, "1", f"{__name__}:Nan"),
    )
    asked = [
        lambda name=name: policy(name) for name in ("R2[cumulative]", "R2[random:1]", "R3", "R3(quantizer=minmax)")
    ]
    for ask in (*asked, lambda: metric("fmm"), lambda: table("14"), lambda: figure("1")):
        with pytest.raises(InputError, match=r"is built in, and .* claims its name; uninstall or rename that one"):
            ask()


def test_two_packages_that_announce_one_name_have_it_neither(announce):
    announce((ESTIMATOR_POINTS, "mine", f"{__name__}:Nan"), (ESTIMATOR_POINTS, "mine", f"{__name__}:Longer"))
    with pytest.raises(InputError, match="'mine' is announced by several packages"):
        policy("R2[mine]")
    announce(*[(ESTIMATOR_POINTS, "mine", f"{__name__}:Nan")] * 2)  # one package, found on two paths
    assert type(policy("R2[mine]").ranking) is Nan


def nothing():
    """Makes no policy."""


BROKEN = {
    "no.such.module:X": "ModuleNotFoundError: No module named 'no'",
    f"{__name__}:Missing": "AttributeError",
    f"{__name__}:TRACE": "is no estimator",
    f"{__name__}:ranked_by": "is no estimator",
    f"{__name__}:nothing": "is no estimator",
    f"{__name__}:Estimator": "cannot|is no estimator",
}


LISTED = {  # a name that is built in, and how often the command lists `mine`
    "policies": ("R3[decayed]", 2),
    "metrics": ("fmm", 1),
    "quantizers": ("minmax", 1),
    "tables": ("14", 1),
    "figures": ("1", 1),
}


@pytest.mark.parametrize(("target", "told"), BROKEN.items(), ids=BROKEN)
def test_a_broken_package_stops_only_what_asks_for_it(announce, target, told):
    groups = (ESTIMATOR_POINTS, POLICY_POINTS, QUANTIZER_POINTS, METRIC_POINTS, TABLE_POINTS, FIGURE_POINTS)
    announce(*((group, "mine", target) for group in groups))
    assert ranked_by("decayed").height > 0
    with pytest.raises(InputError, match=f"estimator 'mine': .*({told})"):
        policy("R2[mine]")
    for command, (first, count) in LISTED.items():
        done = CliRunner().invoke(app, [command, "--json"])
        assert done.exit_code == 0, done.output
        rows = {row["name"]: row["summary"] for row in json.loads(done.stdout)}
        assert first in rows
        told = [text for name, text in rows.items() if "mine" in name]
        assert all("repair or uninstall it" in text for text in told)
        assert len(told) == count
