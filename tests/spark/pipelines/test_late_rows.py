"""Rows that a watermark leaves out are counted and told."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamhouse.model.pipeline import Kind
from streamhouse.spark.pipelines.query_builder import StartedPipeline
from streamhouse.spark.pipelines.query_run import QueryRun
from streamhouse.spark.pipelines.runner_protocol import Event, LogLine, Metrics, PipelineJob
from tests.spark.connectors.conftest import Lines

pytestmark = pytest.mark.spark

JOB = PipelineJob(name="late", epoch=1, kind=Kind.SQL, text="", target="late", query_id="q", revision=1, generation=1)


def play(at: str) -> str:
    return json.dumps({"ts": f"2026-01-01T{at}Z"})


def test_a_record_beyond_the_watermark_is_counted_and_in_the_log(spark: SparkSession, tmp_path: Path) -> None:
    lines = Lines(spark, tmp_path / "in", "ts TIMESTAMP")
    # A micro-batch each. Rows are judged by the watermark of the one before; the last is late, but not too late.
    for at in ("10:00:00", "11:00:00", "11:00:01", "10:00:01", "10:59:58"):
        lines.add(play(at))
    counts = lines.stream().withWatermark("ts", "1 minute").groupBy(F.window("ts", "10 seconds")).count()

    def build(job: PipelineJob) -> StartedPipeline:
        writer = counts.writeStream.format("noop").outputMode("update").trigger(availableNow=True)
        return StartedPipeline(main=writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start())

    results: list[Event] = []
    QueryRun(1, JOB, build=build, send=results.append).run()
    assert [each.figures["late_rows"] for each in results if isinstance(each, Metrics)][-1] == 1
    assert [(each.level, each.text) for each in results if isinstance(each, LogLine)] == [
        ("warning", "rows came later than the watermark allows and were left out; rows=1 since_start=1")
    ]
