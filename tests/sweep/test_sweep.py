"""A sweep is the full grid, each part computed once, and what it says is what `measure` says."""

import json
import os
import shutil
from dataclasses import replace

import polars as pl
import pytest
from disk_traces import SMALL, contents, small_sweep, write_trace, write_traces
from polars.testing import assert_frame_equal

from qevict_diag.errors import BudgetError, InputError, QEvictError, SweepError
from qevict_diag.frames import MEASUREMENTS
from qevict_diag.measure.traces import measure
from qevict_diag.policies.catalogue import policies
from qevict_diag.policies.estimators.random import RandomRanking
from qevict_diag.sweep import Sweep, SweepFolder, misfits, plan, read, run, tasks
from qevict_diag.sweep.compute import compute
from qevict_diag.sweep.folder import SWEPT
from qevict_diag.sweep.grid import Options
from qevict_diag.trace.manifest import checksum
from qevict_diag.trace.trace import Trace


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    return write_traces(tmp_path_factory.mktemp("traces"))


@pytest.fixture(scope="module")
def swept(traces, tmp_path_factory):
    folder = tmp_path_factory.mktemp("swept")
    run(small_sweep(traces), folder)
    return folder


@pytest.fixture
def copied(swept, tmp_path):
    return shutil.copytree(swept, tmp_path / "copied")


def opened(sweep):
    return [Trace.open(path) for path in sweep.traces]


def measured_alone(sweep):
    """R3 with windows of 4 tokens at half the bytes, by way of `measure`."""
    setting = next(s for s in sweep.settings() if (str(s.budget), s.window, s.bits) == ("1/2", 4, 2))
    return measure(opened(sweep), policies(("R3",), window=4), SMALL.metrics, setting.settings(SMALL))


def test_the_grid_multiplies_an_axis_only_where_it_matters(traces):
    sweep = small_sweep(
        traces,
        policies=("R1", "R2", "R3", "R4"),
        quantized_fractions=("1/4", "1/2"),
        bits=(2, 4),
        readings=("", "admission=forced"),
    )
    count = {name: sum(name in setting.policies for setting in sweep.settings()) for name in ("R1", "R2", "R3", "R4")}
    readings, budgets, windows, fractions, bits = 2, 2, 2, 2, 2
    assert count == {
        "R1": readings * budgets,  # Ω = 1 is what R1 is
        "R2": readings * budgets * windows,  # two tiers have no quantized fraction and no bits
        "R3": readings * budgets * windows * fractions * bits,
        "R4": readings * budgets * fractions * bits,
    }
    assert len(set(sweep.settings())) == len(sweep.settings())


def test_windows_default_to_each_policys_own():
    sweep = Sweep(("t",), policies=("R1", "R2", "R3", "R4"))
    assert [(setting.policies[0], setting.window) for setting in sweep.settings()] == [
        ("R1", 1),
        ("R2", 8),
        ("R3", 8),
        ("R4", 32),
    ]


@pytest.mark.parametrize("metrics", [("fmm",), ("fmm", "churn"), ("all",)])
def test_chance_is_measured_wherever_missed_mass_is_and_nothing_random_replayed(metrics):
    sweep = Sweep(("t",), options=Options(metrics))
    assert {"fmm", "chance"} <= set(sweep.options.metrics)
    assert all(arm.seed is None for setting in sweep.settings() for arm in setting.arms())
    assert "chance" not in Options(("churn",)).metrics


def test_a_random_policy_that_is_asked_for_is_drawn_as_often_as_told(traces):
    asked = small_sweep(traces, policies=("R3", "R3[random]", "R3[random:7]"), draws=2).settings()[0].arms()
    assert [arm.ranking for arm in asked[1:]] == [RandomRanking(0), RandomRanking(1), RandomRanking(7)]
    assert [arm.name for arm in asked] == ["R3", "R3[random]", "R3[random]", "R3[random:7]"]


