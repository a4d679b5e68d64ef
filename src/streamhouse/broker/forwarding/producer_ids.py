"""Producer ids: numbers that nobody ever had, for producers that ask.

Data path   wire, or a lane to another agent -> **producer ids** -> metadata store, once in a thousand
Owns        the block that is being handed out
Leaves      what an id means to `producers`

Lanes: producer ids under which this agent forwards batches, so that a second try stores nothing twice.

Data path   delivery takes a **lane** for a batch that goes to another agent, and gives it back when it is acknowledged
Owns        which ids this agent uses for which partition, and their next sequence numbers
Leaves      recognising a duplicate to the leader's `producers`, ids to the metadata store

The batches of one call at a time travel in a lane, no more than a leader remembers: whatever happens to other calls,
there is no order to be lost and no window to fall out of. A lane whose batch may or may not have been stored is never
used again. Decision 0012 says why.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from streamhouse.broker.partition.producer_state import KEYS_FROM, SEQUENCES
from streamhouse.config import AgentClientSettings
from streamhouse.errors import Internal
from streamhouse.model.names import PartitionId
from streamhouse.stores.metadata.base import MetadataStore

PRODUCER_ID_BLOCK: Final = 1000


class ProducerIds:
    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._block = range(0)
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<ProducerIds left={len(self._block)}>"

    async def take(self) -> int:
        async with self._lock:
            if not self._block:
                first = await self._metadata.allocate_producer_ids(PRODUCER_ID_BLOCK)
                if first + PRODUCER_ID_BLOCK > KEYS_FROM:
                    raise Internal(f"producer ids are used up; first={first} limit={KEYS_FROM}")
                self._block = range(first, first + PRODUCER_ID_BLOCK)
            taken, self._block = self._block[0], self._block[1:]
            return taken


class Identity(NamedTuple):
    """What a batch is recognised by when it comes again."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


@dataclass(slots=True, eq=False)
class Lane:
    partition: PartitionId
    producer_id: int
    sequence: int = 0

    @property
    def identity(self) -> Identity:
        return Identity(self.producer_id, 0, self.sequence)

    def at(self, sequence: int) -> "Lane":
        """The same lane, further on: for a batch that follows others that are not acknowledged yet."""
        return Lane(self.partition, self.producer_id, sequence % SEQUENCES)


@dataclass(slots=True, eq=False)
class _Lanes:
    """Those of one partition."""

    places: asyncio.Semaphore
    idle: list[Lane] = field(default_factory=list)
    in_use: int = 0


class Lanes:
    def __init__(self, settings: AgentClientSettings, *, allocate: Callable[[], Awaitable[int]]) -> None:
        self._settings = settings
        self._allocate = allocate
        self._partitions: OrderedDict[PartitionId, _Lanes] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Lanes partitions={len(self._partitions)} in_use={sum(e.in_use for e in self._partitions.values())}>"

    async def take(self, partition: PartitionId) -> Lane:
        """A lane in which nothing travels; waits while all of the partition's are in use."""
        lanes = self._of(partition)
        lanes.in_use += 1
        try:
            await lanes.places.acquire()
        except BaseException:
            lanes.in_use -= 1
            raise
        if lanes.idle:
            return lanes.idle.pop()  # the last one used: few ids are remembered by the leader when one is enough
        try:
            return Lane(partition, await self._allocate())
        except BaseException:
            self._free(lanes)
            raise

    def stored(self, lane: Lane, *, records: int) -> None:
        """The lane's batch is acknowledged; the next one may follow it."""
        lane.sequence = (lane.sequence + records) % SEQUENCES
        self.give_back(lane)

    def give_back(self, lane: Lane) -> None:
        """Nothing was stored under the lane's next sequence, and nothing will be."""
        lanes = self._partitions[lane.partition]
        lanes.idle.append(lane)
        self._free(lanes)

    def drop(self, lane: Lane) -> None:
        """Nobody knows what became of the lane's batch."""
        self._free(self._partitions[lane.partition])

    @staticmethod
    def _free(lanes: _Lanes) -> None:
        lanes.in_use -= 1
        lanes.places.release()

    def _of(self, partition: PartitionId) -> _Lanes:
        lanes = self._partitions.get(partition)
        if lanes is None:
            self._make_room()
            lanes = self._partitions[partition] = _Lanes(asyncio.Semaphore(self._settings.lanes))
        self._partitions.move_to_end(partition)
        return lanes

    def _make_room(self) -> None:
        """Forget partitions that were not written to for long. Their ids are never used again, so nothing is lost."""
        if len(self._partitions) < self._settings.lane_partitions:
            return
        idle = next((each for each, lanes in self._partitions.items() if not lanes.in_use), None)
        if idle is not None:
            del self._partitions[idle]
