"""Producer ids: allocates new ones, and pools those under which this agent forwards batches.

`ProducerIdAllocator` reserves ids in the metadata store in blocks of a thousand. `ProducerIdPool` keeps, per
partition, the ids and next sequence numbers for batches that go to other agents, so that a retry stores nothing
twice.

A pooled id serves one call at a time, with no more batches than a leader remembers, so calls cannot disturb each
other's order. An id whose batch may or may not have been stored is never used again (decision 0012).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from streamhouse.broker.partition.producer_state import FIRST_KEY_ID, SEQUENCES
from streamhouse.config import AgentClientSettings
from streamhouse.errors import Internal
from streamhouse.model.names import PartitionId
from streamhouse.stores.metadata.base import MetadataStore

PRODUCER_ID_BLOCK: Final = 1000


class ProducerIdAllocator:
    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._block = range(0)
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<ProducerIdAllocator left={len(self._block)}>"

    async def take(self) -> int:
        async with self._lock:
            if not self._block:
                first = await self._metadata.allocate_producer_ids(PRODUCER_ID_BLOCK)
                if first + PRODUCER_ID_BLOCK > FIRST_KEY_ID:
                    raise Internal(f"producer ids are used up; first={first} limit={FIRST_KEY_ID}")
                self._block = range(first, first + PRODUCER_ID_BLOCK)
            taken, self._block = self._block[0], self._block[1:]
            return taken


class BatchIdentity(NamedTuple):
    """The identity of a batch, by which duplicates are recognised."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


@dataclass(slots=True, eq=False)
class PooledProducerId:
    partition: PartitionId
    producer_id: int
    sequence: int = 0

    @property
    def identity(self) -> BatchIdentity:
        return BatchIdentity(self.producer_id, 0, self.sequence)

    def at(self, sequence: int) -> "PooledProducerId":
        """A copy at a later sequence: for a batch that follows others that are not acknowledged yet."""
        return PooledProducerId(self.partition, self.producer_id, sequence % SEQUENCES)


@dataclass(slots=True, eq=False)
class _PartitionPool:
    slots: asyncio.Semaphore
    idle: list[PooledProducerId] = field(default_factory=list)
    in_use: int = 0


class ProducerIdPool:
    def __init__(self, settings: AgentClientSettings, *, allocate: Callable[[], Awaitable[int]]) -> None:
        self._settings = settings
        self._allocate = allocate
        self._partitions: OrderedDict[PartitionId, _PartitionPool] = OrderedDict()

    def __repr__(self) -> str:
        in_use = sum(pool.in_use for pool in self._partitions.values())
        return f"<ProducerIdPool partitions={len(self._partitions)} in_use={in_use}>"

    async def acquire(self, partition: PartitionId) -> PooledProducerId:
        """Take an idle producer id of the partition; waits while all of them are in use."""
        id_pool = self._of(partition)
        id_pool.in_use += 1
        try:
            await id_pool.slots.acquire()
        except BaseException:
            id_pool.in_use -= 1
            raise
        if id_pool.idle:
            return id_pool.idle.pop()  # the last one used: few ids are remembered by the leader when one is enough
        try:
            return PooledProducerId(partition, await self._allocate())
        except BaseException:
            self._free(id_pool)
            raise

    def stored(self, pooled: PooledProducerId, *, records: int) -> None:
        """Release the id after its batch was acknowledged."""
        pooled.sequence = (pooled.sequence + records) % SEQUENCES
        self.release(pooled)

    def release(self, pooled: PooledProducerId) -> None:
        """Make the id available again: no batch is or will be stored at its next sequence."""
        id_pool = self._partitions[pooled.partition]
        id_pool.idle.append(pooled)
        self._free(id_pool)

    def discard(self, pooled: PooledProducerId) -> None:
        """Never use the id again, because the outcome of its batch is unknown."""
        self._free(self._partitions[pooled.partition])

    @staticmethod
    def _free(id_pool: _PartitionPool) -> None:
        id_pool.in_use -= 1
        id_pool.slots.release()

    def _of(self, partition: PartitionId) -> _PartitionPool:
        id_pool = self._partitions.get(partition)
        if id_pool is None:
            self._evict_idle()
            id_pool = self._partitions[partition] = _PartitionPool(asyncio.Semaphore(self._settings.lanes))
        self._partitions.move_to_end(partition)
        return id_pool

    def _evict_idle(self) -> None:
        """Forget partitions that were not written to for long. Their ids are never used again, so nothing is lost."""
        if len(self._partitions) < self._settings.lane_partitions:
            return
        idle = next((each for each, id_pool in self._partitions.items() if not id_pool.in_use), None)
        if idle is not None:
            del self._partitions[idle]
