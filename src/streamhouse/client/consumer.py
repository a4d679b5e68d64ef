"""Consumer: records of a topic's partitions, read from given offsets on.

Data path   an agent's Kafka listener -> **consumer** -> command line
Owns        partitions assigned by hand, and where each one stands
Leaves      fetching and decompression to aiokafka; when to stop to the caller
"""

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, TopicPartition

from streamhouse.client.failures import no_agent, translated
from streamhouse.client.nouns import Record


class Consumer:
    """Starts at `starts`: partition to offset. Reads committed records only."""

    def __init__(self, bootstrap: str, topic: str, *, starts: Mapping[int, int], timeout_s: float = 30.0) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._starts = {TopicPartition(topic, number): offset for number, offset in starts.items()}
        self._timeout_s = timeout_s
        self._kafka: Any = None

    def __repr__(self) -> str:
        return f"<Consumer {self._topic} {self._bootstrap} {'open' if self._kafka else 'closed'}>"

    async def __aenter__(self) -> Self:
        kafka = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            client_id="streamhouse-consumer",
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            request_timeout_ms=int(self._timeout_s * 1000),
            max_partition_fetch_bytes=4 * 1024 * 1024,
        )
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
        kafka.assign(list(self._starts))
        for partition, offset in self._starts.items():
            kafka.seek(partition, offset)
        self._kafka = kafka
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._kafka.stop()
        self._kafka = None

    async def poll(self, *, max_records: int, timeout_s: float) -> list[Record]:
        """Records that are there, or that come within the time; in order within each partition."""
        with translated(bootstrap=self._bootstrap, subject=self._topic):
            found = await self._kafka.getmany(timeout_ms=int(timeout_s * 1000), max_records=max_records)
        return [record_of(record) for records in found.values() for record in records]

    async def positions(self) -> dict[int, int]:
        """Per partition the offset of the next record that `poll` would give."""
        return {partition.partition: await self._kafka.position(partition) for partition in self._starts}


def record_of(told: Any) -> Record:
    return Record(
        partition=told.partition,
        offset=told.offset,
        timestamp_ms=told.timestamp,
        key=told.key,
        value=told.value,
        headers=tuple(told.headers),
    )
