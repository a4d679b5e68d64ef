"""Query run: one pipeline from its start to its end, in a thread of its own.

Data path   runner -> **QueryRun** -> query_builder -> Spark's queries; events back
Owns        the order of steps: start, watch, stop; which events are sent, and when
Leaves      queries to `query_builder`, error texts to `failure_classification`, whether it is retried to the
            supervisor
"""

import json
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from pyspark.sql.streaming.query import StreamingQuery

from streamhouse.clock import SystemClock
from streamhouse.model.pipeline import GENERATION, SPARK_UI, VERSIONS
from streamhouse.spark.pipelines.query_builder import StartedPipeline
from streamhouse.spark.pipelines.query_metrics import LateRows, ReadOffsets, Totals, query_metrics
from streamhouse.spark.pipelines.query_stop import stop_all
from streamhouse.spark.pipelines.runner_protocol import Ended, Event, LogLine, Metrics, PipelineJob, Started
from streamhouse.spark.query.failure_classification import Failure, classify_failure

log = logging.getLogger(__name__)

POLL_S: Final = 0.25
"""How often queries are polled."""

SendEvent = Callable[[Event], None]
Build = Callable[[PipelineJob], StartedPipeline]


class QueryRun(threading.Thread):
    """`stop` may be called at any time, also before there is a query."""

    def __init__(self, number: int, job: PipelineJob, *, build: Build, send: SendEvent) -> None:
        super().__init__(name=f"pipeline-{job.name}-{number}", daemon=True)
        self.number, self.job = number, job
        self._build, self._send = build, send
        self._stopping = threading.Event()
        self._reported: tuple[Any, ...] | None = None
        self._late, self._clock = LateRows(), SystemClock()
        self._read = ReadOffsets()
        self._has_begun = False

    def __repr__(self) -> str:
        return f"<Run {self.number} {self.job.name} epoch={self.job.epoch} {'stopping' if self.stopping else ''}>"

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        try:
            ended = self._execute()
        except Exception as error:  # any error fails this pipeline alone
            log.warning("a pipeline failed; name=%s", self.job.name, exc_info=True)
            ended = self._failed(classify_failure(error))
        self._send(ended)

    def _execute(self) -> Ended:
        if self.stopping:
            return Ended(run=self.number, how="stopped")
        built = self._build(self.job)
        try:
            for note in built.notes:
                self._send(LogLine(run=self.number, text=note))
            return self._watch(built)
        finally:
            stop_all([built.main, *built.others])

    def _watch(self, built: StartedPipeline) -> Ended:
        """Watch until a query fails, all of them are done, or `stop` is called."""
        queries, mains, others = [built.main, *built.others], Totals(), [Totals() for _ in built.others]
        while True:
            is_over = self._stopping.wait(POLL_S)
            self._report_start(queries)
            self._report_metrics(built, mains, others)
            if is_over:
                return Ended(run=self.number, how="stopped")
            for query in queries:
                if (error := query.exception()) is not None:
                    return self._failed(classify_failure(error, query._jsq.exception().get()))
            if not any(query.isActive for query in queries):
                self._report_metrics(built, mains, others)  # of micro-batches since the last poll
                return Ended(run=self.number, how="done")

    def _report_start(self, queries: Sequence[StreamingQuery]) -> None:
        """Once, when each has gone through a trigger: one micro-batch is done, or there was nothing to read."""
        if not self._has_begun and all(_progress(query) is not None for query in queries):
            self._has_begun = True
            self._send(Started(run=self.number))

    def _report_metrics(self, built: StartedPipeline, mains: Totals, others: Sequence[Totals]) -> None:
        """Send metrics if they changed."""
        last = _progress(built.main)
        if last is not None:
            mains.add(_recent(built.main, last, mains))
        for query, totals in zip(built.others, others, strict=True):
            progress = _progress(query)
            if progress is not None:
                totals.add(_recent(query, progress, totals))
        dead = sum(totals.dead_letters for totals in others)
        seen = (None if last is None else last["timestamp"], dead)
        if last is not None and seen != self._reported:
            self._reported = seen
            self._read.add(last)
            figures = query_metrics(last, mains)
            if line := self._late.line(mains.late_rows, self._clock.monotonic()):
                self._send(LogLine(run=self.number, text=line, level="warning"))
            read = self._read.as_progress()
            progress = {GENERATION: self.job.generation} | ({"read": read} if read else {})
            progress |= {VERSIONS: list(built.versions)} if built.versions else {}
            progress |= {SPARK_UI: built.ui} if built.ui else {}
            figures |= {"dead_letters": dead, "progress": progress}
            self._send(Metrics(run=self.number, figures=figures))

    def _failed(self, fault: Failure) -> Ended:
        if self.stopping:  # queries that are stopped half-way may raise anything
            return Ended(run=self.number, how="stopped")
        return Ended(run=self.number, how="failed", error=fault.reason, can_retry=fault.can_retry)


def _progress(query: StreamingQuery) -> dict[str, Any] | None:
    last: Any = query._jsq.lastProgress()
    return None if last is None else json.loads(last.json())


def _recent(query: StreamingQuery, last: dict[str, Any], totals: Totals) -> list[dict[str, Any]]:
    """The micro-batches that weren't counted yet; most often the last one alone."""
    if last["batchId"] <= totals.seen + 1:
        return [last]
    return [json.loads(each.json()) for each in query._jsq.recentProgress()]
