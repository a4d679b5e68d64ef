"""Admin calls of a client: `client.topics`, `.groups`, `.transactions` and `.cluster`, with their defaults."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias, TypeVar

from streamhouse.client.group_lag import partition_lags
from streamhouse.client.http import Http
from streamhouse.client.kafka_admin import Admin
from streamhouse.client.kafka_groups import Groups
from streamhouse.client.reader import ReadRange, Start, decide_starts, select_partitions, time_ms
from streamhouse.client.types import (
    EARLIEST,
    LATEST,
    AgentStatus,
    Examination,
    Group,
    PartitionStatus,
    Segment,
    Topic,
    Transaction,
    TransactionAborted,
)
from streamhouse.clock import Clock, SystemClock
from streamhouse.errors import Retriable, TopicExists, UnknownTopic
from streamhouse.model.names import TopicPartition

T = TypeVar("T")

RETRY_S: Final = 5.0
PAUSE_S: Final = 0.1

At: TypeAlias = Literal["earliest", "latest"] | datetime
Value: TypeAlias = str | int | float | bool
Connect: TypeAlias = Callable[[], Awaitable[Admin]]


async def retry_read(admin: Connect, call: Callable[[Admin], Awaitable[T]], clock: Clock) -> T:
    """Retry a call that changes nothing while agents start, stop and hand over partitions."""
    deadline = clock.monotonic() + RETRY_S
    while True:
        try:
            return await call(await admin())
        except Retriable:
            if clock.monotonic() >= deadline:
                raise
        await clock.sleep(PAUSE_S)


class Topics:
    """Use it as `client.topics`."""

    def __init__(self, admin: Connect, *, clock: Clock | None = None) -> None:
        self._admin, self._clock = admin, clock or SystemClock()

    async def _read(self, call: Callable[[Admin], Awaitable[T]]) -> T:
        return await retry_read(self._admin, call, self._clock)

    async def create(
        self,
        name: str,
        *,
        partitions: int | None = None,
        config: Mapping[str, Value] | None = None,
        exist_ok: bool = False,
    ) -> Topic:
        """Create a topic; without `partitions`, the agents choose the number. Raises `TopicExists`."""
        admin = await self._admin()
        try:
            await admin.create_topic(name, partitions=partitions, configs=_texts(config or {}))
        except TopicExists:
            if not exist_ok:
                raise
        return await admin.new_topic(name)

    async def list(self, *, internal: bool = False) -> "list[Topic]":
        """All topics by name; `internal`: those of the platform as well."""
        return [topic for topic in await self._read(Admin.topics) if internal or not topic.internal]

    async def get(self, name: str) -> Topic:
        """One topic, with its partitions and their leaders; raises `UnknownTopic`."""
        return await self._read(lambda admin: admin.topic(name))

    async def delete(self, name: str, *, missing_ok: bool = False) -> None:
        """Delete a topic and its records."""
        try:
            await (await self._admin()).delete_topic(name)
        except UnknownTopic:
            if not missing_ok:
                raise

    async def config(self, name: str) -> dict[str, str | None]:
        """All settings of a topic, defaults included."""
        return {setting.name: setting.value for setting in await self._read(lambda admin: admin.configs(name)) or ()}

    async def configure(self, name: str, config: Mapping[str, Value | None]) -> None:
        """Change settings of a topic; None resets one to its default. Other settings stay."""
        nulls = {key: None for key, value in config.items() if value is None}
        texts = _texts({key: value for key, value in config.items() if value is not None})
        await (await self._admin()).alter_topic(name, {**texts, **nulls})

    async def grow(self, name: str, partitions: int) -> Topic:
        """Increase the number of partitions, which changes the partition of keys. It can't shrink."""
        admin = await self._admin()
        await admin.grow_topic(name, partitions)
        return await admin.topic(name)

    async def offsets(self, name: str, at: At = "latest") -> dict[int, int]:
        """Per partition the log start offset, the log end offset, or the offset of the first record at or after a time
        (-1: none)."""
        timestamp = time_ms(at) if isinstance(at, datetime) else {"earliest": EARLIEST, "latest": LATEST}[at]
        topic = await self.get(name)
        return await self._read(lambda admin: admin.offsets(topic, timestamp))


