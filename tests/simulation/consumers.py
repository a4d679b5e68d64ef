"""Consumers: one that follows its partitions from the start, one that reads anywhere and asks for offsets by time.

Owns        positions, what is asked
Leaves      requests to `clients`, the verdict to `history`
"""

from collections.abc import Sequence

from streamhouse.broker.broker import Broker
from streamhouse.errors import OffsetOutOfRange, StreamhouseError
from streamhouse.model.fetch import OffsetResult, PartitionFetch
from streamhouse.model.names import TopicPartition

from .clients import Client, simply
from .network import Lost
from .world import World


class Follower(Client):
    """Reads everything in order; where the log has moved past it, goes on at the start."""

    speaks_kafka = True

    def __init__(
        self, world: World, name: str, partitions: Sequence[TopicPartition], *, is_committed: bool = False
    ) -> None:
        super().__init__(world, name)
        self.positions = dict.fromkeys(partitions, 0)
        self._is_committed = is_committed
        self.history.recorder.follows(name, partitions, is_committed=is_committed)

    async def run(self) -> None:
        while not self.world.is_quiet:
            await self.pause(0.05)
            await self.step(max_wait_s=self.chance.choice((0.0, 0.1, 1.0)))

    async def step(self, *, max_wait_s: float) -> None:
        order = list(self.positions)
        self.chance.shuffle(order)
        requests = [
            PartitionFetch(
                name, self.positions[name], self.chance.choice((1, 300, 5_000)), committed=self._is_committed
            )
            for name in order
        ]
        try:
            reads = await self.fetch(requests, max_bytes=100_000, min_bytes=1, max_wait_s=max_wait_s)
        except (StreamhouseError, Lost):
            return
        for read in reads:
            if isinstance(read.got.error, OffsetOutOfRange):
                await self._reset(read.got.name)
            else:
                self.positions[read.got.name] = read.end

    async def _reset(self, name: TopicPartition) -> None:
        try:
            earliest = await self.call(simply(lambda broker: broker.earliest(name)), at=name)
            self.positions[name] = earliest.offset
        except (StreamhouseError, Lost):
            return

    async def _end(self, broker: Broker, name: TopicPartition) -> OffsetResult:
        return await broker.latest(name, committed=self._is_committed)

    def _acknowledged_end(self, name: TopicPartition) -> int:
        """The end of what was acknowledged. A leader that was not told of a commit shows it only when it has looked."""
        partition = self.world.partition(name)
        return self.history.of(partition, name).acknowledged_end if partition is not None else 0

    async def catch_up(self) -> None:
        """Faults are over and nobody produces: reach the end of every partition."""
        for name in self.positions:
            while True:
                try:
                    latest = await self.call(
                        simply(lambda broker, name=name: self._end(broker, name)),  # type: ignore[misc]
                        at=name,
                    )
                except (StreamhouseError, Lost):
                    await self.pause(0.05)
                    continue
                if self.positions[name] >= max(latest.offset, self._acknowledged_end(name)):
                    break
                await self.step(max_wait_s=0.1)


class RandomReader(Client):
    """Reads at any offset, also in the middle of a batch, and asks which offset a time has."""

    def __init__(self, world: World, name: str, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(world, name)
        self._partitions = partitions

    async def run(self) -> None:
        while not self.world.is_quiet:
            await self.pause(0.1)
            name = self.chance.choice(self._partitions)
            try:
                acts = (self._read, self._read, self._read, self._ask_bounds, self._ask_time, self._delete_records)
                await self.chance.choice(acts)(name)
            except (StreamhouseError, Lost):
                continue

    async def _read(self, name: TopicPartition) -> None:
        partition = self.world.partition(name)
        if partition is None:
            return
        log = self.history.of(partition, name)
        offset = self.chance.randint(0, log.high_watermark + 1)
        is_committed = self.world.options.transactors > 0 and self.chance.random() < 0.5
        request = PartitionFetch(name, offset, self.chance.choice((1, 200, 2_000)), committed=is_committed)
        await self.fetch([request], max_bytes=100_000, min_bytes=self.chance.choice((0, 1, 500)), max_wait_s=0.2)

    async def _ask_bounds(self, name: TopicPartition) -> None:
        await self.call(simply(lambda broker: self._bounds(broker, name)), at=name)

    async def _bounds(self, broker: Broker, name: TopicPartition) -> None:
        partition = self.world.partition(name)
        if partition is None:
            return
        log = self.history.of(partition, name)
        before, led = log.before(), self.opened(broker, name)
        latest = await broker.latest(name)
        if self.speaks(broker, name, led):
            self.history.saw_bounds(log, before, high_watermark=latest.offset, log_start=before.log_start)
        before, led = log.before(), self.opened(broker, name)
        earliest = await broker.earliest(name)
        if self.speaks(broker, name, led):
            self.history.saw_bounds(log, before, high_watermark=before.high_watermark, log_start=earliest.offset)

    async def _delete_records(self, name: TopicPartition) -> None:
        if self.world.deletes(name):
            await self.call(simply(lambda broker: self._delete_some(broker, name)), at=name)

    async def _delete_some(self, broker: Broker, name: TopicPartition) -> None:
        """What was deleted once stays deleted, from the moment of the answer on."""
        partition = self.world.partition(name)
        if partition is None:
            return
        log = self.history.of(partition, name)
        before, led = log.before(), self.opened(broker, name)
        offset = self.chance.randint(0, log.high_watermark)
        log.deletion_requested = max(log.deletion_requested, offset)
        start = await broker.topic_admin.delete_records(name, offset)
        self.world.loop.note(f"delete {name} below {offset} -> {start}")
        if self.speaks(broker, name, led):
            self.history.saw_bounds(log, before, high_watermark=before.high_watermark, log_start=start)
        bounds = self.world.database.bounds(partition)
        if start < offset or (bounds is not None and bounds[0] < start):
            self.history.violated(f"records were said to be deleted; {name} offset={offset} start={start} {bounds}")

    async def _ask_time(self, name: TopicPartition) -> None:
        await self.call(simply(lambda broker: self._by_time(broker, name)), at=name)

    async def _by_time(self, broker: Broker, name: TopicPartition) -> None:
        partition = self.world.partition(name)
        if partition is None or self.world.stamps_append_time(name):
            return
        log = self.history.of(partition, name)
        known, led = list(log.facts.values()), self.opened(broker, name)
        if self.chance.random() < 0.3:
            got = await broker.at_max_timestamp(name)
            if not self.world.deletes(name) and self.speaks(
                broker, name, led
            ):  # where records are deleted, runs are no longer what they say
                self.history.found_latest(log, known, got)
            return
        time_ms = self.world.clock.now_ms() - self.chance.randrange(8000)
        got = await broker.at_time(name, time_ms)
        self.world.loop.note(f"time {name} {time_ms} -> {got}")
        if self.speaks(broker, name, led):
            self.history.found_by_time(log, known, time_ms, got)
