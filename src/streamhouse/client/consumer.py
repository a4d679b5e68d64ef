"""Consumer: records of a topic's partitions, read from given offsets on.

Data path   an agent's Kafka listener -> **consumer** -> `reading`
Owns        partitions assigned by hand, and where each one stands
Leaves      fetching and decompression to aiokafka; where to start and when to stop to `reading`
"""

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from aiokafka import AIOKafkaConsumer, TopicPartition

from streamhouse.client.failures import no_agent, translated
from streamhouse.client.nouns import Record
from streamhouse.client.where import Where, found

FETCH_BYTES: Final = 16 * 1024 * 1024
PARTITION_FETCH_BYTES: Final = 4 * 1024 * 1024


class Consumer:
    """Starts at `starts`: partition to offset. Reads committed records only."""

    def __init__(self, where: Where, topic: str, *, starts: Mapping[int, int], timeout_s: float = 30.0) -> None:
        self._where = where
        self._topic = topic
        self._starts = {TopicPartition(topic, number): offset for number, offset in starts.items()}
        self._timeout_s = timeout_s
        self._bootstrap = ""
        self._kafka: Any = None

    def __repr__(self) -> str:
        return f"<Consumer {self._topic} {self._bootstrap} {'open' if self._kafka else 'closed'}>"

    async def __aenter__(self) -> Self:
        self._bootstrap = await found(self._where)
        kafka = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            client_id="streamhouse-consumer",
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            request_timeout_ms=int(self._timeout_s * 1000),
            fetch_max_bytes=FETCH_BYTES,
            max_partition_fetch_bytes=PARTITION_FETCH_BYTES,
        )
        await started(kafka, bootstrap=self._bootstrap, subject=self._topic, timeout_s=self._timeout_s)
        kafka.assign(list(self._starts))
        for partition, offset in self._starts.items():
            kafka.seek(partition, offset)
        self._kafka = kafka
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        kafka, self._kafka = self._kafka, None
        await kafka.stop()

    async def poll(self, *, max_records: int, timeout_s: float) -> list[Record]:
        """Records that are there, or that come within the time; in order within each partition."""
        with translated(bootstrap=self._bootstrap, subject=self._topic):
            fetched = await self._kafka.getmany(timeout_ms=int(timeout_s * 1000), max_records=max_records)
        return records_of(fetched)

    async def positions(self) -> dict[int, int]:
        """Per partition the offset of the next record that `poll` would give."""
        return {partition.partition: await self._kafka.position(partition) for partition in self._starts}


async def started(kafka: Any, *, bootstrap: str, subject: str, timeout_s: float) -> None:
    """Start one of aiokafka's consumers, or leave nothing behind."""
    try:
        async with asyncio.timeout(timeout_s):
            with translated(bootstrap=bootstrap, subject=subject):
                await kafka.start()
    except TimeoutError:
        await kafka.stop()
        raise no_agent(bootstrap) from None
    except BaseException:
        await kafka.stop()
        raise


def records_of(fetched: Mapping[Any, list[Any]]) -> list[Record]:
    return [
        Record(place.topic, place.partition, told.offset, told.timestamp, told.key, told.value, told.headers)
        for place, records in fetched.items()
        for told in records
    ]