@pytest.mark.parametrize(
    ("choices", "told"),
    [
        ({"policies": ()}, "without policies"),
        ({"policies": ("R9",)}, "R9"),
        ({"budgets": ("2",)}, "budget 2"),
        ({"budgets": ("a fifth",)}, "a fifth"),
        ({"bits": (3,)}, "bits 3"),
        ({"quantized_fractions": ("3/2",)}, "quantized fraction 3/2"),
        ({"readings": ("scope=token",)}, "scope=token"),
        ({"draws": 0}, "draws 0"),
        ({"layers_per_task": 0}, "layers per task 0"),
        ({"windows": (0,)}, "window 0"),
        ({"traces": ()}, "without traces"),
    ],
)
def test_what_does_not_exist_is_refused_before_any_trace_is_opened(choices, told):
    with pytest.raises(InputError, match=told):
        Sweep(**{"traces": ("nowhere",), **choices}).settings()[0].arms()


def test_values_are_read_exactly_and_counted_once():
    sweep = Sweep(("t",), budgets=("0.2", "1/5", "20%"), readings=("", "admission=compete"), bits=(2, 2))
    assert (len(sweep.budgets), sweep.readings, sweep.bits) == (1, ("",), (2,))


def test_a_part_is_named_by_everything_it_depends_on(traces):
    sweep = small_sweep(traces)
    names = [task.name for task in tasks(sweep, opened(sweep))]
    assert len(set(names)) == len(names) == 2 * 2 * 8  # traces, layers, settings
    for other in (
        {"options": replace(SMALL, horizon=7)},
        {"options": replace(SMALL, metrics=("lir",))},
        {"draws": 2},
        {"layers_per_task": 2},
    ):
        changed = small_sweep(traces, **other)
        assert not set(names) & {task.name for task in tasks(changed, opened(changed))}


def test_a_part_keeps_its_name_when_its_trace_moves(traces, tmp_path):
    sweep = small_sweep(traces)
    moved = small_sweep(write_traces(tmp_path / "elsewhere"))
    assert [t.name for t in tasks(sweep, opened(sweep))] == [t.name for t in tasks(moved, opened(moved))]


def test_a_trace_of_other_contents_gives_parts_of_other_names(traces, tmp_path):
    sweep = small_sweep(traces[:1])
    other = small_sweep((str(write_trace(tmp_path / "article-0", seed=9)),))
    assert not {t.name for t in tasks(sweep, opened(sweep))} & {t.name for t in tasks(other, opened(other))}


def test_two_traces_of_one_name_are_refused(traces, tmp_path):
    sweep = small_sweep((*traces, str(write_trace(tmp_path / "article-0", seed=9))))
    with pytest.raises(InputError, match="two traces are called article-0"):
        tasks(sweep, opened(sweep))


def test_a_sweep_measures_what_measure_measures(traces, swept):
    rows = read(swept).measurements.filter(
        (pl.col("budget") == "1/2") & (pl.col("window") == 4) & (pl.col("policy") == "R3")
    )
    expected = measured_alone(small_sweep(traces))
    keys = ["metric", "reading", "trace", "layer", "head", "event", "group", "lag", "value"]
    got = rows.select(list(MEASUREMENTS)).collect()
    assert len(got) == len(expected.frame) > 100
    assert_frame_equal(got.sort(keys), expected.frame.sort(keys), rel_tol=1e-5, abs_tol=1e-6)


def test_the_bytes_are_what_measure_says(traces, swept):
    used = read(swept).bytes.filter(policy="R3", budget="1/2", window=4).collect()
    expected = measured_alone(small_sweep(traces))
    assert_frame_equal(used.select(expected.bytes.columns), expected.bytes)


