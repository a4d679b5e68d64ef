"""Data writer: implements Spark's writer for `format("streamhouse")`.

Data path   Spark's tasks -> **data_writer** -> segment_writer -> object store; messages to the driver ->
            **data_writer** -> an external commit at an agent
Owns        Spark's interface of a writer; which commit a task's rows belong to; what is committed, and that it is one
Leaves      encoding and uploads to `segment_writer`, requests to `commits`, orphaned objects to the agents' collector

Each row is written once, whichever process is killed: every task attempt writes its own objects, the messages of one
attempt reach the driver, and the transaction that commits the segments stores (query, epoch) and a digest. A different
commit with the same number is rejected. Decision 0018.
"""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from streamhouse.clock import Ids, SystemClock
from streamhouse.errors import Internal, Misconfigured
from streamhouse.format.segment import EncodedSegment
from streamhouse.model.external_commit import QueryId
from streamhouse.model.replay import RECORDS
from streamhouse.spark.agents.client import run_on_loop
from streamhouse.spark.agents.commits import (
    CommitRequest,
    CommitResult,
    FenceRow,
    SegmentRow,
    TopicTarget,
    commit_client,
)
from streamhouse.spark.datasource.input_rows import check_schema
from streamhouse.spark.datasource.segment_merge import merge_segments, plan_merge
from streamhouse.spark.datasource.segment_writer import Put, SegmentWriter
from streamhouse.spark.datasource.write_options import CommitId, WriteOptions
from streamhouse.spark.runtime.checkpoint import BatchOffsets, local_reader, read_batch_offsets
from streamhouse.spark.runtime.checkpoint_sync import sync_checkpoint
from streamhouse.spark.runtime.object_store import StoreHandle, open_store
from streamhouse.spark.runtime.python_worker import prepare_worker_process

