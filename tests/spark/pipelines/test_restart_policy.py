"""A supervisor's patience with one pipeline, its lease, and what it says: decided without a Spark."""

import random
from dataclasses import replace

from streamhouse.clock import Ids
from streamhouse.model.pipeline import Kind, Phase
from streamhouse.spark.pipelines.query_metrics import LateRows, Totals, query_metrics
from streamhouse.spark.pipelines.restart_policy import Backoff, LeaseDeadline, LeaseStage, PipelineState
from streamhouse.spark.pipelines.runner_protocol import Ended, PipelineJob, pipeline_job

JOB = PipelineJob(
    name="copies",
    epoch=7,
    kind=Kind.SQL,
    text="",
    target="copies",
    query_id="6a1f5d1e-0000-4000-8000-000000000001",
    revision=2,
    generation=1,
)
FAILED = Ended(run=1, how="failed", error="the agents are away")


def care(patience: Backoff | None = None) -> PipelineState:
    return PipelineState(JOB, backoff=patience or Backoff(), ids=Ids(random.Random(1)), now=0.0)


def fail(subject: PipelineState, now: float, ended: Ended = FAILED) -> float:
    """Start, begin and fail; returns how long it waits then."""
    subject.started(1)
    subject.begun(now, 0)
    subject.ended(ended, now, 0)
    return 0.0 if subject.start_at is None else subject.start_at - now


def test_a_new_pipeline_is_due_at_once() -> None:
    assert care().is_due(0.0)


def test_waits_between_tries_double_up_to_a_limit() -> None:
    subject = care(Backoff(first_s=1, most_s=8))
    waits = [fail(subject, 1.0) for _ in range(6)]
    for wait, longest in zip(waits, [1, 2, 4, 8, 8, 8], strict=True):
        assert longest / 2 <= wait <= longest
    assert subject.phase is Phase.BACKING_OFF
    assert subject.status(0)["restarts"] == 6


def test_the_backoff_begins_anew_after_a_healthy_while() -> None:
    subject = care(Backoff(first_s=1, most_s=64, healthy_s=60))
    for _ in range(5):
        fail(subject, 1.0)
    subject.started(2)
    subject.begun(100.0, 0)
    subject.ended(FAILED, 161.0, 0)
    assert subject.start_at is not None
    assert subject.start_at - 161.0 <= 1.0


def test_what_trying_again_does_not_cure_is_failed_with_words() -> None:
    subject = care()
    fail(subject, 1.0, Ended(run=1, how="failed", error="no column amont", can_retry=False))
    assert subject.phase is Phase.FAILED
    assert not subject.is_due(1e9)
    assert subject.status(0)["error"] == "no column amont"
    assert "no column amont" in subject.lines[-1]["text"]


def test_the_last_error_is_reported_until_a_micro_batch_is_over() -> None:
    subject = care()
    fail(subject, 1.0)
    subject.started(2)
    subject.begun(2.0, 0)
    assert (subject.phase, subject.status(0)["error"]) == (Phase.RUNNING, "the agents are away")
    subject.update({"batch_id": 1})
    assert subject.status(0)["error"] is None


def test_a_pipeline_whose_runner_died_is_tried_again() -> None:
    subject = care()
    subject.started(1)
    subject.runner_lost(5.0, 0)
    assert subject.phase is Phase.BACKING_OFF
    assert subject.is_due(7.0)


def test_a_pipeline_that_read_everything_is_done() -> None:
    subject = care()
    fail(subject, 1.0, Ended(run=1, how="done"))
    assert subject.phase is Phase.DONE
    assert not subject.is_due(1e9)


def test_lines_that_wait_for_a_heartbeat_are_bounded() -> None:
    subject = care()
    for number in range(1000):
        subject.log_event(0, "info", str(number))
    assert len(subject.lines) == 100
    assert subject.lines[-1]["text"] == "999"


def test_a_lease_is_let_go_before_agents_may_give_it_away() -> None:
    lease = LeaseDeadline()
    assert lease.stage(1e9) is LeaseStage.HELD  # nothing was taken yet
    lease.renewed(100.0, 15.0)
    assert lease.stage(108.9) is LeaseStage.HELD
    assert lease.stage(109.1) is LeaseStage.STOP
    assert lease.stage(112.1) is LeaseStage.KILL
    lease.renewed(112.0, 15.0)
    assert lease.stage(113.0) is LeaseStage.HELD