def test_frames_are_lazy_and_tell_settings_apart(swept):
    frames = read(swept)
    assert isinstance(frames.measurements, pl.LazyFrame)
    assert frames.measurements.collect_schema() == pl.Schema(MEASUREMENTS | SWEPT)
    keys = ["trace", "policy", "budget", "window", "quantized_fraction", "bits", "swept_reading", "seed"]
    used = frames.bytes.collect()
    assert used.select(keys).is_duplicated().sum() == 0
    assert set(used["policy"]) == {"R2", "R3"}
    two = used.filter(pl.col("policy").str.starts_with("R2"))
    assert two["quantized_fraction"].null_count() == two["bits"].null_count() == len(two)
    assert set(used.filter(policy="R3")["bits"]) == {2}
    assert used["seed"].null_count() == len(used)


def test_a_finished_sweep_is_not_computed_again(traces, swept):
    before = contents(swept)
    stamps = [path.stat().st_mtime_ns for path in sorted((swept / "parts").iterdir())]
    calls = []
    finished = run(small_sweep(traces), swept, progress=lambda *done: calls.append(done))
    assert (finished.parts, finished.computed, calls) == (32, 0, [("sweeping", 32, 32)])
    assert contents(swept) == before
    assert [path.stat().st_mtime_ns for path in sorted((swept / "parts").iterdir())] == stamps


def test_another_sweep_into_the_same_folder_is_refused(traces, swept):
    before = contents(swept)
    with pytest.raises(SweepError, match="holds a sweep of other budgets and windows"):
        run(small_sweep(traces, budgets=("1/4",), windows=(8,)), swept)
    with pytest.raises(SweepError, match="holds a sweep of other traces"):
        run(small_sweep(traces[:1]), swept)
    assert contents(swept) == before


@pytest.mark.parametrize("damage", ["cut", "flipped", "gone", "receipt cut", "receipt gone"])
def test_a_damaged_part_is_seen_and_computed_again(traces, swept, damage):
    before = contents(swept)
    path = sorted((swept / "parts").glob("*.json" if "receipt" in damage else "*.parquet"))[3]
    content = path.read_bytes()
    middle = len(content) // 2
    if "gone" in damage:
        path.unlink()
    else:
        path.write_bytes(content[:middle] if "cut" in damage else content[:middle] + b"\0\xff" + content[middle + 2 :])
    with pytest.raises(SweepError, match="1 of 32 parts are missing or damaged"):
        read(swept)
    assert len(read(swept, partial=True).bytes.collect()) < len(contents(swept))
    assert run(small_sweep(traces), swept).computed == 1
    assert contents(swept) == before


def edit(path, change, sign=False):
    """Apply ``change`` to a JSON file of a sweep; ``sign`` puts its checksum in order again."""
    content = json.loads(path.read_text())
    change(content)
    if sign:
        content["checksum"] = checksum(content)
    path.write_text(json.dumps(content))


WRONG_RECEIPTS = {
    "another byte use": lambda r: r["use"][0].update(persistent_ratio=0.01),
    "no byte use": lambda r: r.update(use=[]),
    "byte use null": lambda r: r.update(use=None),
    "byte use text": lambda r: r.update(use="abc"),
    "byte use of numbers": lambda r: r.update(use=[1, 2]),
    "byte use without columns": lambda r: r.update(use=[{"policy": {"a": []}}]),
    "bytes": lambda r: r.update(bytes=0),
    "checksum of the part": lambda r: r.update(crc32="0"),
    "task null": lambda r: r.update(task=None),
    "another task": lambda r: r["task"].update(identity="0" * 32),
    "another program": lambda r: r.update(program="qevict-diag 0.0.1"),
    "no checksum": lambda r: r.pop("checksum"),
    "number too large": lambda r: r.update(rows=10**400),
}


@pytest.mark.parametrize("change", WRONG_RECEIPTS.values(), ids=WRONG_RECEIPTS)
def test_a_changed_receipt_is_seen_and_its_part_computed_again(traces, swept, change):
    before = contents(swept)
    edit(sorted((swept / "parts").glob("*.json"))[3], change)
    with pytest.raises(SweepError, match="1 of 32 parts are missing or damaged"):
        read(swept)
    assert run(small_sweep(traces), swept).computed == 1
    assert contents(swept) == before