QUERY_PROPERTY: Final = "sql.streaming.queryId"
EPOCH_PROPERTY: Final = "streaming.sql.batchId"


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):
    """The commit message of one task for the driver."""

    identity: CommitId
    segments: tuple[SegmentRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTarget:
    """Where tasks write: looked up once, by the driver, so that an unknown topic fails before any work."""

    options: WriteOptions
    store: str
    target: TopicTarget | None
    max_runs: int | None = None

    @staticmethod
    def find(options: WriteOptions, schema: StructType, *, overwrite: bool) -> "WriteTarget":
        if overwrite:
            raise Misconfigured("records are only ever appended to a topic; do=use mode append, or delete the topic")
        check_schema(schema, topic=options.topic)
        agents = commit_client(options.agents)
        timeout_s = options.commit_timeout_s
        target = None if options.topic is None else run_on_loop(agents.target(options.topic, timeout_s=timeout_s))
        settings = run_on_loop(agents.commit_settings(timeout_s=timeout_s))
        return WriteTarget(options=options, store=settings.store, target=target, max_runs=settings.max_commit_runs)

    def write(self, batches: Iterator[pa.RecordBatch], identity: CommitId) -> TaskCommit:
        """Write the rows of one task."""
        prepare_worker_process()
        writer = SegmentWriter(
            self.options,
            identity,
            target=self._targets(),
            put=_put_into(open_store(self.store)),
            clock=SystemClock(),
            ids=Ids(),
            max_partitions=self.max_runs,
        )
        return TaskCommit(identity, writer.write(batches))

    def _targets(self) -> "_Targets":
        return _Targets(self.options, self.target)


class _Targets:
    """The topics of a task's rows; those that rows name are looked up when the first one comes."""

    def __init__(self, options: WriteOptions, only: TopicTarget | None) -> None:
        self._options = options
        self._only = only
        self._targets: dict[str, TopicTarget] = {}

    def __call__(self, topic: str | None) -> TopicTarget:
        if topic is None:
            if self._only is None:
                raise Internal("rows name no topic, and there is no option topic")
            return self._only
        if topic not in self._targets:
            agents = commit_client(self._options.agents)
            self._targets[topic] = run_on_loop(agents.target(topic, timeout_s=self._options.commit_timeout_s))
        return self._targets[topic]


def _put_into(store: StoreHandle) -> Put:
    def put(key: str, encoded: EncodedSegment) -> "Future[None]":
        return asyncio.run_coroutine_threadsafe(store.store.put_new(key, encoded.body), store.loop.loop)

    return put


def commit_segments(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> CommitResult | None:
    """Commit what tasks wrote, in the order of the tasks; None where that is nothing."""
    written = [message for message in messages if isinstance(message, TaskCommit)]
    segments = [segment for message in written for segment in message.segments]
    identities = {message.identity for message in written}
    if not identities:
        return None
    if len(identities) != 1:
        raise Internal(f"tasks of one commit belong to several; commits={sorted(identities)}")
    ((query, epoch),) = identities
    agents = commit_client(options.agents)
    offsets = _batch_offsets(options, epoch)
    covers = options.covers or (None if offsets is None else offsets.covers)
    if not segments:
        if covers is not None:
            run_on_loop(agents.check_empty(query, epoch, covers, timeout_s=options.commit_timeout_s))
        return None
    if (checkpoint := options.progress_from or options.checkpoint) is not None:
        sync_checkpoint(checkpoint)
    commit = CommitRequest(
        query=query,
        epoch=epoch,
        segments=fitting_segments(options, CommitId(query, epoch), segments),
        progress=_progress(options, offsets),
        fence=None if options.fence is None else FenceRow(*options.fence),
        covers=covers or f"{RECORDS}{sum(run.records for segment in segments for run in segment.runs)}",
    )
    return run_on_loop(agents.commit(commit, timeout_s=options.commit_timeout_s))


def _batch_offsets(options: WriteOptions, epoch: int) -> BatchOffsets | None:
    """Where a micro-batch ends; None if it is unknown, or the checkpoint isn't a directory of this machine."""
    checkpoint = options.progress_from or options.checkpoint
    read = None if checkpoint is None else local_reader(checkpoint)
    return None if read is None else read_batch_offsets(read, epoch)


def _progress(options: WriteOptions, offsets: BatchOffsets | None) -> Any:
    if options.progress is not None:
        return msgspec.json.decode(options.progress)
    return None if offsets is None or options.progress_from is None else offsets.progress


def fitting_segments(options: WriteOptions, identity: CommitId, segments: Sequence[SegmentRow]) -> Sequence[SegmentRow]:
    """The segments, or fewer that hold the same where agents would reject that many runs in one commit."""
    agents = commit_client(options.agents)
    settings = run_on_loop(agents.commit_settings(timeout_s=options.commit_timeout_s))
    runs = [run for segment in segments for run in segment.runs]
    if settings.max_commit_runs is None or len(runs) <= settings.max_commit_runs:
        return segments
    groups = plan_merge(segments, max_runs=settings.max_commit_runs)
    timeout_s = options.commit_timeout_s
    topics = {run.topic for run in runs}
    topic_ids = {topic: run_on_loop(agents.target(topic, timeout_s=timeout_s)).topic_id for topic in topics}
    store = open_store(settings.store)
    merged = merge_segments(store.store, groups, topic_ids, identity, clock=SystemClock(), ids=Ids())
    return store.loop.run(merged)


class BatchWriter(DataSourceArrowWriter):
    """A write job is a query of its own with a single commit, unless options name the commit."""

    def __init__(self, destination: WriteTarget, identity: CommitId) -> None:
        self._destination = destination
        self._identity = identity

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._destination.write(iterator, self._identity)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        prepare_worker_process()
        commit_segments(self._destination.options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing is deleted: a commit whose response was lost may have happened. Agents collect orphans."""


class StreamWriter(DataSourceStreamArrowWriter):
    """A query's micro-batches are its commits, by their numbers."""

    def __init__(self, destination: WriteTarget) -> None:
        self._destination = destination

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._destination.write(iterator, stream_commit_id())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        prepare_worker_process()
        commit_segments(self._destination.options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """As for batches: what may be published stays."""


def stream_commit_id() -> CommitId:
    """The query and micro-batch of the running task; `commit` gets only the latter, so messages carry both."""
    task = TaskContext.get()
    query = None if task is None else task.getLocalProperty(QUERY_PROPERTY)
    epoch = None if task is None else task.getLocalProperty(EPOCH_PROPERTY)
    if query is None or epoch is None:
        raise Internal("a task doesn't know its query; was it started by Structured Streaming?")
    return CommitId(QueryId(query), int(epoch))


def batch_writer(options: WriteOptions, schema: StructType, *, overwrite: bool) -> BatchWriter:
    destination = WriteTarget.find(options, schema, overwrite=overwrite)
    return BatchWriter(destination, options.identity or CommitId(QueryId(str(Ids().uuid())), 0))


def stream_writer(options: WriteOptions, schema: StructType, *, overwrite: bool) -> StreamWriter:
    if options.identity is not None:
        raise Misconfigured("a stream has its own queryId and epochId; do=leave these options to batches")
    return StreamWriter(WriteTarget.find(options, schema, overwrite=overwrite))
