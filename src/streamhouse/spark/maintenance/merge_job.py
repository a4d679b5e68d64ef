"""Merge job: moves small runs into large objects of one partition each.

Data path   none: plan -> tasks (ranges of many objects -> one object) -> agents; readers and writers are not involved
Owns        rounds of a job until nothing is left to merge, what one task does, the bound of its memory
Leaves      which runs are worth it to `model.log_cleanup`, I/O to `segment_rewrite`, who may replace what to the agents

Batches are moved as they are: not a byte of them changes, except offsets of externally committed ones.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from streamhouse.client.loop_thread import LoopThread
from streamhouse.clock import Ids, SystemClock
from streamhouse.errors import Unavailable
from streamhouse.format.run_rewrite import RewrittenRun, Source
from streamhouse.model.log_cleanup import merge_limits, merges
from streamhouse.model.names import PartitionId
from streamhouse.spark.agents.run_replacements import MaintenanceClient, MaintenancePlan, Replacement
from streamhouse.spark.maintenance.job import JobResult, OnProgress, Progress, Tasks
from streamhouse.spark.maintenance.segment_rewrite import IoStats, RewriteTask, RunBytes, fetch, store_replacement
from streamhouse.spark.runtime.object_store import open_store
from streamhouse.stores.objects.base import ObjectMissing, ObjectStore

MIB: Final = 1024 * 1024
MAX_RUNS: Final = 10_000
"""Runs that one object replaces: agents accept no more in one request."""
MAX_RAW_BYTES: Final = 192 * MIB
"""Maximum size of one object before compression, which a task has in memory."""
MAX_MERGES_PER_TASK: Final = 64
"""Maximum number of merges of one task, if they are small."""
MAX_ROUNDS: Final = 12
"""Each round leaves less to do, or another job rewrites the same runs all the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePolicy:
    """By hand everything is merged that can be; by policy what has become much smaller than it should be."""

    at_least: int = 2
    target_bytes: int = 64 * MIB

    @property
    def below_bytes(self) -> int:
        return self.target_bytes // 2


BY_HAND: Final = MergePolicy()
BY_POLICY: Final = MergePolicy(at_least=16)


