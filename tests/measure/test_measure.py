"""Measuring: what comes out for what was asked, and what is refused."""

from dataclasses import replace

import polars as pl
import pytest
import torch
from disk_traces import write_trace

from qevict_diag.cache.budget import Budget
from qevict_diag.errors import InputError, MetricError, TraceError
from qevict_diag.frames import BYTES, DECISIONS, MEASUREMENTS
from qevict_diag.measure.decisions import all_decisions
from qevict_diag.measure.models import one_model
from qevict_diag.measure.traces import measure, metric_names
from qevict_diag.metrics.fmm import MISSED, fmm_rows
from qevict_diag.metrics.mass_share import mass_share_rows
from qevict_diag.metrics.selection import oracle_selection, universe
from qevict_diag.policies.catalogue import policies, policy
from qevict_diag.policies.view import reciprocal
from qevict_diag.readings import Readings
from qevict_diag.replay.blocks import layers_per_block
from qevict_diag.replay.loop import replay
from qevict_diag.replay.plan import make_plan
from qevict_diag.replay.settings import Settings
from qevict_diag.testing.traces import random_trace
from qevict_diag.trace.trace import Trace

SETTINGS = Settings(budget=Budget("1/2", sinks=2, recent=6), horizon=8)
TRACE = random_trace(1)


def test_frames_have_the_documented_columns():
    found = measure([TRACE], ["R1", "R3"], settings=SETTINGS)
    assert dict(found.frame.schema) == MEASUREMENTS
    assert dict(found.bytes.schema) == BYTES
    assert dict(all_decisions([TRACE], policies(["R3"]), SETTINGS).schema) == DECISIONS


def test_policies_beside_others_keep_their_own_metrics_and_numbers():
    both = measure([TRACE], ["R1"], ["churn", "qsa"], SETTINGS, also=[(["R3"], ["fmm", "qsa"]), ([], ["lir"])])
    alone = pl.concat(
        measure([TRACE], [name], metrics, SETTINGS).frame
        for name, metrics in (("R1", ["churn", "qsa"]), ("R3", ["fmm", "qsa"]))
    )
    assert both.frame.equals(alone)
    assert both.bytes["policy"].to_list() == ["R1", "R3"]


def test_decisions_hold_every_complete_window_of_every_event():
    frame = all_decisions([TRACE], policies(["R3"]), SETTINGS)
    run = replay(TRACE, policies(["R3"]), SETTINGS)[0]
    for event in range(run.grid.events):
        rows = frame.filter(layer=0, event=event)
        assert rows["window"].to_list() == list(range(run.grid.complete(event)))
        assert rows.filter(pl.col("tier") != "local").height == run.grid.historical(event)


def test_units_of_their_own_are_numbered():
    chosen = replace(SETTINGS, readings=SETTINGS.readings.with_(scope="kv_head"))
    assert all_decisions([TRACE], policies(["R3"]), chosen)["unit"].unique().sort().to_list() == [0, 1]
    churn = measure([TRACE], ["R3"], ["churn"], chosen).frame
    assert churn["head"].unique().sort().to_list() == [0, 1]


def test_the_ledger_raises_the_persistent_bytes_only_where_something_was_promoted():
    used = measure([TRACE], ["R2", "R3"], ["churn"], SETTINGS).bytes
    extra = {row["policy"]: row["share_peak_with_ledger"] - row["share_peak"] for row in used.to_dicts()}
    promoted = measure([TRACE], ["R3"], ["promotions"], SETTINGS).frame["value"].sum()
    assert extra["R2"] == 0
    assert (extra["R3"] > 0) == (promoted > 0)