class ConsumerGroups:
    """Use it as `client.groups`."""

    def __init__(self, admin: Connect, *, clock: Clock | None = None) -> None:
        self._admin, self._clock = admin, clock or SystemClock()

    async def _read(self, call: Callable[[Groups], Awaitable[T]]) -> T:
        return await retry_read(self._admin, lambda admin: call(Groups(admin)), self._clock)

    async def _groups(self) -> Groups:
        return Groups(await self._admin())

    async def list(self) -> "list[Group]":
        """All groups by name."""
        return await self._read(Groups.all)

    async def get(self, group: str) -> Group:
        """One group with its members; raises `GroupNotFound`."""
        return await self._read(lambda groups: groups.describe(group))

    async def committed(self, group: str) -> dict[TopicPartition, int]:
        """Every offset that a group has committed."""
        return await self._read(lambda groups: groups.committed(group))

    async def lag(self, group: str) -> dict[TopicPartition, int]:
        """How many offsets a group is behind, in all partitions of topics in which it has committed or that its members
        read. Without a committed offset, the lag counts from the log start. Deleted topics are left out."""
        admin = await self._admin()
        lags = await partition_lags(admin, Groups(admin), await self.get(group))
        return {lag.partition: lag.lag for lag in lags}

    async def reset(self, group: str, topic: str, to: Start = "earliest") -> dict[TopicPartition, int]:
        """Set the committed offsets of a group without members for a topic; returns them. Raises `NonEmptyGroup`."""
        admin = await self._admin()
        described = await admin.topic(topic)
        partitions = select_partitions(topic, {p.partition for p in described.partitions}, ReadRange(from_=to))
        earliest, latest = (
            await admin.offsets(described, EARLIEST, partitions),
            await admin.offsets(described, LATEST, partitions),
        )
        at_time = await admin.offsets(described, time_ms(to), partitions) if isinstance(to, datetime) else {}
        starts = decide_starts(to, topic=topic, earliest=earliest, latest=latest, at_time=at_time)
        offsets = {TopicPartition(topic, number): offset for number, offset in sorted(starts.items())}
        await (await self._groups()).commit(group, offsets)
        return offsets

    async def delete(self, group: str) -> None:
        """Delete a group that has no members, with its committed offsets."""
        await (await self._groups()).delete(group)


class Transactions:
    """Use it as `client.transactions`: transactions of the producers of any Kafka client."""

    def __init__(self, http: Http) -> None:
        self._http = http

    async def list(
        self, *, state: str | None = None, open_for: timedelta | None = None, limit: int = 1000
    ) -> "list[Transaction]":
        """The first `limit` transactions by transactional id, in a state (Kafka's name) or open for longer than
        `open_for`."""
        open_for_ms = -1 if open_for is None else round(open_for.total_seconds() * 1000)
        return await self._http.transactions(state=state, open_for_ms=open_for_ms, limit=limit)

    async def get(self, transactional_id: str) -> Transaction:
        """A transaction with its partitions; raises `TransactionalIdNotFound`."""
        return await self._http.transaction(transactional_id)

    async def abort(self, transactional_id: str) -> TransactionAborted:
        """Fence the producer and abort its open transaction; raises `TransactionalIdNotFound`."""
        return await self._http.abort_transaction(transactional_id)


class ClusterView:
    """Use it as `client.cluster`."""

    def __init__(self, http: Http) -> None:
        self._http = http

    async def agents(self) -> list[AgentStatus]:
        """Every agent whose session has not ended, by node."""
        return await self._http.agents()

    async def bootstrap(self) -> str:
        """The Kafka addresses of the live agents, for other Kafka clients."""
        return await self._http.bootstrap()

    async def partitions(self, topic: str | None = None) -> list[PartitionStatus]:
        """Partitions by topic and number, with leader, preferred leader and offsets."""
        return await self._http.partitions(topic)

    async def segments(self, topic: str | None = None, *, limit: int = 1000) -> list[Segment]:
        """The first `limit` registered segments by topic, partition and offset."""
        return await self._http.segments(topic, limit=limit)

    async def drain(self, node: int, *, undo: bool = False) -> list[AgentStatus]:
        """Drain an agent, or with `undo` let it lead partitions again."""
        return await self._http.drain(node, draining=not undo)

    async def move(self, topic: str, partition: int, node: int | None) -> PartitionStatus:
        """Pin a partition to an agent; None removes the pin."""
        return await self._http.move(topic, partition, node)

    async def examine(self) -> Examination:
        """Run the checks of an agent, on itself and on the shared stores."""
        return await self._http.examine()


def _texts(config: Mapping[str, Value]) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in config.items()}
