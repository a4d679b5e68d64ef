"""A replay job in steps, one commit each, so that an interrupted job resumes where it stopped.

Data path   copy_job, restore_job -> **resumable_job** -> Spark tasks -> segments -> agents
Owns        which commit a step is; the state stored with it; progress; the session and event loop of a job
Leaves      a step's rows to the jobs, bytes and uploads to `datasource.data_writer`, offsets to the agents
Invariant   the state stored with the first commit decides a step's rows: a second run writes the same

A job has an id. Its steps are the epochs of one query, and agents accept each epoch once (decision 0018).
"""

import hashlib
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException, PythonException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from streamhouse.client.loop_thread import LoopThread
from streamhouse.clock import Ids
from streamhouse.errors import Misconfigured, Rejected
from streamhouse.model.external_commit import QueryId
from streamhouse.spark.agents.client import AgentClient, error_detail, run_on_loop
from streamhouse.spark.agents.commits import CommitRequest, SegmentRow, commit_client
from streamhouse.spark.datasource.data_writer import WriteTarget, fitting_segments
from streamhouse.spark.datasource.input_rows import check_schema
from streamhouse.spark.datasource.write_options import CommitId, WriteOptions
from streamhouse.spark.maintenance.job import OnProgress, Progress
from streamhouse.spark.maintenance.job_session import start_session
from streamhouse.spark.runtime.session_stop import stop_session

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, Row

STEP_BYTES: Final = 2 * 1024**3
"""Stored bytes of a step: little to repeat after a kill, large compared to the cost of a commit."""
MAX_STEPS: Final = 100_000
POLL_S: Final = 0.5
NAMESPACE: Final = uuid.UUID("7f0c6c7e-5a0b-4e0e-9c39-0d6c0f2f6a51")
WRITTEN: Final = "written binary"


class JobState(msgspec.Struct, frozen=True):
    """The state that is stored with each commit of a job: its spec, and the options that determine its steps."""

    spec_digest: str = msgspec.field(name="asked")
    steps: int
    done: int
    total_bytes: int
    plan: Any
    """The plan of the kind of job: offsets of a topic, the version of a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """The result of a job. `resumed_at`: steps that an earlier run of the same job had done."""

    job: str
    topic: str
    records: int = 0
    written_bytes: int = 0
    steps: int = 0
    resumed_at: int = 0


class Job:
    """One job, across all of its runs."""

    def __init__(self, kind: str, job_id: str | None, spec: object, *, options: WriteOptions) -> None:
        self.job_id = job_id or str(Ids().uuid())
        self.query = QueryId(str(uuid.uuid5(NAMESPACE, f"{kind}:{self.job_id}")))
        self.spec_digest = hashlib.sha256(msgspec.json.encode(spec, order="sorted")).hexdigest()
        self._options = options

    def __repr__(self) -> str:
        return f"<Job {self.job_id} query={self.query}>"

    async def remembered(self, agents: AgentClient) -> JobState | None:
        """The state that an earlier run stored; None if there is none."""
        response = await agents.send("GET", f"/v1/commits/{self.query}")
        if response.status == 404:
            return None
        if response.status >= 400:
            raise Rejected(error_detail(response))
        memory = msgspec.convert(msgspec.json.decode(response.content)["progress"], JobState)
        if memory.spec_digest != self.spec_digest:
            raise Misconfigured(f"another job had this id; job={self.job_id} do=give it as it was, or another id")
        return memory

    def run(
        self,
        memory: JobState,
        frame_of: "Callable[[int], DataFrame]",
        *,
        on_progress: OnProgress = lambda at: None,
        topic: str,
    ) -> ReplayResult:
        """Do the steps that are not done; `frame_of` has the rows of a step."""
        records = written = 0
        for step in range(memory.done, memory.steps):
            share = _Share(step, memory, on_progress)
            with describe_failure():
                segments = self._write(frame_of(step), step, share)
            if not segments:
                continue  # it wrote no records; the next commit records that it is done
            stored = msgspec.structs.replace(memory, done=step + 1)
            segments = list(fitting_segments(self._options, CommitId(self.query, step), segments))
            commit = CommitRequest(
                query=self.query, epoch=step, segments=segments, progress=msgspec.to_builtins(stored)
            )
            agents = commit_client(self._options.agents)
            result = run_on_loop(agents.commit(commit, timeout_s=self._options.commit_timeout_s))
            records += sum(each.end - each.base for each in result.placed)
            written += sum(segment.size_bytes for segment in segments)
        on_progress(Progress("done", memory.total_bytes, memory.total_bytes))
        return ReplayResult(
            job=self.job_id,
            topic=topic,
            records=records,
            written_bytes=written,
            steps=memory.steps,
            resumed_at=memory.done,
        )

    def _write(self, frame: "DataFrame", step: int, share: "_Share") -> list[SegmentRow]:
        destination = WriteTarget.find(self._options, frame.schema, overwrite=False)
        task = _writing(destination, CommitId(self.query, step))
        rows = _watched(frame.mapInArrow(task, WRITTEN), f"{self.query}-{step}", share)
        return [segment for row in rows for segment in msgspec.json.decode(bytes(row.written), type=list[SegmentRow])]


def check_rows(frame_of: "Callable[[], DataFrame]", *, topic: str) -> None:
    """Have Spark look at a job's expressions, and see that records are made of them, before anything is written."""
    with describe_failure():
        check_schema(frame_of().schema, topic=topic)


