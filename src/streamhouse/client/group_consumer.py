"""Group consumer: records of a topic, shared with the other members of a group.

Data path   an agent's Kafka listener -> **group consumer** -> command line
Owns        being a member; committing what the caller is done with, and nothing else
Leaves      joining, assigning and fetching to aiokafka; when to stop to the caller
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError

from streamhouse.client.consumer import record_of
from streamhouse.client.failures import no_agent, translated
from streamhouse.client.nouns import Record

CLOSE_S: Final = 5.0
SESSION_S: Final = 10.0


class GroupConsumer:
    """At least once: a record counts as read when `done` was told of it and its offset is committed."""

    def __init__(
        self, bootstrap: str, topic: str, *, group: str, from_beginning: bool, timeout_s: float = 30.0
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._group = group
        self._from_beginning = from_beginning
        self._timeout_s = timeout_s
        self._kafka: Any = None
        self._uncommitted: dict[Any, int] = {}
        self._rounds = _Rounds()

    def __repr__(self) -> str:
        return f"<GroupConsumer {self._topic} {self._group} {self._bootstrap} {'open' if self._kafka else 'closed'}>"

    async def __aenter__(self) -> Self:
        kafka = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            client_id="streamhouse-consumer",
            group_id=self._group,
            enable_auto_commit=False,
            auto_offset_reset="earliest" if self._from_beginning else "latest",
            isolation_level="read_committed",
            request_timeout_ms=int(self._timeout_s * 1000),
            session_timeout_ms=int(SESSION_S * 1000),
            max_partition_fetch_bytes=4 * 1024 * 1024,
        )
        kafka.subscribe([self._topic], listener=self._rounds)
        try:
            async with asyncio.timeout(self._timeout_s):
                with translated(bootstrap=self._bootstrap, subject=self._topic):
                    await kafka.start()
        except TimeoutError:
            await kafka.stop()
            raise no_agent(self._bootstrap) from None
        except BaseException:
            await kafka.stop()
            raise
        self._kafka = kafka
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit what is left of what was done, and leave the group, as far as the agent lets us."""
        kafka, self._kafka = self._kafka, None
        with suppress(TimeoutError, KafkaError):
            async with asyncio.timeout(CLOSE_S):
                if self._uncommitted:
                    await kafka.commit(self._uncommitted)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await kafka.stop()

    async def poll(self, *, max_records: int, timeout_s: float) -> list[Record]:
        """Records that are there, or that come within the time; in order within each partition."""
        with translated(bootstrap=self._bootstrap, subject=self._topic):
            found = await self._kafka.getmany(timeout_ms=int(timeout_s * 1000), max_records=max_records)
        return [record_of(record) for records in found.values() for record in records]

    async def done(self, records: Iterable[Record]) -> None:
        """Commit the places behind these records. Where the group has moved on without us, others read them again."""
        for record in records:
            self._uncommitted[TopicPartition(self._topic, record.partition)] = record.offset + 1
        if self._uncommitted:
            with suppress(KafkaError):
                await self._kafka.commit(self._uncommitted)
            self._uncommitted = {}

    async def positions(self) -> dict[int, int] | None:
        """Per partition of ours the offset of the next record; None until the group has given us our share."""
        if not self._rounds.done:
            return None
        with translated(bootstrap=self._bootstrap, subject=self._topic):
            return {part.partition: await self._kafka.position(part) for part in self._kafka.assignment()}


class _Rounds(ConsumerRebalanceListener):  # type: ignore[misc]
    """Counts how often the group gave us our share."""

    def __init__(self) -> None:
        self.done = 0

    def on_partitions_revoked(self, revoked: Any) -> None:
        return None

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.done += 1
