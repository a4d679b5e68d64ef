"""Live query: rows of a streaming query, micro-batch by micro-batch, until it is closed.

Data path   query_executor -> **live_query** -> a streaming query -> Arrow batches -> http_app
Owns        the streaming query, its temporary checkpoint, the queue of rows for a slow reader
Leaves      which rows to `resolver`, when to stop to `http_app`

A reader that doesn't keep up holds the query back: a micro-batch ends when its rows are in the queue.
"""

import queue
import shutil
import tempfile
from collections.abc import Iterator
from threading import Event
from typing import Final

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

TRIGGER: Final = "200 milliseconds"
POLL_S: Final = 0.2
STOP_TIMEOUT_MS: Final = "5000"
MODES: Final = ("append", "update", "complete")
"""The first that Spark takes: what is added, else (an aggregate without watermark) what changed."""


class LiveQuery:
    """Iterate over it in a thread: it waits for rows, and yields an empty batch now and then where none come."""

    def __init__(self, frame: DataFrame, *, name: str, waiting_batches: int) -> None:
        self._frame, self._name = frame, name
        self.schema: pa.Schema = to_arrow_schema(frame.schema, timezone="UTC")
        self._batches: queue.Queue[pa.RecordBatch] = queue.Queue(waiting_batches)
        self._stopped = Event()
        self._query: StreamingQuery | None = None
        self._checkpoint = tempfile.mkdtemp(prefix="streamhouse-tail-")

    def __repr__(self) -> str:
        return f"<Tail {self._name} waiting={self._batches.qsize()} stopped={self._stopped.is_set()}>"

    def start(self) -> None:
        """Raises what Spark has against the query."""
        try:
            self._query = self._started()
        except BaseException:
            self.stop()
            raise

    def _started(self) -> StreamingQuery:
        for mode in MODES:
            try:
                return self._begin(mode)
            except AnalysisException as error:
                if mode == MODES[-1] or "output mode" not in str(error).lower():
                    raise
        raise AssertionError("unreachable")

    def _begin(self, mode: str) -> StreamingQuery:
        self._frame.sparkSession.conf.set("spark.sql.streaming.stopTimeout", STOP_TIMEOUT_MS)
        return (
            self._frame.writeStream.foreachBatch(self._take)
            .option("checkpointLocation", self._checkpoint)
            .queryName(self._name)
            .outputMode(mode)
            .trigger(processingTime=TRIGGER)
            .start()
        )

    def _take(self, frame: DataFrame, batch_id: int) -> None:
        for batch in frame.toArrow().cast(self.schema).to_batches():
            while not self._stopped.is_set():
                try:
                    self._batches.put(batch, timeout=POLL_S)
                    break
                except queue.Full:
                    continue

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        nothing = pa.RecordBatch.from_pylist([], schema=self.schema)
        while not self._stopped.is_set():
            try:
                yield self._batches.get(timeout=POLL_S)
            except queue.Empty:
                if not self._goes_on():
                    return
                yield nothing

    def _goes_on(self) -> bool:
        """Whether more may come; raises what ended the query."""
        assert self._query is not None, "not started"
        if self._query.isActive or not self._batches.empty():
            return True
        if (error := self._query.exception()) is not None and not self._stopped.is_set():
            raise error
        return False

    def stop(self) -> None:
        """End the query; also one that has ended."""
        self._stopped.set()
        try:
            if self._query is not None:
                self._query.stop()
        finally:
            shutil.rmtree(self._checkpoint, ignore_errors=True)
