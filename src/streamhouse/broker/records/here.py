"""Here: what this room asks of the agent that it is in.

Owns        nothing; a narrow view of `Broker`, so that the room can be tested, and read, without all of it
Leaves      everything to `broker.broker`
"""

from collections.abc import Awaitable, Sequence
from typing import Protocol

from streamhouse.broker.catalogue import Catalogue
from streamhouse.broker.cluster.cluster import Cluster
from streamhouse.broker.groups import Groups
from streamhouse.broker.log import Placed
from streamhouse.broker.reading.fetch import Fetched, Wanted
from streamhouse.broker.reading.offsets import FoundOffset
from streamhouse.broker.tenure import Tenure
from streamhouse.model.lease import Session
from streamhouse.model.names import TopicPartition
from streamhouse.model.topic import Topic


class Here(Protocol):
    """Every call answers for what this agent leads or coordinates, and raises where another one does."""

    catalogue: Catalogue
    cluster: Cluster
    groups: Groups

    @property
    def tenure(self) -> Tenure | None: ...

    def agents(self) -> Sequence[Session]: ...

    async def topic(self, name: str, *, create: bool = False) -> Topic: ...

    def append(self, name: TopicPartition, data: memoryview) -> Awaitable[Placed]: ...

    async def acknowledge(self, placed: Placed) -> None: ...

    async def allocate_producer_id(self) -> int: ...

    async def fetch(
        self, wanted: Sequence[Wanted], *, max_bytes: int, min_bytes: int, max_wait_s: float
    ) -> list[Fetched]: ...

    async def earliest(self, name: TopicPartition) -> FoundOffset: ...

    async def latest(self, name: TopicPartition, *, committed: bool = False) -> FoundOffset: ...

    async def at_time(
        self, name: TopicPartition, timestamp_ms: int, *, committed: bool = False
    ) -> FoundOffset | None: ...
