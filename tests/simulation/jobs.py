"""Jobs: they rewrite runs outside the agents, without leases and without knowing what is under way.

Owns        what a job's driver and its tasks do, their deaths and sleeps; what an agent may answer them
Leaves      reading, layout and names to the product's own jobs, the verdict about records to `history`

A job has a process of its own. It plans, and may be slow; it merges some neighbouring runs as they are, and may die
behind its PUT; it asks any agent to put the object in their place until it is told, and some ask again much later.
"""

import random
from collections.abc import Callable, Sequence

from streamhouse.broker.broker import Broker
from streamhouse.broker.fetch.read_plans import RunCursor
from streamhouse.broker.maintenance.jobs import MaintenancePlan
from streamhouse.broker.maintenance.run_replacement import ExpectedRun, RunReplacementRequest
from streamhouse.clock import Ids
from streamhouse.errors import CommitRefused, Rejected, RunsChanged, StreamhouseError, UnknownTopic
from streamhouse.format.run_rewrite import RewrittenRun
from streamhouse.model.names import Epoch, PartitionId, TopicPartition
from streamhouse.model.segment import Run, SegmentCommit, SegmentObject
from streamhouse.spark.agents.run_replacements import ReplacingSegment, RunRow
from streamhouse.spark.maintenance.segment_rewrite import RewriteTask, fetch, store_replacement
from streamhouse.stores.objects.base import ObjectExists, ObjectMissing

from .churn import TOPIC
from .clients import Client, simply
from .loop import Process
from .network import Lost
from .objects import ObjectDoor
from .world import World

PATIENCE_S = 8.0
TRIES = 12


