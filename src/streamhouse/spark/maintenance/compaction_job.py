"""Compacting on Spark: compacted topics lose what was superseded, however many keys they have.

Data path   none: plan -> keys -> offsets that stay -> tasks (runs -> one object) -> agents, behind the data path's back
Owns        a pass over a topic, from its plan to its end; the order in which runs are replaced; what one task does
Leaves      how far partitions are compacted to `model.log_cleanup`, which records stay to `format.compaction`, which
            offsets are the latest of their keys to `retained_offsets`, I/O to `segment_rewrite`, who may replace what
            to the agents

Invariant   runs of a partition are replaced oldest first, and a partition is called clean when all of them are: when a
            tombstone gets the horizon after which it goes, nothing older of its key is left

A pass that was killed leaves partitions as far as it got, and objects that agents collect; the next one begins again.
If another job rewrote runs first, the rest of the partition is planned again; the retained offsets are known already,
and stay right whatever was rewritten.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar

import msgspec

from streamhouse.client.loop_thread import LoopThread
from streamhouse.clock import Clock, Ids, SystemClock
from streamhouse.errors import Unavailable
from streamhouse.spark.agents.run_replacements import JobTime, MaintenanceClient, MaintenancePlan, Replacement
from streamhouse.spark.datasource.split_planner import splits_of
from streamhouse.spark.datasource.split_reader import ReadTask
from streamhouse.spark.maintenance.compaction_plan import (
    CompactionTarget,
    CompactionTask,
    compaction_targets,
    rewrite_tasks,
    segment_ranges,
)
from streamhouse.spark.maintenance.job import MAX_TASKS, STARTING, TASKS_PER_CORE, JobResult, OnProgress, Progress
from streamhouse.spark.maintenance.retained_offsets import Executors, RetainedOffsets, Sessions, SparkExecutors
from streamhouse.spark.maintenance.run_compaction import CompactResult, compact_task
from streamhouse.spark.maintenance.segment_rewrite import IoStats

T = TypeVar("T")

SPLIT_BYTES: Final = 64 * 1024 * 1024
"""Bytes of the runs whose keys one task reads."""
MAX_OBSOLETE_MARKERS: Final = 10_000
"""Maximum number of markers in one request, as agents accept them."""
MAX_ROUNDS: Final = 30
"""Maximum number of plans of a pass: it plans again if other jobs rewrote the same runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult(JobResult):
    """The result of a pass. `up_to`: the offset up to which a partition is clean now, for those that had something
    new."""

    records: int = 0
    dropped_records: int = 0
    up_to: Mapping[int, int] = field(default_factory=dict)


def run(
    topic: str,
    *,
    agents: str,
    tasks: Sessions,
    on_progress: OnProgress = lambda at: None,
) -> CompactionResult:
    """Compact all of a topic that may be compacted now, however little is new.

    Raises `Misconfigured` for a topic that isn't compacted, `Unavailable` when others rewrite it all the time.
    """
    return compact(topic, agents=agents, executors=SparkExecutors(tasks), on_progress=on_progress)


def compact(
    topic: str,
    *,
    agents: str,
    executors: Executors,
    on_progress: OnProgress = lambda at: None,
    clock: Clock | None = None,
) -> CompactionResult:
    """The same on any executors, at any time."""
    with ExitStack() as stack:
        loop = LoopThread(name="streamhouse-maintenance")
        stack.callback(loop.close)
        maintainers = loop.run(_opened(agents))
        stack.callback(lambda: loop.run(maintainers.__aexit__(None, None, None)))
        return _Pass(topic, agents, loop, maintainers, executors, on_progress, clock or SystemClock()).run()


async def _opened(agents: str) -> MaintenanceClient:
    return MaintenanceClient(agents)


