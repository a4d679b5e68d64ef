"""Running: one pipeline from its start to its end, in a thread of its own.

Data path   runner -> **a run** -> building -> Spark's queries; events back
Owns        the order of things: begin, watch, stop; what is told and when
Leaves      queries to `query_builder`, words for errors to `failure_classification`, whether it is tried again to the
            supervisor
"""

import json
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from pyspark.sql.streaming.query import StreamingQuery

from streamhouse.clock import SystemClock
from streamhouse.model.pipeline import GENERATION
from streamhouse.spark.pipelines.query_builder import StartedPipeline
from streamhouse.spark.pipelines.query_metrics import LateRows, Totals, query_metrics
from streamhouse.spark.pipelines.query_stop import stop_all
from streamhouse.spark.pipelines.runner_protocol import Ended, Event, LogLine, Metrics, PipelineJob, Started
from streamhouse.spark.query.failure_classification import Failure, classify_failure

log = logging.getLogger(__name__)

POLL_S: Final = 0.25
"""How often queries are looked at."""

SendEvent = Callable[[Event], None]
Build = Callable[[PipelineJob], StartedPipeline]


class QueryRun(threading.Thread):
    """`stop` may be called at any time, also before there is a query."""

    def __init__(self, number: int, job: PipelineJob, *, build: Build, tell: SendEvent) -> None:
        super().__init__(name=f"pipeline-{job.name}-{number}", daemon=True)
        self.number, self.job = number, job
        self._build, self._tell = build, tell
        self._stopping = threading.Event()
        self._told: tuple[Any, ...] | None = None
        self._late, self._clock = LateRows(), SystemClock()
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
            ended = self._lived()
        except Exception as error:  # whatever it is, it is this pipeline's alone
            log.warning("a pipeline failed; name=%s", self.job.name, exc_info=True)
            ended = self._failed(classify_failure(error))
        self._tell(ended)

    def _lived(self) -> Ended:
        if self.stopping:
            return Ended(run=self.number, how="stopped")
        built = self._build(self.job)
        try:
            for note in built.notes:
                self._tell(LogLine(run=self.number, text=note))
            return self._watched(built)
        finally:
            stop_all([built.main, *built.others])

    def _watched(self, built: StartedPipeline) -> Ended:
        """Until a query fails, all of them are done, or somebody says stop."""
        queries, mains, others = [built.main, *built.others], Totals(), [Totals() for _ in built.others]
        while True:
            is_over = self._stopping.wait(POLL_S)
            self._tell_begun(queries)
            self._tell_figures(built, mains, others)
            if is_over:
                return Ended(run=self.number, how="stopped")
            for query in queries:
                if (error := query.exception()) is not None:
                    return self._failed(classify_failure(error, query._jsq.exception().get()))
            if not any(query.isActive for query in queries):
                self._tell_figures(built, mains, others)  # of micro-batches since the last look
                return Ended(run=self.number, how="done")

    def _tell_begun(self, queries: Sequence[StreamingQuery]) -> None:
        """Once, when each has gone through a trigger: one micro-batch is done, or there was nothing to read."""
        if not self._has_begun and all(_progress(query) is not None for query in queries):
            self._has_begun = True
            self._tell(Started(run=self.number))

    def _tell_figures(self, built: StartedPipeline, mains: Totals, others: Sequence[Totals]) -> None:
        """What is new since the last time."""
        last = _progress(built.main)
        if last is not None:
            mains.add(_recent(built.main, last, mains))
        for query, totals in zip(built.others, others, strict=True):
            letters = _progress(query)
            if letters is not None:
                totals.add(_recent(query, letters, totals))
        dead = sum(totals.dead_letters for totals in others)
        seen = (None if last is None else last["timestamp"], dead)
        if last is not None and seen != self._told:
            self._told = seen
            figures = query_metrics(last, mains)
            if line := self._late.line(mains.late_rows, self._clock.monotonic()):
                self._tell(LogLine(run=self.number, text=line, level="warning"))
            figures |= {"dead_letters": dead, "progress": {GENERATION: self.job.generation}}
            self._tell(Metrics(run=self.number, figures=figures))

    def _failed(self, fault: Failure) -> Ended:
        if self.stopping:  # queries that are stopped half-way may say anything
            return Ended(run=self.number, how="stopped")
        return Ended(run=self.number, how="failed", error=fault.words, can_retry=fault.can_retry)


def _progress(query: StreamingQuery) -> dict[str, Any] | None:
    last: Any = query._jsq.lastProgress()
    return None if last is None else json.loads(last.json())


def _recent(query: StreamingQuery, last: dict[str, Any], totals: Totals) -> list[dict[str, Any]]:
    """The micro-batches that weren't counted yet; most often the last one alone."""
    if last["batchId"] <= totals.seen + 1:
        return [last]
    return [json.loads(each.json()) for each in query._jsq.recentProgress()]
