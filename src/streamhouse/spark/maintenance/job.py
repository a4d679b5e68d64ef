"""Job: what merge and compaction jobs share: a Spark that starts only when it has work, parallel tasks, results.

Data path   a command or a supervisor -> **job** -> Spark's tasks -> the driver, as each one ends
Owns        when Spark is started, how many tasks are in progress, figures of a job and of its progress
Leaves      what a task does to `merge_job` and `compaction_job`; requests to `agents.run_replacements`
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from streamhouse.spark.maintenance.segment_rewrite import IoStats
from streamhouse.spark.runtime.session_stop import stop_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS_PER_CORE: Final = 2
"""Under way at once: while one waits for the store, another one computes."""
MAX_TASKS: Final = 256


class Progress(NamedTuple):
    """How far a job is in what it does now, in bytes that it has to read for that; a total of 0: unknown."""

    what: str
    done_bytes: int
    total_bytes: int


STARTING: Final = Progress("starting Spark", 0, 0)
OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """The result of a job for a topic. `conflicts`: objects that came too late, because another job rewrote the
    runs."""

    topic: str
    objects: int = 0
    runs_before: int = 0
    runs_after: int = 0
    replaced_runs: int = 0
    conflicts: int = 0
    rounds: int = 0
    costs: IoStats = field(default_factory=IoStats)


class Tasks(Protocol):
    """Where tasks run: each takes bytes and returns bytes."""

    def run(self, task: Callable[[bytes], bytes], items: Iterable[bytes]) -> Iterator[bytes]:
        """The results, as they complete."""
        ...


class SparkTasks:
    """Tasks on a Spark that is started with the first one."""

    def __init__(self, start: "Callable[[], SparkSession]") -> None:
        self._start = start
        self._spark: SparkSession | None = None

    def __repr__(self) -> str:
        return f"<SparkTasks {'not started' if self._spark is None else 'started'}>"

    def run(self, task: Callable[[bytes], bytes], items: Iterable[bytes]) -> Iterator[bytes]:
        """One Spark job for each item: what is done is registered while others still work, and a slow one delays none
        waiting."""
        spark = self.session
        at_once = min(MAX_TASKS, TASKS_PER_CORE * spark.sparkContext.defaultParallelism)

        def one(item: bytes) -> bytes:
            (output,) = spark.sparkContext.parallelize([item], 1).map(task).collect()
            return bytes(output)

        with ThreadPoolExecutor(at_once, thread_name_prefix="maintenance") as threads:
            under_way: set[Future[bytes]] = set()
            try:
                for item in items:
                    if len(under_way) >= at_once:
                        ended, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                        yield from (each.result() for each in ended)
                    under_way.add(threads.submit(one, item))
                while under_way:
                    ended, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                    yield from (each.result() for each in ended)
            except BaseException:
                for each in under_way:
                    each.cancel()
                spark.sparkContext.cancelAllJobs()
                raise

    @property
    def session(self) -> "SparkSession":
        if self._spark is None:
            self._spark = self._start()
        return self._spark

    def stop(self) -> None:
        if self._spark is not None:
            stop_session(self._spark)
            self._spark = None