class _Pass:
    """One pass: target and retained offsets are determined once; rewriting takes as many rounds as others
    make necessary."""

    def __init__(
        self,
        topic: str,
        address: str,
        loop: LoopThread,
        agents: MaintenanceClient,
        executors: Executors,
        on_progress: OnProgress,
        clock: Clock,
    ) -> None:
        self._address, self._loop, self._agents, self._executors = address, loop, agents, executors
        self._on_progress = on_progress
        self._own_ms = clock.now_ms()
        self._now = JobTime(self._own_ms, self._own_ms)
        self._job = str(Ids().uuid())
        self._done = CompactionResult(topic=topic)
        self._topic_id: str | None = None
        self._reached: dict[int, int] = {}
        self._total_bytes = self._done_bytes = 0

    def run(self) -> CompactionResult:
        self._loop.run(self._agents.check_agent())
        self._loop.run(self._agents.flush(self._done.topic))
        plan = self._plan()
        self._done = replace(self._done, runs_before=_runs(plan), runs_after=_runs(plan))
        self._now = plan.ages_at(self._own_ms)
        aims = compaction_targets(plan, now_ms=self._now.earlier_ms)
        if not aims:
            return self._done
        works = list(self._works(plan, aims))
        self._on_progress(STARTING)
        survivors = self._survivors(plan, aims, works)
        for number in range(1, MAX_ROUNDS + 1):
            self._done = replace(self._done, rounds=number)
            self._round(works, survivors)
            plan = self._plan()
            works = list(self._works(plan, aims))
            if not works:
                return self._ended(plan, aims)
        raise Unavailable(
            f"others rewrite the topic all the time; topic={self._done.topic} conflicts={self._done.conflicts}"
            " do=run it again later"
        )

    def _plan(self) -> MaintenancePlan:
        plan = self._loop.run(self._agents.plan(self._done.topic))
        if plan.topic_id != (self._topic_id or plan.topic_id):
            # What stays of the old one's offsets has no meaning for the new one's.
            raise Unavailable(f"the topic was deleted and made again; topic={plan.topic} do=run it again")
        self._topic_id = plan.topic_id
        return plan

    def _works(self, plan: MaintenancePlan, aims: Mapping[int, CompactionTarget]) -> Iterator[CompactionTask]:
        return rewrite_tasks(plan, aims, job=self._job, now=self._now, reached=self._reached)

    def _survivors(
        self, plan: MaintenancePlan, aims: Mapping[int, CompactionTarget], works: Sequence[CompactionTask]
    ) -> RetainedOffsets:
        """Read the keys of everything up to the aims."""
        splits = splits_of(
            list(segment_ranges(plan, aims)),
            store=plan.store,
            split_bytes=SPLIT_BYTES,
            min_partitions=min(len(works), self._executors.at_once),
        )
        self._total_bytes = sum(work.work.stored_bytes for work in works)
        self._note_read(0)
        retained, costs = self._executors.find(
            splits,
            [work.bounds for work in works],
            task=ReadTask(agents=self._address, fail_on_data_loss=False),
            records=sum(run.records for work in works for run in work.work.runs),
            on_read=self._note_read,
        )
        self._count(costs)
        return retained

    def _note_read(self, read_bytes: int) -> None:
        self._on_progress(Progress("reading keys", min(read_bytes, self._total_bytes), self._total_bytes))

    def _round(self, works: Sequence[CompactionTask], survivors: RetainedOffsets) -> None:
        """Rewrite what is left, many at once; replace in order, and in a partition no further than other jobs let
        us."""
        stale: set[int] = set()
        self._report()
        at_once = min(MAX_TASKS, TASKS_PER_CORE * self._executors.at_once)

        def act(work: CompactionTask) -> CompactResult | None:
            if work.work.partition in stale:
                return None
            output = survivors.rewrite(work.bounds, partial(compact_task, msgspec.json.encode(work)))
            return msgspec.json.decode(output, type=CompactResult)

        try:
            for work, result in in_order(act, works, at_once=at_once):
                partition = work.work.partition
                if result is None or partition in stale:
                    continue
                self._count(result.costs)
                if not self._register(work, result):
                    stale.add(partition)
                    continue
                self._reached[partition] = work.bounds.end
                self._note(work, result)
        except BaseException:
            self._executors.cancel()
            raise

    def _forget(self, work: CompactionTask, spent: Sequence[int]) -> bool:
        """Remove transactions without records from the metadata, before their markers change or go."""
        where = work.work
        for start in range(0, len(spent), MAX_OBSOLETE_MARKERS):
            replacement = Replacement(
                topic=where.topic,
                topic_id=where.topic_id,
                partition=where.partition,
                spent=tuple(spent[start : start + MAX_OBSOLETE_MARKERS]),
            )
            if not self._loop.run(self._agents.replace(replacement)):
                return False
        return True

    def _register(self, work: CompactionTask, result: CompactResult) -> bool:
        if not self._forget(work, result.spent):
            return False
        for replacement in result.replacements:
            if not self._loop.run(self._agents.replace(replacement)):
                self._done = replace(self._done, conflicts=self._done.conflicts + 1)
                return False
            done = self._done
            count = len(replacement.expected)
            self._done = replace(done, objects=done.objects + 1, replaced_runs=done.replaced_runs + count)
        if result.is_gone:
            self._done = replace(self._done, conflicts=self._done.conflicts + 1)
        return not result.is_gone

    def _note(self, work: CompactionTask, result: CompactResult) -> None:
        done = self._done
        self._done = replace(
            done,
            records=done.records + result.records,
            dropped_records=done.dropped_records + result.dropped_records,
        )
        self._done_bytes = min(self._done_bytes + work.work.stored_bytes, self._total_bytes)
        self._report()

    def _report(self) -> None:
        self._on_progress(Progress("rewriting", self._done_bytes, self._total_bytes))

    def _count(self, costs: IoStats) -> None:
        self._done = replace(self._done, costs=self._done.costs + costs)

    def _ended(self, plan: MaintenancePlan, aims: Mapping[int, CompactionTarget]) -> CompactionResult:
        """Nothing is left: note how far partitions are clean."""
        for partition, aim in aims.items():
            clean = Replacement(topic=plan.topic, topic_id=plan.topic_id, partition=partition, cleaned_to=aim.up_to)
            self._loop.run(self._agents.replace(clean))
        up_to = {partition: aim.up_to for partition, aim in aims.items()}
        return replace(self._done, runs_after=_runs(plan), up_to=up_to)


def _runs(plan: MaintenancePlan) -> int:
    return sum(len(each.runs) for each in plan.partitions)


def in_order(
    act: Callable[[CompactionTask], T], works: Iterable[CompactionTask], *, at_once: int
) -> Iterator[tuple[CompactionTask, T]]:
    """The results of `act` in the order of `works`, with a limit of concurrent calls."""
    under_way: deque[tuple[CompactionTask, Future[T]]] = deque()
    with ThreadPoolExecutor(at_once, thread_name_prefix="compacting") as threads:
        try:
            for work in works:
                under_way.append((work, threads.submit(act, work)))
                if len(under_way) >= 2 * at_once:
                    first, future = under_way.popleft()
                    yield first, future.result()
            while under_way:
                first, future = under_way.popleft()
                yield first, future.result()
        finally:
            for _, future in under_way:
                future.cancel()