@pytest.mark.parametrize("name", ["byte use null", "byte use of numbers", "another task", "bytes", "task null"])
def test_a_wrong_receipt_with_a_checksum_of_its_own_is_no_receipt(traces, swept, name):
    before = contents(swept)
    edit(sorted((swept / "parts").glob("*.json"))[3], WRONG_RECEIPTS[name], sign=True)
    with pytest.raises(SweepError, match="1 of 32 parts are missing or damaged"):
        read(swept)
    assert run(small_sweep(traces), swept).computed == 1
    assert contents(swept) == before


def test_a_part_under_another_parts_name_is_seen(traces, swept):
    before = contents(swept)
    one, two = sorted((swept / "parts").glob("*.json"))[3:5]
    for path, other in ((one, two), (one.with_suffix(".parquet"), two.with_suffix(".parquet"))):
        path.write_bytes(other.read_bytes())
    with pytest.raises(SweepError, match="1 of 32 parts are missing or damaged"):
        read(swept)
    assert run(small_sweep(traces), swept).computed == 1
    assert contents(swept) == before


@pytest.mark.parametrize(
    ("pattern", "told"),
    [("sweep.json", "no readable"), ("parts/*.json", "1 of 32 parts are"), ("parts/*.parquet", "1 of 32 parts are")],
)
def test_a_pipe_in_place_of_a_file_is_not_waited_for(copied, pattern, told):
    path = sorted(copied.glob(pattern))[0]
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(SweepError, match=told):
        read(copied)


WRONG_SWEEPS = {
    "a part twice": lambda m: m["parts"].append(m["parts"][0]),
    "a part less": lambda m: m["parts"].pop(),
    "another order": lambda m: m["parts"].reverse(),
    "parts null": lambda m: m.update(parts=None),
    "parts an object": lambda m: m.update(parts={"a": 1}),
    "a part elsewhere": lambda m: m["parts"].append("../../other"),
    "grid null": lambda m: m.update(grid=None),
    "grid a list": lambda m: m.update(grid=[1]),
    "options null": lambda m: m["grid"].update(options=None),
    "options a list": lambda m: m["grid"].update(options=[]),
    "another m": lambda m: m["grid"]["options"].update(min_inactive=7),
    "traces null": lambda m: m.update(traces=None),
    "traces of numbers": lambda m: m.update(traces=[1, 2]),
    "no parts": lambda m: m.pop("parts"),
}


@pytest.mark.parametrize("change", WRONG_SWEEPS.values(), ids=WRONG_SWEEPS)
def test_a_changed_description_is_never_read_and_its_parts_are_kept(traces, copied, change):
    edit(copied / "sweep.json", change)
    with pytest.raises(SweepError, match=r"\(sweep\.json was changed after it was written; delete it"):
        read(copied, partial=True)
    with pytest.raises(SweepError, match=r"holds a sweep of other .* \(sweep\.json was changed after it was written"):
        run(small_sweep(traces), copied)
    (copied / "sweep.json").unlink()
    assert run(small_sweep(traces), copied).computed == 0


SHAPELESS = (
    "a part twice",
    "a part elsewhere",
    "parts null",
    "parts an object",
    "no parts",
    "grid null",
    "grid a list",
)


@pytest.mark.parametrize("name", [*SHAPELESS, "options null", "options a list"])
def test_a_description_of_another_shape_is_refused_whoever_signed_it(copied, name):
    edit(copied / "sweep.json", WRONG_SWEEPS[name], sign=True)
    with pytest.raises(SweepError, match="sweep anew"):
        read(copied)