def test_progress_counts_every_layer_of_every_trace():
    done = []
    measure(
        [TRACE, random_trace(2, name="other")], ["R2"], ["churn"], SETTINGS, progress=lambda *told: done.append(told)
    )
    assert done == [("replaying", count, 4) for count in (2, 4)]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: measure([], ["R2"]), "at least one"),
        (lambda: measure([TRACE, TRACE], ["R2"]), "name of its own"),
        (lambda: metric_names(["fmm", "nothing"]), "nothing"),
        (lambda: metric_names([]), "none"),
        (lambda: one_model([TRACE, replace(TRACE, model_id="another")]), "2 models"),
        (lambda: Settings(horizon=0), "horizon 0"),
        (lambda: Settings(min_inactive=0), "min-inactive 0: must be at least 1"),
        (lambda: Settings(min_inactive=2**31), "min-inactive 2147483648: must be between 1 and 2147483647"),
        (lambda: Settings(horizon=10**24), r"horizon 1000000000000000000000000: must be between 1 and 2147483647"),
        (lambda: Settings(horizon=10**4000), r"^horizon 10+\.\.\.0+: must be"),
        (lambda: replay(TRACE, policies(["R2"]), replace(SETTINGS, device="nowhere")), "nowhere"),
    ],
)
def test_what_cannot_be_measured_is_refused(call, said):
    with pytest.raises(InputError, match=said):
        call()


def test_a_metric_whose_sums_were_not_kept_says_so():
    run = replay(TRACE, policies(["R3"]), SETTINGS)[0]
    for rows in (fmm_rows, mass_share_rows):
        with pytest.raises(MetricError, match="did not keep"):
            list(rows(run))
    with pytest.raises(MetricError, match="did not keep"):
        oracle_selection(run, universe(run))


def test_an_estimator_that_needs_prompt_queries_says_so_when_there_are_none():
    bare = replace(TRACE, parts=tuple(replace(part, prompt_query=None) for part in TRACE.parts))
    with pytest.raises(MetricError, match="--prompt-queries"):
        replay(bare, [policy("R3[observation]")], SETTINGS)


def test_single_and_double_precision_agree_on_real_settings():
    frames = [
        measure([TRACE], ["R3"], ["fmm"], replace(SETTINGS, dtype=d)).frame for d in (torch.float32, torch.float64)
    ]
    assert (frames[0]["value"] - frames[1]["value"]).abs().max() < 1e-5


def test_a_query_that_gives_the_kept_windows_nothing_is_no_silent_nan():
    """All its attention on evicted windows: refused where that may be underflow, exactly nothing in float64."""
    trace = random_trace(3, prefill=60, decode=64, layers=1, spread=20.0)
    settings = replace(SETTINGS, budget=Budget("3/8", sinks=3, recent=4))
    with pytest.raises(MetricError, match="use --arithmetic float64"):
        measure([trace], ["R2"], ["fmm"], settings)
    found = replay(trace, [policy("R2")], replace(settings, dtype=torch.float64), folds=[MISSED])[0]
    assert torch.isfinite(found.kept(MISSED).missed).all()
    nothing = reciprocal(torch.tensor([0.0, 0.5], dtype=torch.float64))
    assert nothing.tolist() == [0.0, 2.0]


def test_layers_that_are_not_there_are_refused(tmp_path):
    trace = Trace.open(write_trace(tmp_path / "trace", layers=3))
    for layers in ([0, 99, 1], [99]):
        with pytest.raises(TraceError, match="layer 99 is not in"):
            replay(trace, policies(["R2"]), SETTINGS, layers=layers)
    with pytest.raises(InputError, match="at least one policy and one layer"):
        replay(trace, policies(["R2"]), SETTINGS, layers=[])
    with pytest.raises(InputError, match="at least one policy and one layer"):
        measure([trace], [], ["fmm"], SETTINGS)


def test_blocks_shrink_with_what_is_kept_of_every_head():
    shape = replace(TRACE.shape, heads=32, prefill=512, decode=256)
    chosen = [replace(SETTINGS, readings=Readings(scope=scope)) for scope in ("layer", "head")]
    layer, head = (layers_per_block(shape, [make_plan(policy("R1"), shape, one)], one) for one in chosen)
    assert 1 <= head < layer


def test_a_device_that_holds_no_numbers_is_refused():
    with pytest.raises(InputError, match="device 'meta' is not there"):
        measure([TRACE], ["R2"], ["fmm"], replace(SETTINGS, device="meta"))
