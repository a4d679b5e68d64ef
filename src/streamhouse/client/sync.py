"""Synchronous client: the client for programs without an event loop; the same names, plain calls and iterators.

One `SyncClient` may be used from several threads; a consumer or an iterator belongs to one thread at a time.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self

from streamhouse.client.admin import At, ClusterView, ConsumerGroups, Topics, Transactions, Value
from streamhouse.client.client import Client
from streamhouse.client.credentials import Credentials
from streamhouse.client.group_consumer import Commit, GroupConsumer
from streamhouse.client.loop_thread import LoopThread
from streamhouse.client.producer import ProducerSettings
from streamhouse.client.reader import RecordReader, Start, Until
from streamhouse.client.schemas import Schemas
from streamhouse.client.serde import AnySchema
from streamhouse.client.sync_pipelines import SyncPipelines, SyncSql, SyncTables, SyncViews
from streamhouse.client.sync_producer import SyncProducer
from streamhouse.client.types import (
    Acks,
    AgentStatus,
    Compression,
    Examination,
    Group,
    NewSchema,
    PartitionStatus,
    Record,
    Schema,
    Segment,
    Topic,
    Transaction,
    TransactionAborted,
    Verdict,
)
from streamhouse.clock import SystemClock
from streamhouse.errors import Rejected
from streamhouse.model.names import TopicPartition

_DEFAULTS = ProducerSettings()


class SyncClient:
    """A StreamHouse cluster. `address` is the HTTP address of an agent, or of several: `a:8080,b:8080`.

    Use it in `with`.
    """

    def __init__(
        self, address: str = "localhost:8080", *, timeout_s: float = 30.0, credentials: Credentials | None = None
    ) -> None:
        self._client = Client(address, timeout_s=timeout_s, credentials=credentials)
        self._loop: LoopThread | None = None

    def __repr__(self) -> str:
        return f"<Sync{repr(self._client)[1:]}"

    def __enter__(self) -> Self:
        loop = LoopThread()
        try:
            loop.run(self._client.__aenter__())
        except BaseException:
            loop.close()
            raise
        self._loop = loop
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop, self._loop = self._opened(), None
        try:
            loop.run(self._client.__aexit__(kind, error, trace))
        finally:
            loop.close()

    def _opened(self) -> LoopThread:
        if self._loop is None:
            raise Rejected("the client is not open; use it in: with SyncClient(...) as client")
        return self._loop

    @property
    def topics(self) -> "SyncTopics":
        return SyncTopics(self._opened(), self._client.topics)

    @property
    def groups(self) -> "SyncGroups":
        return SyncGroups(self._opened(), self._client.groups)

    @property
    def transactions(self) -> "SyncTransactions":
        return SyncTransactions(self._opened(), self._client.transactions)

    @property
    def schemas(self) -> "SyncSchemas":
        return SyncSchemas(self._opened(), self._client.schemas)

    @property
    def cluster(self) -> "SyncCluster":
        return SyncCluster(self._opened(), self._client.cluster)

    @property
    def tables(self) -> SyncTables:
        return SyncTables(self._opened(), self._client.tables)

    @property
    def pipelines(self) -> SyncPipelines:
        return SyncPipelines(self._opened(), self._client.pipelines)

    @property
    def views(self) -> SyncViews:
        return SyncViews(self._opened(), self._client.views)

    @property
    def sql(self) -> SyncSql:
        return SyncSql(self._opened(), self._client.sql)

    def producer(
        self,
        topic: str,
        *,
        schema: AnySchema | None = None,
        key_schema: AnySchema | None = None,
        acks: Acks = _DEFAULTS.acks,
        compression: Compression = _DEFAULTS.compression,
        linger_ms: int = _DEFAULTS.linger_ms,
        batch_bytes: int = _DEFAULTS.batch_bytes,
        buffer_bytes: int = _DEFAULTS.buffer_bytes,
        timeout_s: float | None = None,
    ) -> SyncProducer:
        """Write to a topic: `with client.producer("orders") as producer`; see `Client.producer`."""
        producer = self._client.producer(
            topic,
            schema=schema,
            key_schema=key_schema,
            acks=acks,
            compression=compression,
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            buffer_bytes=buffer_bytes,
            timeout_s=timeout_s,
        )
        return SyncProducer(self._opened(), producer, buffer_bytes=buffer_bytes)

    def consume(
        self,
        topic: str,
        *,
        from_: Start = "earliest",
        until: Until = None,
        partitions: Sequence[int] | None = None,
        limit: int | None = None,
        decode: bool = False,
        decode_keys: bool = False,
    ) -> "SyncRecordReader":
        """Read a topic: `for record in client.consume("orders", until="end")`; see `Client.consume`."""
        reader = self._client.consume(
            topic,
            from_=from_,
            until=until,
            partitions=partitions,
            limit=limit,
            decode=decode,
            decode_keys=decode_keys,
        )
        return SyncRecordReader(self._opened(), reader)

    def consumer(
        self,
        topics: str | Sequence[str],
        *,
        group: str,
        from_: str = "earliest",
        commit: Commit = "auto",
        decode: bool = False,
        decode_keys: bool = False,
    ) -> "SyncGroupConsumer":
        """Read topics as a member of a group: `with client.consumer("orders", group="billing") as consumer`."""
        consumer = self._client.consumer(
            topics, group=group, from_=from_, commit=commit, decode=decode, decode_keys=decode_keys
        )
        return SyncGroupConsumer(self._opened(), consumer)


class SyncRecordReader:
    """Each iteration reads from the start."""

    def __init__(self, loop: LoopThread, reading: RecordReader) -> None:
        self._loop, self._reading = loop, reading

    def __repr__(self) -> str:
        return f"<Sync{repr(self._reading)[1:]}"

    def __iter__(self) -> Iterator[Record]:
        return self._loop.iterate(self._reading.batches())


class SyncGroupConsumer:
    """A member of a group; see `GroupConsumer`."""

    def __init__(self, loop: LoopThread, consumer: GroupConsumer) -> None:
        self._loop, self._consumer = loop, consumer
        self._clock = SystemClock()
        self._assignment_id = 0
        self._latest: dict[TopicPartition, Record] = {}

    def __repr__(self) -> str:
        return f"<Sync{repr(self._consumer)[1:]}"

    def __enter__(self) -> Self:
        self._loop.run(self._consumer.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._consumer.__aexit__(kind, error, trace))

    def __iter__(self) -> Iterator[Record]:
        while True:
            assignment_id, records = self._loop.run(self._consumer.take())
            if assignment_id != self._assignment_id:
                self._assignment_id, self._latest = assignment_id, {}
            yield from self._handed_out(assignment_id, records)

    def _handed_out(self, assignment_id: int, records: list[Record]) -> Iterator[Record]:
        """Yield records one by one; mark processed records when a commit is due, and at the end."""
        done: list[Record] = []
        try:
            for record in records:
                if assignment_id != self._consumer.assignment_id:
                    return
                self._latest[TopicPartition(record.topic, record.partition)] = record
                yield record
                due = self._consumer.commits_at
                if due is None:
                    continue
                done.append(record)
                if self._clock.monotonic() >= due:
                    self._loop.run(self._consumer.finish(assignment_id, done))
                    done = []
        finally:
            if done:
                self._loop.run(self._consumer.finish(assignment_id, done))

    def poll(self, *, max_records: int, timeout_s: float) -> list[Record]:
        return self._loop.run(self._consumer.poll(max_records=max_records, timeout_s=timeout_s))

    def commit(self, record: Record | Iterable[Record] | None = None) -> None:
        self._loop.run(self._consumer.commit(list(self._latest.values()) if record is None else record))


class SyncTopics:
    """Topics; see `Topics`."""

    def __init__(self, loop: LoopThread, topics: Topics) -> None:
        self._loop, self._topics = loop, topics

    def create(
        self,
        name: str,
        *,
        partitions: int | None = None,
        config: Mapping[str, Value] | None = None,
        exist_ok: bool = False,
    ) -> Topic:
        return self._loop.run(self._topics.create(name, partitions=partitions, config=config, exist_ok=exist_ok))

    def list(self, *, internal: bool = False) -> "list[Topic]":
        return self._loop.run(self._topics.list(internal=internal))

    def get(self, name: str) -> Topic:
        return self._loop.run(self._topics.get(name))

    def delete(self, name: str, *, missing_ok: bool = False) -> None:
        self._loop.run(self._topics.delete(name, missing_ok=missing_ok))

    def config(self, name: str) -> dict[str, str | None]:
        return self._loop.run(self._topics.config(name))

    def configure(self, name: str, config: Mapping[str, Value | None]) -> None:
        self._loop.run(self._topics.configure(name, config))

    def grow(self, name: str, partitions: int) -> Topic:
        return self._loop.run(self._topics.grow(name, partitions))

    def offsets(self, name: str, at: At = "latest") -> dict[int, int]:
        return self._loop.run(self._topics.offsets(name, at))


class SyncGroups:
    """Consumer groups; see `ConsumerGroups`."""

    def __init__(self, loop: LoopThread, groups: ConsumerGroups) -> None:
        self._loop, self._groups = loop, groups

    def list(self) -> "list[Group]":
        return self._loop.run(self._groups.list())

    def get(self, group: str) -> Group:
        return self._loop.run(self._groups.get(group))

    def committed(self, group: str) -> dict[TopicPartition, int]:
        return self._loop.run(self._groups.committed(group))

    def lag(self, group: str) -> dict[TopicPartition, int]:
        return self._loop.run(self._groups.lag(group))

    def reset(self, group: str, topic: str, to: Start = "earliest") -> dict[TopicPartition, int]:
        return self._loop.run(self._groups.reset(group, topic, to))

    def delete(self, group: str) -> None:
        self._loop.run(self._groups.delete(group))


class SyncTransactions:
    """Transactions of producers; see `Transactions`."""

    def __init__(self, loop: LoopThread, transactions: Transactions) -> None:
        self._loop, self._transactions = loop, transactions

    def list(
        self, *, state: str | None = None, open_for: timedelta | None = None, limit: int = 1000
    ) -> "list[Transaction]":
        return self._loop.run(self._transactions.list(state=state, open_for=open_for, limit=limit))

    def get(self, transactional_id: str) -> Transaction:
        return self._loop.run(self._transactions.get(transactional_id))

    def abort(self, transactional_id: str) -> TransactionAborted:
        return self._loop.run(self._transactions.abort(transactional_id))


class SyncCluster:
    """Agents, partitions, segments; see `ClusterView`."""

    def __init__(self, loop: LoopThread, cluster: ClusterView) -> None:
        self._loop, self._cluster = loop, cluster

    def agents(self) -> list[AgentStatus]:
        return self._loop.run(self._cluster.agents())

    def bootstrap(self) -> str:
        return self._loop.run(self._cluster.bootstrap())

    def partitions(self, topic: str | None = None) -> list[PartitionStatus]:
        return self._loop.run(self._cluster.partitions(topic))

    def segments(self, topic: str | None = None, *, limit: int = 1000) -> list[Segment]:
        return self._loop.run(self._cluster.segments(topic, limit=limit))

    def drain(self, node: int, *, undo: bool = False) -> list[AgentStatus]:
        return self._loop.run(self._cluster.drain(node, undo=undo))

    def move(self, topic: str, partition: int, node: int | None) -> PartitionStatus:
        return self._loop.run(self._cluster.move(topic, partition, node))

    def examine(self) -> Examination:
        return self._loop.run(self._cluster.examine())


class SyncSchemas:
    """The schema registry; see `Schemas`."""

    def __init__(self, loop: LoopThread, schemas: Schemas) -> None:
        self._loop, self._schemas = loop, schemas

    def subjects(self, prefix: str = "", *, deleted: bool = False) -> list[str]:
        return self._loop.run(self._schemas.subjects(prefix, deleted=deleted))

    def all(self, prefix: str = "", *, latest: bool = False, deleted: bool = False) -> list[Schema]:
        return self._loop.run(self._schemas.all(prefix, latest=latest, deleted=deleted))

    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        return self._loop.run(self._schemas.versions(subject, deleted=deleted))

    def get(self, subject: str, version: int | None = None, *, deleted: bool = False) -> Schema:
        return self._loop.run(self._schemas.get(subject, version, deleted=deleted))

    def latest(self, subject: str) -> Schema:
        return self._loop.run(self._schemas.latest(subject))

    def by_id(self, schema_id: int) -> NewSchema:
        return self._loop.run(self._schemas.by_id(schema_id))

    def register(self, subject: str, schema: NewSchema, *, normalize: bool = False) -> Schema:
        return self._loop.run(self._schemas.register(subject, schema, normalize=normalize))

    def check(self, subject: str, schema: NewSchema, *, version: int | None = None) -> Verdict:
        return self._loop.run(self._schemas.check(subject, schema, version=version))

    def delete(self, subject: str, version: int | None = None, *, permanent: bool = False) -> list[int]:
        return self._loop.run(self._schemas.delete(subject, version, permanent=permanent))

    def compatibility(self, subject: str | None = None) -> str:
        return self._loop.run(self._schemas.compatibility(subject))

    def set_compatibility(self, level: str, subject: str | None = None) -> str:
        return self._loop.run(self._schemas.set_compatibility(level, subject))

    def reset_compatibility(self, subject: str) -> None:
        self._loop.run(self._schemas.reset_compatibility(subject))

    def resolved(self, schema: NewSchema) -> dict[str, str]:
        return self._loop.run(self._schemas.resolved(schema))
