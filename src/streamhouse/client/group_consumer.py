"""Group consumer: records of topics, shared with the other members of a consumer group.

Commits the offsets of records that the caller has finished with, and no others. Joining, assignment and fetching are
aiokafka's.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka import TopicPartition as KafkaTopicPartition
from aiokafka.errors import KafkaError

from streamhouse.client.addresses import Bootstrap, resolve_bootstrap
from streamhouse.client.consumer import FETCH_BYTES, PARTITION_FETCH_BYTES
from streamhouse.client.credentials import NO_CREDENTIALS, Credentials
from streamhouse.client.kafka_errors import no_agent, translate_errors
from streamhouse.client.kafka_security import connection_options, explain_failure
from streamhouse.client.serde import SchemaReader
from streamhouse.client.types import Record
from streamhouse.clock import Clock, SystemClock
from streamhouse.errors import Unavailable
from streamhouse.model.names import TopicPartition

CLOSE_S: Final = 5.0
SESSION_S: Final = 10.0
POLL_S: Final = 1.0
POLL_RECORDS: Final = 2_000
COMMIT_S: Final = 5.0

Commit: TypeAlias = Literal["auto", "explicit"]


class GroupConsumer:
    """At least once: a record counts as read when its offset is committed.

    When iterating, `auto` commits a record once the loop asks for the next one, every few seconds and at the end;
    records that the loop was processing when it failed are read again. `explicit` commits only in `commit`.
    """

    def __init__(
        self,
        bootstrap: Bootstrap,
        topics: str | Sequence[str],
        *,
        group: str,
        from_beginning: bool,
        commit: Commit = "auto",
        reader: SchemaReader | None = None,
        timeout_s: float = 30.0,
        credentials: Credentials = NO_CREDENTIALS,
        clock: Clock | None = None,
    ) -> None:
        self._given_bootstrap = bootstrap
        self._credentials = credentials
        self._topics = [topics] if isinstance(topics, str) else list(topics)
        self._group = group
        self._from_beginning = from_beginning
        self._auto = commit == "auto"
        self._reader = reader
        self._timeout_s = timeout_s
        self._clock = clock or SystemClock()
        self._bootstrap = ""
        self._kafka: Any = None
        self._handed_out: dict[tuple[str, int], int] = {}
        self._uncommitted: dict[tuple[str, int], int] = {}
        self._commit_at = 0.0
        self._rebalances = _RebalanceListener(self)

    def __repr__(self) -> str:
        state = "open" if self._kafka else "closed"
        return f"<GroupConsumer {','.join(self._topics)} {self._group} {self._bootstrap} {state}>"

    async def __aenter__(self) -> Self:
        self._bootstrap = await resolve_bootstrap(self._given_bootstrap)
        kafka = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            client_id="streamhouse-consumer",
            group_id=self._group,
            enable_auto_commit=False,
            auto_offset_reset="earliest" if self._from_beginning else "latest",
            isolation_level="read_committed",
            request_timeout_ms=int(self._timeout_s * 1000),
            session_timeout_ms=int(SESSION_S * 1000),
            fetch_max_bytes=FETCH_BYTES,
            max_partition_fetch_bytes=PARTITION_FETCH_BYTES,
            **connection_options(self._credentials),
        )
        self._kafka = kafka
        kafka.subscribe(self._topics, listener=self._rebalances)
        try:
            await _started(kafka, bootstrap=self._bootstrap, subject=self._group, timeout_s=self._timeout_s)
        except Unavailable as error:
            self._kafka = None
            raise await explain_failure(self._bootstrap, self._credentials) or error from None
        except BaseException:
            self._kafka = None
            raise
        self._commit_at = self._clock.monotonic() + COMMIT_S
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Try to commit the offsets of processed records, and leave the group."""
        with suppress(TimeoutError, KafkaError):
            async with asyncio.timeout(CLOSE_S):
                await self._commit_done()
        kafka, self._kafka = self._kafka, None
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await kafka.stop()

    # --- as an iterator

    async def __aiter__(self) -> AsyncIterator[Record]:
        while True:
            assignment_id, records = await self.take()
            for record in records:
                if assignment_id != self.assignment_id:  # rebalanced: the new owner reads the rest again
                    break
                self._handed_out[record[:2]] = record.offset + 1
                yield record
                if self._auto and assignment_id == self.assignment_id:
                    self._uncommitted[record[:2]] = record.offset + 1
                    if self._clock.monotonic() >= self._commit_at:
                        await self._commit_when_due()

    @property
    def assignment_id(self) -> int:
        """The number of the current assignment; it changes with every rebalance."""
        return self._rebalances.assignments

    @property
    def commits_at(self) -> float | None:
        """When the next commit is due, by the monotonic clock; None if only `commit` commits."""
        return self._commit_at if self._auto else None

    async def take(self) -> tuple[int, list[Record]]:
        """Return the next records, at least one, and the assignment that they belong to."""
        while True:
            assignment_id = self.assignment_id
            records = await self.poll(max_records=POLL_RECORDS, timeout_s=POLL_S)
            if records and assignment_id == self.assignment_id:
                return assignment_id, records
            await self._commit_when_due()

    async def finish(self, assignment_id: int, records: Iterable[Record]) -> None:
        """Mark records as processed. Their offsets are committed soon, unless the group was rebalanced since."""
        if assignment_id == self.assignment_id:
            self._note(records)
        await self._commit_when_due()

    async def commit(self, record: Record | Iterable[Record] | None = None) -> None:
        """Commit the offsets of all records returned so far, or of one partition up to and including this record.

        Raises if the group was rebalanced without this member: the new owners read the records again.
        """
        if record is None:
            self._uncommitted.update(self._handed_out)
        else:
            self._note((record,) if isinstance(record, Record) else record)
        with translate_errors(bootstrap=self._bootstrap, subject=self._group):
            await self._commit_done()

    def _note(self, records: Iterable[Record]) -> None:
        for record in records:
            self._uncommitted[record[:2]] = record.offset + 1

    async def _commit_when_due(self) -> None:
        if self._uncommitted and self._clock.monotonic() >= self._commit_at:
            with suppress(KafkaError):  # after a rebalance without this member, the new owners read the records again
                await self._commit_done()

    async def _commit_done(self) -> None:
        self._commit_at = self._clock.monotonic() + COMMIT_S
        done, self._uncommitted = self._uncommitted, {}
        if done:
            await self._kafka.commit({KafkaTopicPartition(*partition): offset for partition, offset in done.items()})

    # --- by hand

    async def poll(self, *, max_records: int, timeout_s: float) -> list[Record]:
        """Return buffered records, or wait for some until the timeout; in order within each partition."""
        with translate_errors(bootstrap=self._bootstrap, subject=self._group):
            fetched = await self._kafka.getmany(timeout_ms=int(timeout_s * 1000), max_records=max_records)
        records = _records_of(fetched)
        return records if self._reader is None else await self._reader.read(records)

    async def done(self, records: Iterable[Record]) -> None:
        """Commit the offsets after these records. After a rebalance without this member, the new owners read them
        again."""
        self._note(records)
        with suppress(KafkaError):
            await self._commit_done()

    async def positions(self) -> dict[TopicPartition, int] | None:
        """Per assigned partition the offset of the next record; None before the first assignment."""
        if not self._rebalances.assignments:
            return None
        with translate_errors(bootstrap=self._bootstrap, subject=self._group):
            ours = self._kafka.assignment()
            return {TopicPartition(part.topic, part.partition): await self._kafka.position(part) for part in ours}

    async def commit_before_rebalance(self) -> None:
        """Commit processed records while the partitions are still assigned; others are read again."""
        self._handed_out.clear()
        with suppress(KafkaError):
            await self._commit_done()


class _RebalanceListener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Counts assignments, and commits before partitions are revoked."""

    def __init__(self, consumer: GroupConsumer) -> None:
        self.assignments = 0
        self._consumer = consumer

    async def on_partitions_revoked(self, revoked: Any) -> None:
        if revoked:
            await self._consumer.commit_before_rebalance()

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.assignments += 1


async def _started(kafka: Any, *, bootstrap: str, subject: str, timeout_s: float) -> None:
    """Start one of aiokafka's consumers, or stop it again."""
    try:
        async with asyncio.timeout(timeout_s):
            with translate_errors(bootstrap=bootstrap, subject=subject):
                await kafka.start()
    except TimeoutError:
        await kafka.stop()
        raise no_agent(bootstrap) from None
    except BaseException:
        await kafka.stop()
        raise


def _records_of(fetched: Mapping[Any, list[Any]]) -> list[Record]:
    return [
        Record(
            partition.topic,
            partition.partition,
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            record.headers,
        )
        for partition, records in fetched.items()
        for record in records
    ]