def test_the_same_sweep_mends_a_description_that_differs_in_what_does_not_matter(traces, swept):
    before = (swept / "sweep.json").read_bytes()
    edit(swept / "sweep.json", lambda m: m["traces"][0].update(path="/elsewhere"))
    assert run(small_sweep(traces), swept).computed == 0
    assert (swept / "sweep.json").read_bytes() == before


@pytest.mark.parametrize("text", ["[" * 100_000, '{"format": NaN}', "[]", '{"a": 1, "a": 2}', "\xff", '{"a": 1e999}'])
def test_a_description_that_is_no_plain_json_is_refused(traces, tmp_path, text):
    (tmp_path / "sweep.json").write_text(text, encoding="latin1")
    for attempt in (read, lambda folder: run(small_sweep(traces), folder)):
        with pytest.raises(SweepError, match=r"has no readable sweep\.json"):
            attempt(tmp_path)


def test_a_folder_that_is_no_sweep_is_refused(tmp_path):
    with pytest.raises(SweepError, match="no readable sweep"):
        read(tmp_path)
    (tmp_path / "sweep.json").write_text('{"format": "other"}')
    with pytest.raises(SweepError, match="not of format"):
        read(tmp_path)


def test_parts_of_another_version_are_not_mixed_in(traces, tmp_path):
    run(small_sweep(traces, budgets=("1/2",), windows=(4,)), tmp_path)
    manifest = json.loads((tmp_path / "sweep.json").read_text())
    (tmp_path / "sweep.json").write_text(json.dumps({**manifest, "program": "qevict-diag 0.0.1"}))
    with pytest.raises(SweepError, match="other program versions"):
        run(small_sweep(traces, budgets=("1/2",), windows=(4,)), tmp_path)


def test_what_does_not_fit_is_told_before_anything_runs(traces, tmp_path):
    sweep = small_sweep(traces, budgets=("1/20", "1/2"))
    found = misfits(sweep, opened(sweep))
    assert {str(misfit.setting.budget) for misfit in found} == {"1/20"}
    with pytest.raises(BudgetError, match=r"8 of 16 settings do not fit \(R2 at budget 1/20.*and 5 more"):
        run(sweep, tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
    run(replace(sweep, skip_impossible=True), tmp_path / "skipped")
    assert set(read(tmp_path / "skipped").bytes.collect()["budget"]) == {"1/2"}


@pytest.mark.parametrize(("name", "value"), [("draws", 10**9), ("layers_per_task", 2**31), ("draws", 0)])
def test_numbers_that_would_take_for_ever_are_refused_at_once(traces, name, value):
    with pytest.raises(
        InputError, match=rf"{name.replace('_', ' ')} {value}: must be between 1 and|must be at least 1"
    ):
        small_sweep(traces, **{name: value})


def test_the_plan_counts_tasks_and_writes_nothing(traces, swept, tmp_path):
    sweep = small_sweep(traces)
    planned = plan(sweep, tmp_path / "planned")
    assert (planned.tasks, planned.missing, planned.settings, planned.traces) == (32, 32, 8, 2)
    assert not (tmp_path / "planned").exists()
    parts = sum(len(content) for name, content in contents(swept).items() if name.endswith(".parquet"))
    assert planned.bytes == pytest.approx(parts, rel=0.2)
    assert plan(sweep, tmp_path, workers=2).seconds > 0
    assert (plan(sweep, swept).missing, plan(sweep, swept).seconds) == (0, 0)


def test_a_task_refuses_a_trace_that_has_changed(traces):
    sweep = small_sweep(traces)
    task = replace(tasks(sweep, opened(sweep))[0], identity="0" * 32)
    with pytest.raises(QEvictError, match="has changed since the sweep began"):
        compute(task)


def test_a_locked_folder_lets_no_second_process_in(traces, tmp_path):
    with SweepFolder(tmp_path).locked(), pytest.raises(SweepError, match="another process sweeps into"):
        run(small_sweep(traces), tmp_path)
    assert run(small_sweep(traces, budgets=("1/2",), windows=(4,)), tmp_path).computed == 8
