"""What the tests of transactions share: a producer that speaks to a broker, and readers of committed records."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from streamhouse.broker.broker import Broker
from streamhouse.broker.partition.log import PendingAppend
from streamhouse.broker.produce.append import ProduceTransaction
from streamhouse.config import TransactionSettings
from streamhouse.format.transactions import drop_aborted
from streamhouse.model.fetch import PartitionFetch
from streamhouse.model.names import TopicPartition
from streamhouse.model.transaction import ProducerIdentity, TransactionCall
from tests.broker.support import CLICKS, MANY_BYTES, ORDERS, World, batch, records_of
from tests.broker.wal.support import run_inline

TIMEOUT_MS = 10_000
SETTINGS = TransactionSettings(check_s=1.0, grace_s=3.0, end_wait_s=5.0)


@asynccontextmanager
async def running(**sections: Any) -> AsyncIterator[tuple[World, Broker]]:
    """A broker that runs, with two topics."""
    run_inline()
    world = World(transactions=sections.pop("transactions", SETTINGS), **sections)
    await world.sqlite.open()
    try:
        broker = await world.start_with(ORDERS, CLICKS)
        world.run(broker)
        await world.clock.advance(0)
        yield world, broker
    finally:
        await world.aclose()


class Producer:
    """As a client's transactional producer is, without anything that it does by itself."""

    def __init__(self, broker: Broker, name: str = "alice", *, modern: bool = False) -> None:
        self.broker = broker
        self.name = name
        self.modern = modern
        self.identity = ProducerIdentity(-1, -1)
        self._sequences: dict[TopicPartition, int] = {}

    @property
    def call(self) -> TransactionCall:
        return TransactionCall(self.name, self.identity)

    async def init(self, known: ProducerIdentity | None = None, *, timeout_ms: int = TIMEOUT_MS) -> "Producer":
        self._are(await self.broker.transactions.init_producer(self.name, timeout_ms, known))
        return self

    def _are(self, identity: ProducerIdentity) -> None:
        if identity != self.identity:
            self._sequences.clear()
        self.identity = identity

    async def add(self, *names: TopicPartition) -> None:
        outcomes = await self.broker.transactions.add_partitions(self.call, names)
        assert not any(outcomes.values()), outcomes

    async def place(self, *values: bytes, name: TopicPartition = ORDERS) -> PendingAppend:
        sequence = self._sequences.get(name, 0)
        data = batch(
            *values,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        pending = await self.broker.append(name, data, ProduceTransaction(self.name, enlists=self.modern))
        self._sequences[name] = sequence + len(values)
        return pending

    async def send(self, *values: bytes, name: TopicPartition = ORDERS) -> None:
        if not self.modern:
            await self.add(name)
        await self.broker.acknowledge(await self.place(*values, name=name))

    async def end(self, *, commit: bool) -> None:
        self._are(await self.broker.transactions.end(self.call, commit=commit, bump=self.modern))


async def committed(broker: Broker, name: TopicPartition = ORDERS) -> Sequence[bytes | None]:
    """The records that a read_committed consumer reads from the start."""
    results: list[bytes | None] = []
    offset = 0
    while True:
        request = PartitionFetch(name, offset, MANY_BYTES, committed=True)
        (got,) = await broker.fetch([request], max_bytes=MANY_BYTES, min_bytes=0, max_wait_s=0)
        if got.error is not None:
            raise got.error
        if not got.records:
            return results
        results += [record.value for record in records_of(drop_aborted(got.records, got.aborted))]
        offset = max(record.offset for record in records_of(got.records)) + 1