def count_steps(total_bytes: int, step_bytes: int) -> int:
    return max(1, min(MAX_STEPS, -(-total_bytes // step_bytes)))


def _writing(
    destination: WriteTarget, identity: CommitId
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        written = destination.write(batches, identity)
        yield pa.record_batch([pa.array([msgspec.json.encode(written.segments)], pa.binary())], names=["written"])

    return write


# --- progress, and what went wrong


class _Share:
    """A step's part of the whole."""

    def __init__(self, step: int, memory: JobState, on_progress: OnProgress) -> None:
        self._begin = memory.total_bytes * step // memory.steps
        self._end = memory.total_bytes * (step + 1) // memory.steps
        self._total = memory.total_bytes
        self._on_progress = on_progress

    def report(self, part: float) -> None:
        at = self._begin + round((self._end - self._begin) * part)
        self._on_progress(Progress("writing", at, self._total))


def _watched(frame: "DataFrame", group: str, share: _Share) -> "list[Row]":
    """The rows, once tasks have them; reports meanwhile how many are done.

    A thread of its own waits for Spark: where Ctrl-C comes in the middle of an answer that Java owes, nothing else can
    be sent to Java by the same thread, not even that jobs are to be cancelled.
    """
    context = frame.sparkSession.sparkContext

    def collect() -> "list[Row]":
        context.setJobGroup(group, "streamhouse replay")
        return frame.collect()

    share.report(0.0)
    thread = ThreadPoolExecutor(1, thread_name_prefix="replay")
    collecting = thread.submit(collect)
    try:
        while not wait([collecting], POLL_S).done:
            if (part := _part_done(context, group)) is not None:
                share.report(part)
        return collecting.result()
    finally:
        if not collecting.done():
            context.cancelAllJobs()
        # Not waited for: a job that Spark didn't know yet was not cancelled, and ends when Spark is stopped.
        thread.shutdown(wait=False)


def _part_done(context: "SparkContext", group: str) -> float | None:
    """The completed fraction of a group's tasks; None if no task is known yet."""
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    total = sum(stage.numTasks for stage in stages if stage is not None)
    done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
    return done / total if total else None


@contextmanager
def describe_failure() -> Iterator[None]:
    """Spark's error about an expression or a task, without its traces."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)  # it would print them as JSON besides
    try:
        yield
    except AnalysisException as error:
        raise Misconfigured(f"Spark doesn't understand it; why={_first_line(error)}") from None
    except PythonException as error:
        raise Rejected(f"a task failed; why={_last_line(error)}") from error
    except PySparkException as error:
        raise Rejected(f"Spark failed; why={_first_line(error)}") from error


def _first_line(error: PySparkException) -> str:
    return (error.getMessage() or str(error)).strip().partition("\n")[0]


def _last_line(error: PySparkException) -> str:
    """The error of a Python traceback, without the frames."""
    lines = [line.strip() for line in str(error).splitlines() if "Error" in line or line.startswith("streamhouse.")]
    return lines[-1] if lines else _first_line(error)


@contextmanager
def running(
    name: str, *, agents: str, master: str | None, settings: Mapping[str, str], log: Path | None
) -> Iterator[tuple[LoopThread, Callable[[], SparkSession]]]:
    loop, started = LoopThread(name="streamhouse-replay"), list[SparkSession]()

    def start() -> SparkSession:
        started.append(start_session(name, agents=agents, master=master, settings=settings, log=log))
        return started[-1]

    try:
        yield loop, start
    finally:
        for spark in started:
            stop_session(spark)
        loop.close()