class _Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a task. `gone`: ranges whose objects no longer exist, because another job rewrote their runs."""

    replacements: list[Replacement] = []
    costs: IoStats = IoStats()
    gone: int = 0
    work_bytes: int = 0


def run(
    topic: str, *, agents: str, tasks: Tasks, on_progress: OnProgress = lambda at: None, policy: MergePolicy = BY_HAND
) -> JobResult:
    """Merge a topic until nothing is left to merge; raises `Unavailable` when others undo it all the time."""
    loop = LoopThread(name="streamhouse-maintenance")
    try:
        maintainers = loop.run(_opened(agents))
        try:
            return _Merge(topic, loop, maintainers, tasks, on_progress, policy).run()
        finally:
            loop.run(maintainers.__aexit__(None, None, None))
    finally:
        loop.close()


async def _opened(agents: str) -> MaintenanceClient:
    return MaintenanceClient(agents)


class _Merge:
    """One job: rounds of planning, rewriting and registering."""

    def __init__(
        self,
        topic: str,
        loop: LoopThread,
        agents: MaintenanceClient,
        tasks: Tasks,
        on_progress: OnProgress,
        policy: MergePolicy,
    ) -> None:
        self._loop, self._agents, self._tasks = loop, agents, tasks
        self._on_progress, self._policy = on_progress, policy
        self._job = str(Ids().uuid())
        self._done = JobResult(topic=topic)
        self._ends: dict[int, int] = {}
        """Where partitions ended when the job began: what is written meanwhile would keep it from ending."""

    def run(self) -> JobResult:
        self._loop.run(self._agents.check_agent())
        for number in range(MAX_ROUNDS):
            plan = self._loop.run(self._agents.plan(self._done.topic))
            count = sum(len(each.runs) for each in plan.partitions)
            self._done = replace(self._done, runs_after=count, rounds=number)
            if number == 0:
                self._done = replace(self._done, runs_before=count)
                self._ends = {each.partition: each.flushed_end for each in plan.partitions}
            works = list(merge_tasks(plan, self._policy, job=self._job, ends=self._ends))
            if not works:
                return self._done
            if not self._round(works):
                return self._done  # decompressed it is as large as it should be
        raise Unavailable(
            f"others rewrite the topic all the time; topic={self._done.topic} conflicts={self._done.conflicts}"
            " do=run it again later"
        )

    def _round(self, works: Sequence[RewriteTask]) -> bool:
        """Whether another plan will show other runs."""
        total, done, is_changed = sum(work.stored_bytes for work in works), 0, False
        self._on_progress(Progress("rewriting", 0, total))
        for output in self._tasks.run(
            merge_task, map(msgspec.json.encode, pack_runs(works, self._policy.target_bytes))
        ):
            result = msgspec.json.decode(output, type=_Result)
            conflicts = self._done.conflicts + result.gone
            self._done = replace(self._done, costs=self._done.costs + result.costs, conflicts=conflicts)
            for replacement in result.replacements:
                self._register(replacement)
            is_changed = is_changed or bool(result.replacements) or bool(result.gone)
            done += result.work_bytes
            self._on_progress(Progress("rewriting", done, total))
        return is_changed

    def _register(self, replacement: Replacement) -> None:
        done = self._done
        if self._loop.run(self._agents.replace(replacement)):
            count = len(replacement.expected)
            self._done = replace(done, objects=done.objects + 1, replaced_runs=done.replaced_runs + count)
        else:
            self._done = replace(done, conflicts=done.conflicts + 1)


# --- on the driver: what to do


def merge_tasks(
    plan: MaintenancePlan, policy: MergePolicy, *, job: str, ends: Mapping[int, int] | None = None
) -> Iterator[RewriteTask]:
    """The runs to merge, below the `ends` of partitions; a pure function."""
    limits = merge_limits(
        plan.config, at_least=policy.at_least, below_bytes=policy.below_bytes, max_bytes=policy.target_bytes
    )
    for partition in plan.partitions:
        rows = {row.base: row for row in partition.runs}
        apart_at = partition.cleaned_to if plan.config.compacts else 0
        end = partition.flushed_end if ends is None else ends.get(partition.partition, 0)
        runs = [row.run(PartitionId(plan.id, partition.partition)) for row in partition.runs if row.end <= end]
        for chosen in merges(runs, limits, max_runs=MAX_RUNS, apart_at=apart_at):
            yield RewriteTask(
                job=job,
                store=plan.store,
                topic=plan.topic,
                topic_id=plan.topic_id,
                partition=partition.partition,
                runs=tuple(rows[run.base] for run in chosen),
            )


def pack_runs(works: Iterable[RewriteTask], target_bytes: int) -> Iterator[list[RewriteTask]]:
    """Small works together, those of the same time next to each other: they often stand in the same objects."""
    pack: list[RewriteTask] = []
    size = 0
    for work in sorted(works, key=lambda work: (work.runs[0].max_timestamp_ms, work.partition)):
        if pack and (size + work.stored_bytes > target_bytes or len(pack) >= MAX_MERGES_PER_TASK):
            yield pack
            pack, size = [], 0
        pack.append(work)
        size += work.stored_bytes
    if pack:
        yield pack


# --- on an executor


def merge_task(item: bytes) -> bytes:
    """The task that Spark runs."""
    works = msgspec.json.decode(item, type=list[RewriteTask])
    handle = open_store(works[0].store)
    return msgspec.json.encode(handle.loop.run(merge_all(handle.store, works)))


async def merge_all(store: ObjectStore, works: Sequence[RewriteTask]) -> _Result:
    """An object for each work, or several where one would be too large decompressed."""
    size = sum(work.stored_bytes for work in works)
    try:
        fetched = await fetch(store, (row for work in works for row in work.runs))
    except ObjectMissing:
        if len(works) == 1:
            return _Result(gone=1, work_bytes=size)
        return _joined([await merge_all(store, [work]) for work in works])
    results = [each async for each in _merged(store, works, fetched)]
    return _joined([_Result(costs=fetched.costs, work_bytes=size), *results])


async def _merged(store: ObjectStore, works: Sequence[RewriteTask], fetched: RunBytes) -> AsyncIterator[_Result]:
    for work in works:
        for moved in parts_of(work, fetched):
            replacement, costs = await store_replacement(store, work, moved, clock=SystemClock(), ids=Ids())
            yield _Result(replacements=[replacement], costs=costs)


def parts_of(work: RewriteTask, fetched: RunBytes) -> Iterator[list[RewrittenRun]]:
    """The work's runs, as many together as may be in memory decompressed; none that would be alone."""
    sources = [fetched.source(row, work.id) for row in work.runs]
    part: list[Source] = []
    raw_bytes = 0
    for source in [*sources, None]:
        if source is None or (part and raw_bytes + source.raw_bytes > MAX_RAW_BYTES):
            if len({each.run.object_key for each in part}) > 1:
                yield [RewrittenRun(each, fetched.batches(each)) for each in part]
            part, raw_bytes = [], 0
        if source is not None:
            part.append(source)
            raw_bytes += source.raw_bytes


def _joined(results: Sequence[_Result]) -> _Result:
    return _Result(
        replacements=[one for each in results for one in each.replacements],
        costs=sum((each.costs for each in results), IoStats()),
        gone=sum(each.gone for each in results),
        work_bytes=sum(each.work_bytes for each in results),
    )
