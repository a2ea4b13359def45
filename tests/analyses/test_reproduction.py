"""The whole path on a tiny model: traces are recorded once, everything is written, a wrong trace is refused."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import polars as pl
import pytest
import tiny_models
import torch
from typer.testing import CliRunner

from qevict_diag.analyses import reproduction as recorded
from qevict_diag.analyses.needs import RANKINGS
from qevict_diag.analyses.reproduction import Request, Setting
from qevict_diag.cli.app import app
from qevict_diag.errors import InputError
from qevict_diag.figures import figure1, tables
from qevict_diag.figures.report import write as reproduction
from qevict_diag.measure.traces import Measurements
from qevict_diag.models import load as models
from qevict_diag.texts.source import Source, built_in

pytestmark = tiny_models.transformers_noise

EARLY = Setting(160, 96, ((figure1.POLICIES, ("all", *recorded.BESIDE)), (("R3[random]",), RANKINGS.metrics)))
LATE = Setting(128, 128, recorded.PROMOTION.measured)
JUDGED = (
    Setting(160, 96, ((figure1.POLICIES, ("all",)),), "teacher"),
    Setting(128, 128, recorded.JUDGED[1].measured, "teacher"),
)
SETTINGS = {"diagnostic": EARLY, "promotion": LATE, "judged": JUDGED}


def source(name, seed):
    ids = torch.randint(3, 128, (EARLY.prefill + EARLY.decode,), generator=torch.Generator().manual_seed(seed))
    return Source(name, tokens=tuple(ids.tolist()))


@pytest.fixture(scope="module")
def request_(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduction")
    tiny_models.build("llama").save_pretrained(folder / "tiny")
    texts = (source("one", 1), source("two", 2))
    return Request(folder / "out", str(folder / "tiny"), sources=texts, **SETTINGS)


@pytest.fixture(scope="module")
def made(request_):
    told = []
    found = reproduction.reproduce(request_, lambda stage, done, total: told.append((stage, done, total)))
    return found, told


def test_everything_is_written(made, request_):
    names = {file.name for file in made[0].files}
    assert {"figure1.pdf", "layers.png", "layers.svg", "measurements.parquet", "index.html", "claims.md"} <= names
    for number in tables.TABLES:
        name = f"table{number}" if number[0].isdigit() else number
        assert {f"{name}.{ending}" for ending in ("md", "csv", "html", "tex", "json")} <= names
    assert all(file.stat().st_size > 0 for file in made[0].files)
    assert not [path for path in request_.out.iterdir() if path.name.startswith(".")]


def test_all_twelve_claims_have_a_verdict(made, request_):
    claims = json.loads((request_.out / "claims.json").read_text(encoding="utf-8"))["rows"]
    assert len(claims) == 12
    assert {claim["verdict"] for claim in claims} <= {"holds", "does not hold", "no difference", "undecided"}
    assert json.loads(reproduction.as_json_text(made[0]))["claims"] == claims


def test_the_measurements_are_those_behind_the_tables(request_):
    frame = pl.read_parquet(request_.out / "measurements.parquet")
    shown = pl.read_csv(request_.out / "table14.csv")
    fmm = frame.filter(metric="fmm", policy="R3")["value"].drop_nans().mean()
    assert shown.filter(policy="R3")["fmm"][0] == pytest.approx(fmm)


def test_progress_reaches_the_end_of_every_stage(made):
    last = {stage: (done, total) for stage, done, total in made[1]}
    assert [stage.split()[0] for stage in last] == [
        "loading",
        *["recording"] * 4,
        *["replaying"] * 7,
        "writing",
    ]
    assert all(done == total for done, total in last.values())


@pytest.mark.parametrize(("share", "warned"), [(0.03, True), (0.9, False), (None, False)])
def test_a_model_that_loops_is_told(share, warned):
    trace = SimpleNamespace(manifest={"source": {"distinct_4grams": share}})
    assert bool(recorded.loops({"512+256": [trace]})) is warned


def test_traces_that_are_there_are_used_again(made, request_, monkeypatch):
    monkeypatch.setattr(models, "load", lambda *args, **options: pytest.fail("the model was loaded again"))
    traces = recorded.record_missing(request_, lambda *stage: None)
    assert [trace.name for trace in traces[EARLY]] == ["one", "two"]


def test_settings_that_share_traces_record_each_once(request_, tmp_path):
    """With the texts' own words, what is shown and what is judged are the same recordings."""
    teacher = replace(request_, out=tmp_path / "out", continuation="teacher")
    traces = recorded.record_missing(teacher, lambda *stage: None)
    assert [trace.path for trace in traces[EARLY]] == [trace.path for trace in traces[JUDGED[0]]]


