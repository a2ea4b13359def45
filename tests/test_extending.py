"""The package that docs/extending.md writes, installed as it stands there: each of its parts is found and works."""

import json
import re
import sys
import tomllib
from pathlib import Path

import polars as pl
import pytest
import torch
from disk_traces import write_trace
from typer.testing import CliRunner

from qevict_diag import plugins
from qevict_diag.cli.app import app
from qevict_diag.figures import tables
from qevict_diag.figures.catalogue import figure_names
from qevict_diag.measure.traces import measure
from qevict_diag.metrics import metric_names
from qevict_diag.policies.catalogue import estimator_names, policy, policy_names
from qevict_diag.quantizers import quantizer_names
from qevict_diag.testing.traces import random_trace

PAGE = (Path(__file__).parent.parent / "docs" / "extending.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
FILES = {found[1]: block for block in BLOCKS if (found := re.match(r"# (kv_extras/\w+\.py)\n", block))}
USES = [block for block in BLOCKS if block not in FILES.values()]
POINTS = tomllib.loads(re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)[1])["project"]["entry-points"]
TRACE = random_trace(prefill=400, decode=96)


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory):
    """Put the package and what an installer writes about it on the path, and take it off again."""
    site = tmp_path_factory.mktemp("site")
    for name, text in {"kv_extras/__init__.py": "", **FILES, **metadata()}.items():
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        plugins.announced.cache_clear()
        yield
    for name in [name for name in sys.modules if name.split(".")[0] == "kv_extras"]:
        del sys.modules[name]
    plugins.announced.cache_clear()


def metadata():
    groups = [f"[{group}]\n" + "\n".join(f"{k} = {v}" for k, v in points.items()) for group, points in POINTS.items()]
    return {
        "kv_extras-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: kv_extras\nVersion: 1\n",
        "kv_extras-1.dist-info/entry_points.txt": "\n".join(groups),
    }


def values(policies, metric):
    """One number for each policy: the mean over the rows of a metric."""
    frame = measure([TRACE], policies, [metric]).frame.filter(pl.col("value").is_not_nan())
    return dict(frame.group_by("policy").agg(pl.col("value").mean()).iter_rows())


LISTED = {
    "qevict_diag.estimators": estimator_names,
    "qevict_diag.policies": policy_names,
    "qevict_diag.quantizers": quantizer_names,
    "qevict_diag.metrics": metric_names,
    "qevict_diag.tables": tables.table_names,
    "qevict_diag.figures": figure_names,
}


def test_what_is_announced_is_listed_and_every_recipe_has_its_file():
    assert set(POINTS) == set(LISTED)
    for group, points in POINTS.items():
        assert set(points) <= set(LISTED[group]())
    named = {target.split(":")[0].replace(".", "/") + ".py" for group in POINTS.values() for target in group.values()}
    assert named == set(FILES)


def test_the_page_uses_each_as_it_says():
    scope = {"trace": TRACE}
    for use in USES:
        exec(compile(use, "extending.md", "exec"), scope)
        assert scope["frame"].height > 0


def test_a_peak_without_fading_never_falls_and_a_faded_one_is_no_higher():
    peak, faded = (policy(f"R3[{name}]").ranking for name in ("peak", "peak:0.5"))
    state, seen = torch.tensor([0.3, 0.1]).double(), Shown(torch.tensor([0.2, 0.8]).double())
    assert peak.update(state, seen).tolist() == pytest.approx([0.3, 0.4])
    assert faded.update(state, seen).tolist() == pytest.approx([0.15, 0.4])


class Shown:
    """An interval of two queries that gave ``mass`` together."""

    positions = (0, 1)

    def __init__(self, mass):
        self.mass = mass

    def total(self):
        return self.mass


def test_a_policy_that_chooses_once_never_changes_its_mind():
    churned = values(["once(window=8)", "R2[decayed:4]"], "churn")
    assert churned["once(window=8)"] == 0 < churned["R2[decayed:4]"]


def test_int8_takes_the_bytes_it_says_and_restores_to_half_a_step():
    quantizer = policy("R3(quantizer=absmax)").quantizer
    window = torch.randn(1, 8, 16, generator=torch.Generator().manual_seed(0))
    codes = quantizer.keys(window)
    assert codes.nbytes + quantizer.values(window).nbytes == quantizer.window_bytes(8, 16, 16)
    assert ((quantizer.restore(codes) - window).abs() <= 0.51 * codes.scale.float()).all()
    agreement = values(["R3", "R3(quantizer=absmax)"], "qsa")
    assert agreement["R3"] < agreement["R3(quantizer=absmax)"] <= 1


def test_the_worst_query_misses_nothing_under_fullkv_and_more_when_less_is_read():
    worst = values(["R0", "R3", "R3-full-only"], "worst")
    assert worst["R0"] == 0 < worst["R3"] < worst["R3-full-only"] < 1


def test_the_command_line_prints_the_table_and_draws_the_figure(tmp_path):
    trace = str(write_trace(tmp_path / "article", prefill=150, decode=40))
    under = [trace, "--sinks", "3", "--recent", "6", "--budget", "1/2", "--quiet"]
    told = CliRunner().invoke(app, ["table", "worst", *under, "--format", "json"])
    assert told.exit_code == 0, told.output
    rows = {row["policy"]: row["worst"] for row in json.loads(told.stdout)["rows"]}
    assert set(rows) == {"R1", "R2", "R3", "R4"}
    assert 0 < rows["R3"] < rows["R2"] == pytest.approx(1, abs=1e-5)
    drawn = CliRunner().invoke(app, ["figure", "worst", *under, "--out", str(tmp_path / "worst.svg")])
    assert drawn.exit_code == 0, drawn.output
    assert "worst query" in (tmp_path / "worst.svg").read_text(encoding="utf-8")
