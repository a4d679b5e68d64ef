"""One start of a pipeline, with queries that are made up: when it is said to run, and when to have ended."""

import json
import threading
from typing import Any, cast

from pyspark.sql.streaming.query import StreamingQuery

from streamhouse.model.pipeline import GENERATION, SPARK_UI, VERSIONS
from streamhouse.spark.pipelines.query_builder import StartedPipeline
from streamhouse.spark.pipelines.query_run import QueryRun
from streamhouse.spark.pipelines.query_stop import stop_all
from streamhouse.spark.pipelines.runner_protocol import Ended, Event, Metrics, Started
from tests.spark.pipelines.test_restart_policy import JOB

TIMEOUT_S = 30.0


class Progress:
    def __init__(self, batch: int) -> None:
        self._batch = batch

    def json(self) -> str:
        return json.dumps({"batchId": self._batch, "timestamp": "now", "numInputRows": 0, "sources": []})


class Query:
    """As much of Spark's as a run looks at; `failures`: how often it can't be stopped."""

    id = "q"

    def __init__(self, failures: int = 0) -> None:
        self.isActive, self.progress = True, cast(Progress | None, None)
        self.failures, self.stops = failures, 0
        self._jsq: Any = self

    def lastProgress(self) -> Progress | None:
        return self.progress

    def recentProgress(self) -> list[Progress]:
        return [] if self.progress is None else [self.progress]

    def exception(self) -> None:
        return None

    def stop(self) -> None:
        self.stops += 1
        if self.stops <= self.failures:
            raise TimeoutError("it goes on")
        self.isActive = False


class Told:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self._came = threading.Condition()

    def __call__(self, event: Event) -> None:
        with self._came:
            self.events.append(event)
            self._came.notify_all()

    def wait_for(self, kind: type) -> None:
        with self._came:
            assert self._came.wait_for(lambda: any(isinstance(each, kind) for each in self.events), TIMEOUT_S)


def test_a_pipeline_runs_when_each_query_has_gone_through_a_trigger() -> None:
    main, letters, result = Query(), Query(), Told()
    built = StartedPipeline(main=cast(StreamingQuery, main), others=(cast(StreamingQuery, letters),))
    run = QueryRun(1, JOB, build=lambda job: built, send=result)
    run.start()
    main.progress = Progress(0)
    run.join(1.0)  # four looks at least
    assert not any(isinstance(each, Started) for each in result.events)
    letters.progress = Progress(0)
    result.wait_for(Started)
    run.stop()
    run.join(TIMEOUT_S)
    assert sum(isinstance(each, Started) for each in result.events) == 1
    assert result.events[-1] == Ended(run=1, how="stopped")
    assert not main.isActive


def test_the_newest_versions_of_a_lake_table_and_the_ui_are_in_the_progress() -> None:
    main, result = Query(), Told()
    ui = "http://127.0.0.1:4040"
    built = StartedPipeline(main=cast(StreamingQuery, main), versions=[{"version": "7"}], ui=ui)
    main.progress = Progress(0)
    run = QueryRun(1, JOB, build=lambda job: built, send=result)
    run.start()
    result.wait_for(Metrics)
    run.stop()
    run.join(TIMEOUT_S)
    figures = next(each.figures for each in result.events if isinstance(each, Metrics))
    assert figures["progress"] == {GENERATION: JOB.generation, VERSIONS: [{"version": "7"}], SPARK_UI: ui}


def test_a_query_that_does_not_stop_is_tried_again() -> None:
    query, ended = Query(failures=1), list[int]()
    stop_all([cast(StreamingQuery, query)], end=lambda: ended.append(1))
    assert (query.isActive, query.stops, ended) == (False, 2, [])


def test_a_query_that_never_stops_ends_its_runner() -> None:
    stuck, other, ended = Query(failures=100), Query(), list[int]()
    stop_all([cast(StreamingQuery, stuck), cast(StreamingQuery, other)], end=lambda: ended.append(1))
    assert (stuck.isActive, other.isActive, ended) == (True, False, [1])
