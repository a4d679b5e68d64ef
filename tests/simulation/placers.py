"""Placers: queries that write segments themselves and have them placed, each commit again until it is told.

Owns        what a query's driver and its tasks do; agents that hold partitions for each other over the network
Leaves      requests to `clients`, the verdict to `history`
"""

import asyncio
import random
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from streamhouse.broker.external_commits.commit_request import ExternalCommitRequest, RunRequest, SegmentRequest
from streamhouse.config.fields import Address
from streamhouse.errors import CommitRefused, StreamhouseError, Unavailable
from streamhouse.format.batch import assign_offset
from streamhouse.format.object_keys import external_segment_key
from streamhouse.format.segment import RunInput, encode_segment
from streamhouse.model.external_commit import FreezeRequest, FrozenPartition, Outcome, QueryId, StoredCommit
from streamhouse.model.names import Epoch, TopicPartition
from streamhouse.model.segment import SegmentObject

from .clients import Client, simply
from .history import Sent
from .network import Begin, Connection, Lost, T
from .world import World

if TYPE_CHECKING:
    from .world import Agent

PATIENCE_S = 8.0


class SimHolders:
    """The `Holders` door of one agent."""

    def __init__(self, world: World, agent: "Agent") -> None:
        self._world = world
        self._agent = agent
        self._loss = world.options.placing_loss
        self._chance = random.Random(f"holders-{world.options.seed}-{agent.number}")

    async def hold(self, at: Address, asked: FreezeRequest, *, timeout_s: float) -> Sequence[FrozenPartition]:
        ask = simply(lambda broker: broker.freezes.hold(asked, timeout_s=timeout_s))
        return await self._ask(at, ask, timeout_s=timeout_s + 0.1)

    async def end_hold(self, at: Address, hold_id: str, outcome: Outcome, *, timeout_s: float) -> None:
        await self._ask(at, simply(lambda broker: broker.freezes.end(hold_id, outcome)), timeout_s=timeout_s)

    async def flush(self, at: Address, topic: str, *, timeout_s: float) -> None:
        ask = simply(lambda broker: broker.maintenance.flushing.flush(topic, everywhere=False))
        await self._ask(at, ask, timeout_s=timeout_s)

    async def _ask(self, at: Address, begin: Begin[T], *, timeout_s: float) -> T:
        server = self._world.at(at.port)
        if server is None or self._chance.random() < self._loss:
            raise Unavailable("nobody answers")
        connection = Connection(self._world.loop, server, self._chance)
        try:
            async with asyncio.timeout(timeout_s):
                response = await asyncio.shield(connection.send(begin))
        except (Lost, TimeoutError, StreamhouseError) as error:
            raise Unavailable(f"no answer; why={error!r}") from None
        finally:
            connection.close()
        if self._chance.random() < self._loss:
            raise Unavailable("the answer was lost")
        return response


class Placer(Client):
    def __init__(self, world: World, name: str, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(world, name)
        self._partitions = partitions
        self._query = QueryId(str(uuid.UUID(int=self.chance.getrandbits(128))))
        self._epoch = 0

    async def run(self) -> None:
        while not self.world.is_quiet:
            await self.pause(self.chance.choice((0.05, 0.5)))
            await self._commit()
        await self._commit()

    async def _commit(self) -> None:
        """One micro-batch: the same records until the commit is told, in objects that may be written anew."""
        names = self.chance.sample(self._partitions, self.chance.randint(1, len(self._partitions)))
        batches = {name: [self.make(name) for _ in range(self.chance.choice((1, 1, 3)))] for name in names}
        commit: ExternalCommitRequest | None = None
        while True:
            if commit is None or self.chance.random() < 0.3:
                commit = await self._write(batches)
            try:
                done = await self._ask(commit)
            except CommitRefused:
                commit = None  # its objects were given up
            except (StreamhouseError, Lost) as error:
                if isinstance(error, StreamhouseError) and self.is_for_good(error):
                    self.history.violated(f"a good commit was refused for good; {self.name} {error!r}")
                await self.pause(0.2)
            else:
                self._told(batches, done)
                break
        if self.chance.random() < 0.2:
            await self._repeat(batches, done)
        self._epoch += self.chance.choice((1, 1, 2))

    async def _ask(self, commit: ExternalCommitRequest) -> StoredCommit:
        return await self.call(simply(lambda broker: broker.commits.commit(commit)), patience_s=PATIENCE_S)

    async def _repeat(self, batches: Mapping[TopicPartition, Sequence[Sent]], done: StoredCommit) -> None:
        """A driver that died after its commit does the work again."""
        try:
            again = await self._ask(await self._write(batches))
        except (StreamhouseError, Lost):
            return
        if again.placed != done.placed or not again.is_replayed:
            self.history.violated(f"a commit was told otherwise the second time; {done} {again}")

    def _told(self, batches: Mapping[TopicPartition, Sequence[Sent]], done: StoredCommit) -> None:
        bases = {TopicPartition(each.topic, each.partition.partition): each for each in done.placed}
        if bases.keys() != batches.keys():
            self.history.violated(f"a commit has other partitions than it was asked for; {self.name} {done}")
            return
        for name, each in batches.items():
            at = bases[name].base
            log = self.history.of(bases[name].partition, name)
            for sent in each:
                self.loop.note(f"placed {name} {sent.label} at {at}")
                self.history.placed(log, sent, at)
                at += sent.count

    async def _write(self, batches: Mapping[TopicPartition, Sequence[Sent]]) -> ExternalCommitRequest:
        """What a query's tasks do: segments straight into the bucket, with offsets from 0."""
        inputs: list[RunInput] = []
        for name, each in batches.items():
            partition = self.world.partition(name)
            assert partition is not None
            end, stored = 0, []
            for sent in each:
                data = bytearray(sent.data)
                assign_offset(memoryview(data), base_offset=end, leader_epoch=0)
                stored.append(data)
                end += sent.count
            inputs.append(RunInput(partition=partition, epoch=Epoch(0), base=0, end=end, batches=stored, producers=b""))
        encoded = encode_segment(inputs, block_bytes=300)
        key = external_segment_key(self._query, self._epoch, f"{self.chance.getrandbits(128):032x}")
        await self.world.bucket.put_new(key, encoded.body)
        runs = tuple(
            RunRequest(
                name=name,
                records=layout.entry.records,
                stored_base=0,
                stored_end=layout.entry.end,
                position=layout.entry.position,
                length=layout.entry.length,
                index_position=layout.entry.index_position,
                index_length=layout.entry.index_length,
                max_timestamp_ms=layout.entry.max_timestamp_ms,
            )
            for name, layout in zip(batches, encoded.layouts, strict=True)
        )
        segment = SegmentObject(key=key, size_bytes=encoded.size_bytes, created_at_ms=0)
        return ExternalCommitRequest(
            query=self._query,
            epoch=self._epoch,
            progress=None,
            segments=(SegmentRequest(segment=segment, runs=runs),),
        )