def test_a_trace_of_another_text_is_refused(made, request_):
    changed = replace(request_, sources=(source("one", 3), source("two", 2)))
    with pytest.raises(InputError, match="give another --out or move that trace away"):
        recorded.record_missing(changed, lambda *stage: None)


def found_again(request):
    """What a reproduction has measured, from the files that it has written."""

    def measured(rows, used):
        return Measurements(*(pl.read_parquet(request.out / f"{name}.parquet") for name in (rows, used)))

    early, late = measured("measurements", "bytes"), measured("measurements-128+128", "bytes-128+128")
    judged = {setting: measured(f"verdicts-{setting.lengths}", "bytes") for setting in request.judged}
    traces = recorded.record_missing(request, lambda *stage: None)
    apart = {name: measured(f"measurements-{name}", f"bytes-{name}") for name in ("same-bytes", "sets")}
    compared = pl.read_parquet(request.out / "readings.parquet")
    return reproduction.Found(traces, {request.diagnostic: early, request.promotion: late, **judged}, apart, compared)


def test_a_reproduction_that_fails_while_it_writes_leaves_the_earlier_one_whole(made, request_, monkeypatch):
    """The page is written last: tables of the new run beside a page of the old one would contradict each other."""
    before, found = {file: file.read_bytes() for file in made[0].files}, found_again(request_)
    other = replace(request_, settings=replace(request_.settings, min_inactive=2))
    with monkeypatch.context() as patched:
        patched.setattr(reproduction.page, "page", lambda report: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            reproduction.write(other, found, lambda *stage: None)
    assert {file: file.read_bytes() for file in made[0].files} == before
    reproduction.write(other, found, lambda *stage: None)
    page = made[0].files[-1]
    assert page.name == "index.html"
    assert page.read_bytes() != before[page]
    reproduction.write(request_, found, lambda *stage: None)
    assert page.read_bytes() == before[page]


def command(*words):
    return CliRunner().invoke(app, list(map(str, words)))


def test_the_figure_command(made, request_, tmp_path):
    folder = request_.folder(EARLY)
    done = command("figure", "1", folder, "--out", tmp_path / "f.svg", "--budget", "1/4", "--quiet", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["file"] == str(tmp_path / "f.svg")
    assert (tmp_path / "f.svg").read_text(encoding="utf-8").count("<svg") == 1


def test_the_table_command(made, request_, tmp_path):
    folder = request_.folder(LATE)
    done = command("table", "18", folder, "--format", "csv", "--out", tmp_path / "t.csv", "--quiet")
    assert done.exit_code == 0, done.output
    shown = command("table", "18", folder / "one", "--quiet")
    assert shown.stdout.startswith("**Table 18.")
    assert "one article gives no interval" in shown.stdout
    assert pl.read_csv(tmp_path / "t.csv")["quantity"].to_list()[0] == "fmm"


def test_another_reading_stands_in_the_table(made, request_):
    words = ("--reading", "churn_set=full", "--format", "json", "--quiet")
    done = command("table", "14", request_.folder(EARLY), *words)
    assert {row["reading"] for row in json.loads(done.stdout)["rows"]} == {"churn_set=full"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("figure", "2", ".", "--out", "f.png"), "figure '2': there are 1, layers, returns"),
        (("figure", "1", ".", "--out", "f.gif"), "must be one of .pdf"),
        (("table", "13", "."), "there are 14"),
        (("table", "14", ".", "--format", "xls"), "allowed are md"),
    ],
)
def test_bad_requests_are_told_before_any_work(words, told):
    done = command(*words)
    assert isinstance(done.exception, InputError)
    assert told in str(done.exception)


def test_two_traces_of_one_name_are_refused(made, request_):
    done = command("table", "14", request_.folder(EARLY) / "one", request_.folder(LATE) / "one", "--quiet")
    assert isinstance(done.exception, InputError)
    assert "trace name one stands twice" in str(done.exception)


def test_reproduce_asks_for_what_it_was_told(monkeypatch, tmp_path, made):
    asked = []
    monkeypatch.setattr(reproduction, "reproduce", lambda request, progress: asked.append(request) or made[0])
    done = command("reproduce", "--out", tmp_path, "--continuation", "teacher", "--quiet")
    assert done.exit_code == 0, done.output
    assert (asked[0].continuation, asked[0].out) == ("teacher", tmp_path)
    assert asked[0].sources == built_in()
    assert "III-b" in done.stdout
    assert re.search(r"FMM\(R1\) - FMM\(R2\) = [-\d.e]+ \[[-\d.e]+, [-\d.e]+\]\n", done.stdout)
    assert "n = 2" in done.stdout
    assert "index.html" in done.stdout