class Job(Client):
    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self._lives = 0
        self._ids = Ids(random.Random(f"job-{world.options.seed}-{name}"))
        self._topics = [*(plan.name for plan in world.options.topics), *([TOPIC] if world.options.churns else [])]
        self.replaced = 0
        self.came_late = 0
        self.deaths = 0

    async def run(self) -> None:
        while not self.world.is_quiet:
            await self.pause(self.chance.choice((0.02, 0.3)))
            await self._live()
        for _ in self._topics:  # and once the faults are over, whoever works is neither killed nor kept waiting
            await self._live()

    async def _live(self) -> None:
        """One process, from its start to its end or its death."""
        self._lives += 1
        process = self.loop.new_process(f"{self.name}-{self._lives}")
        over = self.loop.create_future()

        async def work() -> None:
            try:
                await self._work()
            except Exception as error:
                self.loop.fail(error)
                raise
            if not over.done():
                over.set_result(None)

        def die() -> None:
            self.deaths += 1
            self.loop.note(f"{process.name} is killed")
            self.loop.kill(process)
            if not over.done():
                over.set_result(None)

        self.loop.spawn(process, work(), name=process.name)
        if not self.world.is_quiet:
            self._endanger(process, die)
        await over
        if not process.is_dead:
            self.loop.kill(process)
        self.hang_up(politely=True)

    def _endanger(self, process: Process, die: Callable[[], None]) -> None:
        """Some die at any step, and some sleep while all that they know becomes old."""
        dice = self.chance.random()
        steps = self.chance.choice((5, 20, 60))
        if dice < self.world.options.job_trouble:
            process.fuse = (self.chance.randrange(steps), die)
        elif dice < 2 * self.world.options.job_trouble:
            seconds = self.chance.choice((0.5, 3.0, 8.0))
            process.fuse = (self.chance.randrange(steps), lambda: self.loop.pause(process, seconds))

    async def _work(self) -> None:
        topic = self.chance.choice(self._topics)
        try:
            if self.chance.random() < 0.1:
                await self.call(simply(lambda broker: broker.maintenance.flushing.flush(topic)), patience_s=PATIENCE_S)
            pages = await self._plan(topic)
            await self._dawdle()
            request = await self._rewrite(topic, pages)
        except (StreamhouseError, Lost, ObjectMissing, ObjectExists) as error:
            self.loop.note(f"{self.name} gives up {error!r}")  # the next one plans anew
            return
        if request is not None:
            await self._dawdle()
            await self._register(request)

    async def _dawdle(self) -> None:
        if not self.world.is_quiet and self.chance.random() < 0.3:
            await self.pause(self.chance.choice((0.05, 1.0)))

    # --- what there is

    async def _plan(self, topic: str) -> Sequence[MaintenancePlan]:
        """All pages, each from any agent."""
        pages: list[MaintenancePlan] = []
        begin: RunCursor | None = None
        while not pages or begin is not None:

            async def ask(broker: Broker, begin: RunCursor | None = begin) -> MaintenancePlan:
                return await broker.maintenance.plans.plan(topic, begin=begin)

            pages.append(await self.call(simply(ask)))
            begin = pages[-1].next
        return pages

    def _chosen(self, pages: Sequence[MaintenancePlan]) -> list[Run]:
        """Some neighbours of one partition, often its newest: those whose commit may not have been told."""
        results: dict[PartitionId, list[Run]] = {}
        for page in pages:
            if page.topic.topic_id == pages[0].topic.topic_id:
                for each in page.partitions:
                    results.setdefault(each.plan.partition, []).extend(each.plan.runs)
        several = [runs for runs in results.values() if runs]
        if not several:
            return []
        runs = self.chance.choice(several)
        count = min(len(runs), self.chance.choice((1, 2, 2, 3, 6)))
        first = len(runs) - count if self.chance.random() < 0.5 else self.chance.randrange(len(runs) - count + 1)
        return runs[first : first + count]

    # --- what takes its place

    async def _rewrite(self, topic: str, pages: Sequence[MaintenancePlan]) -> RunReplacementRequest | None:
        runs = self._chosen(pages)
        if not runs:
            return None
        partition = runs[0].partition
        work = RewriteTask(
            job=str(self._ids.uuid()),
            store="",
            topic=topic,
            topic_id=str(partition.topic_id),
            partition=partition.partition,
            runs=tuple(map(_row, runs)),
        )
        weather = self.chance.choice(self.world.weathers)
        bucket = ObjectDoor(self.loop, self.world.bucket, self.world.database, weather, detached=0.3)
        fetched = await fetch(bucket, work.runs)
        sources = [fetched.source(row, work.id) for row in work.runs]
        rewritten = [RewrittenRun(source, fetched.batches(source)) for source in sources]
        request, _ = await store_replacement(bucket, work, rewritten, clock=self.world.clock, ids=self._ids)
        assert request.segment is not None
        return RunReplacementRequest(
            name=TopicPartition(topic, partition.partition),
            topic_id=partition.topic_id,
            expected=[_expected(run) for run in runs],
            commit=_commit(request.segment, partition),
            cleaned_to=None,
        )

    # --- asking for it

    async def _register(self, wanted: RunReplacementRequest) -> None:
        """Ask until told, each time anybody; then perhaps again, when much has happened."""
        assert wanted.commit is not None
        span = f"{wanted.name} [{wanted.expected[0].base}, {wanted.expected[-1].end})"
        for _ in range(TRIES):
            if self.chance.random() < 0.3:
                self.hang_up(politely=True)
            is_told = await self._ask(wanted)
            if is_told is not None:
                break
            await self.pause(0.2)
        else:
            return  # a driver that nobody answers gives up; either is well
        if not is_told:
            self.came_late += 1
            return
        self.replaced += 1
        self.loop.note(f"replaced {span} by {wanted.commit.segment.key}")
        self.world.check_rows()
        if self.chance.random() < 0.2:
            await self._dawdle()
            await self._ask(wanted)
            self.world.check_rows()

    async def _ask(self, wanted: RunReplacementRequest) -> bool | None:
        """Whether it has happened; None when nobody tells."""
        patience_s = self.chance.choice((0.02, PATIENCE_S, PATIENCE_S)) if not self.world.is_quiet else PATIENCE_S
        try:
            count = await self.call(
                simply(lambda broker: broker.maintenance.replacements.replace(wanted)), patience_s=patience_s
            )
        except (RunsChanged, UnknownTopic):
            return False
        except CommitRefused as error:
            self._refused(wanted, error)
            return False
        except (StreamhouseError, Lost) as error:
            if isinstance(error, Rejected):
                self.history.violated(f"a good replacement was refused for good; {self.name} {error!r}")
            return None
        if count != len(wanted.expected):
            self.history.violated(f"other runs went than were asked for; {self.name} {count} {wanted}")
        return True

    def _refused(self, wanted: RunReplacementRequest, error: CommitRefused) -> None:
        """For good only where the object has expired, or its bytes were wrong on their way."""
        if not any(why in str(error) for why in ("has expired", "not in the object store", "can't be read")):
            self.history.violated(f"a good replacement was refused for good; {self.name} {error!r} {wanted}")


def _row(run: Run) -> RunRow:
    return RunRow(
        key=run.object_key,
        base=run.base,
        end=run.end,
        epoch=run.epoch,
        stored_base=run.stored_base,
        position=run.position,
        length=run.length,
        index_position=run.index_position,
        index_length=run.index_length,
        records=run.records,
        max_timestamp_ms=run.max_timestamp_ms,
    )


def _expected(run: Run) -> ExpectedRun:
    return ExpectedRun(object_key=run.object_key, base=run.base, end=run.end, epoch=run.epoch)


def _commit(asked: ReplacingSegment, partition: PartitionId) -> SegmentCommit:
    """As the wire reads what a job sends."""
    segment = SegmentObject(key=asked.key, size_bytes=asked.size_bytes, created_at_ms=asked.created_at_ms)
    runs = [
        Run(
            partition=partition,
            base=run.base,
            end=run.end,
            stored_base=run.base,
            epoch=Epoch(run.epoch),
            object_key=asked.key,
            position=run.position,
            length=run.length,
            index_position=run.index_position,
            index_length=run.index_length,
            records=run.records,
            max_timestamp_ms=run.max_timestamp_ms,
        )
        for run in asked.runs
    ]
    return SegmentCommit(segment=segment, runs=tuple(runs))