PROGRESS = {
    "batchId": 4,
    "timestamp": "2026-11-15T10:00:00.000Z",
    "numInputRows": 10,
    "inputRowsPerSecond": 5.0,
    "processedRowsPerSecond": 50.0,
    "batchDuration": 200,
    "eventTime": {"watermark": "2026-11-15T09:59:50.000Z"},
    "stateOperators": [{"numRowsTotal": 3, "memoryUsedBytes": 1000}, {"numRowsTotal": 4, "memoryUsedBytes": 500}],
    "sources": [
        {"endOffset": {"offsets": {"orders": {"0": 5}}}, "latestOffset": {"offsets": {"orders": {"0": 7, "1": 2}}}},
        {"endOffset": {"logOffset": 1}, "latestOffset": None},
    ],
    "observedMetrics": {"dead_letters": {"rows": 2}},
}


def test_figures_come_from_the_last_micro_batch() -> None:
    totals = Totals()
    totals.add([PROGRESS])
    totals.add([PROGRESS])  # told again: counted once
    figures = query_metrics(PROGRESS, totals)
    assert figures["batch_id"] == 4
    assert figures["rows_in"] == 10
    assert figures["lag_records"] == 4  # 2 of partition 0, and partition 1, which is new
    assert (figures["state_rows"], figures["state_bytes"]) == (7, 1500)
    assert figures["watermark_ms"] == 1_794_736_790_000
    assert totals.dead_letters == 2


def test_rows_that_a_watermark_left_out_are_counted_over_micro_batches() -> None:
    totals = Totals()
    for batch, late in enumerate((2, 0, 3)):
        states = [{"numRowsTotal": 3, "numRowsDroppedByWatermark": late}, {"numRowsTotal": 1}]
        totals.add([{**PROGRESS, "batchId": batch, "stateOperators": states}] * 2)
    assert query_metrics(PROGRESS, totals)["late_rows"] == 5


def test_late_rows_are_counted_on_by_the_next_run_and_the_next_supervisor() -> None:
    subject = care()
    assert subject.status(0)["late_rows"] == 0
    for run, late in ((1, 2), (1, 5), (2, 1)):
        if subject.run != run:
            subject.started(run)
        subject.update({"late_rows": late})
    assert subject.status(0)["late_rows"] == 6
    result = {"name": "c", "kind": "sql", "text": "x", "target": "c", "query_id": "q", "revision": 1, "generation": 2}
    status = {"batch_id": 7, "late_rows": 6, "progress": {"generation": 2}}
    taken = PipelineState(
        pipeline_job({**result, "status": status}, epoch=8), backoff=Backoff(), ids=Ids(random.Random(1)), now=0.0
    )
    assert taken.status(0)["late_rows"] == 6
    taken.started(1)
    taken.update({"late_rows": 4})
    assert taken.status(0)["late_rows"] == 10
    anew = pipeline_job({**result, "generation": 3, "status": status}, epoch=9)
    assert anew.late_rows == 0


def test_the_log_reports_late_rows_once_a_minute() -> None:
    late = LateRows()
    assert late.line(0, 0.0) is None
    assert late.line(3, 1.0) == "rows came later than the watermark allows and were left out; rows=3 since_start=3"
    assert late.line(9, 60.0) is None
    assert late.line(10, 61.0) == "rows came later than the watermark allows and were left out; rows=7 since_start=10"
    assert late.line(10, 200.0) is None


def test_a_query_without_watermark_has_none() -> None:
    results = {**PROGRESS, "eventTime": {"watermark": "1970-01-01T00:00:00.000Z"}, "stateOperators": []}
    figures = query_metrics(results, Totals())
    assert figures["watermark_ms"] is None
    assert figures["state_rows"] is None


def test_a_generation_has_run_when_its_own_status_says_so() -> None:
    results = {
        "name": "copies",
        "kind": "sql",
        "text": "x",
        "target": "copies",
        "query_id": "q",
        "revision": 1,
        "generation": 2,
        "options": {"isolation": "own"},
        "shape": {"streams": ["orders"], "state": [], "target": "copies"},
    }
    status = {"batch_id": 3, "progress": {"generation": 1}}
    assert not pipeline_job({**results, "status": status}, epoch=1).has_run
    job = pipeline_job({**results, "status": {**status, "progress": {"generation": 2}}}, epoch=1)
    assert job.has_run
    assert job.is_alone
    assert job.shape is not None
    assert job.shape.streams == ("orders",)


def test_what_may_not_run_is_failed_until_it_may() -> None:
    refused = replace(JOB, refusal="nobody owns it")
    subject = PipelineState(refused, backoff=Backoff(), ids=Ids(random.Random(1)), now=0.0)
    assert not subject.is_due(1000.0)
    assert (subject.status(0)["phase"], subject.status(0)["error"]) == ("failed", "nobody owns it")
    assert refused.version != JOB.version  # so that it starts over
