"""Agents with a disk each on one pair of stores: who dies takes its disk along, who comes back brings it."""

import asyncio
import random
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from streamhouse.broker.broker import Broker
from streamhouse.broker.wal.disk_recovery import DiskWalFactory
from streamhouse.config.fields import Address
from streamhouse.errors import Retriable, Unavailable
from streamhouse.format.batch import Buffer
from streamhouse.model.fetch import OffsetResult
from streamhouse.model.names import PartitionId, SessionId, TopicPartition
from streamhouse.stores.metadata.base import MetadataStore
from tests.broker.support import WAL_ROOT, Faulty, World, current, produce, values_of
from tests.simulation.files import SimFiles


class _Line(Faulty):
    """A host's connection to the metadata store, which can be cut."""

    def __init__(self, inner: object) -> None:
        super().__init__(inner)
        self.is_cut = False

    async def _before(self, name: str, args: tuple[Any, ...]) -> None:
        if self.is_cut:
            raise Unavailable(f"cut off; call={name}")
        await super()._before(name, args)


class DiskAgent:
    """One host: its address and its disk stay, its processes come and go."""

    def __init__(self, cluster: "DiskCluster", number: int) -> None:
        self._cluster = cluster
        self._files = SimFiles(random.Random(number))
        self.address = Address("127.0.0.1", 9000 + number)
        self.metadata = _Line(cluster.world.sqlite)
        self.broker: Broker | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_up(self) -> bool:
        return self._task is not None and not self._task.done()

    @property
    def session_id(self) -> SessionId:
        return current(self.up).session.session_id

    @property
    def up(self) -> Broker:
        assert self.broker is not None
        return self.broker

    async def start(self) -> Broker:
        world = self._cluster.world
        wals = DiskWalFactory(WAL_ROOT, world.settings.wal, files=self._files, clock=world.clock, ids=world.ids)
        self.broker = Broker(
            world.dependencies(
                single_agent=False,
                metadata=cast(MetadataStore, self.metadata),
                wal_factory=wals,
                kafka=self.address,
                agents=self._cluster,
            )
        )
        await self.broker.start()
        self._task = world.run(self.broker)
        await self._cluster.pass_time(0.2)
        return self.broker

    async def kill(self) -> None:
        """The process dies at once; what it wrote to its disk is there."""
        assert self._task is not None
        self._files = self._files.kill()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def logs_on_disk(self) -> list[str]:
        return self.files_in(WAL_ROOT)

    def files_in(self, path: Path) -> list[str]:
        return self._files.list(path)

    def spoil(self, session: SessionId, was: bytes, becomes: bytes) -> list[Path]:
        """Bytes of a log rot; returns the files that had them."""
        results: list[Path] = []
        for name in self._files.list(WAL_ROOT / session):
            path = WAL_ROOT / session / name
            if was in (data := self._files.read(path)):
                self._files.overwrite(path, data.replace(was, becomes))
                results.append(path)
        return results


class DiskCluster:
    """Implements `AgentClient`: every running agent responds at its address."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.hosts: list[DiskAgent] = []
        self.forwarded = 0

    async def host(self) -> DiskAgent:
        self.hosts.append(DiskAgent(self, len(self.hosts) + 1))
        await self.hosts[-1].start()
        return self.hosts[-1]

    def up(self) -> list[DiskAgent]:
        return [each for each in self.hosts if each.is_up]

    async def pass_time(self, seconds: float, *, step: float = 0.1) -> None:
        for _ in range(round(seconds / step)):
            await self.world.clock.advance(step)

    async def append(self, at: Address, partition: PartitionId, batch: Buffer) -> int:
        for each in self.up():
            if each.address == at:
                data = memoryview(bytearray(batch))
                topic = await each.up.catalog.find_by_id(partition.topic_id)
                pending = await each.up.append(TopicPartition(topic.name, partition.partition), data)
                await each.up.acknowledge(pending)
                self.forwarded += 1
                return pending.base_offset
        raise Unavailable(f"nobody listens; address={at}")

    async def offset(
        self, at: Address, name: TopicPartition, timestamp_ms: int, *, committed: bool = False, timeout_s: float
    ) -> OffsetResult | None:
        for each in self.up():
            if each.address == at:
                return await each.up.latest(name, committed=committed)
        raise Unavailable(f"nobody listens; address={at}")

    async def leader(self, name: TopicPartition) -> DiskAgent | None:
        """The leader, as any running agent reports it."""
        request = self.up()[0].up
        topic = await request.topic(name.topic)
        result = (await request.leaders([topic]))[PartitionId(topic.topic_id, name.partition)].session
        return next((each for each in self.hosts if result is not None and each.address == result.kafka), None)

    async def led_by(self, host: DiskAgent, names: list[TopicPartition]) -> list[TopicPartition]:
        return [name for name in names if await self.leader(name) is host]

    async def try_produce(self, name: TopicPartition, data: memoryview) -> int | None:
        """One attempt of a client; None if it was rejected, or the response was lost."""
        host = await self.leader(name)
        if host is None or not host.is_up:
            await self.world.clock.advance(0.1)
            return None
        work = asyncio.ensure_future(produce(host.up, data, name))
        while not work.done():
            await self.world.clock.advance(0.02)
        try:
            return work.result().base_offset
        except Retriable:
            await self.world.clock.advance(0.1)
            return None

    async def produce(self, name: TopicPartition, data: memoryview, *, tries: int = 2000) -> int:
        for _ in range(tries):
            if (offset := await self.try_produce(name, memoryview(bytearray(data)))) is not None:
                return offset
        raise AssertionError(f"{name} could not be written in {tries} tries")

    async def read(self, name: TopicPartition) -> dict[int, bytes | None]:
        """Everything from the log start on, as a consumer gets it."""
        for _ in range(1000):
            host = await self.leader(name)
            if host is not None and host.is_up:
                with suppress(Retriable):
                    return await values_of(host.up, name)
            await self.world.clock.advance(0.1)
        raise AssertionError(f"{name} could not be read")
