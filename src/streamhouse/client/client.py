"""Client: everything that a program does with a cluster, from one address.

Topics, groups and records use the Kafka protocol, the rest HTTP. What the client opens, it closes. An agent that dies
is replaced by another one: each part looks the cluster up again when it opens.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from streamhouse.client.admin import ClusterView, ConsumerGroups, Topics, Transactions
from streamhouse.client.consumer import Consumer
from streamhouse.client.credentials import Credentials
from streamhouse.client.group_consumer import Commit, GroupConsumer
from streamhouse.client.http import Http
from streamhouse.client.kafka_admin import Admin
from streamhouse.client.pipelines import Pipelines, Sql, Tables, Views
from streamhouse.client.producer import Producer, ProducerSettings
from streamhouse.client.reader import ReadRange, RecordReader, Start, Until
from streamhouse.client.schemas import Schemas
from streamhouse.client.serde import AnySchema, SchemaReader, SchemaWriter, Write
from streamhouse.client.types import Acks, Compression
from streamhouse.errors import Rejected

_DEFAULTS = ProducerSettings()


class Client:
    """A StreamHouse cluster. `address` is the HTTP address of an agent, or of several: `a:8080,b:8080`.

    Use it in `async with`; `SyncClient` is the same without `await`. Without `credentials`, the environment variables
    `STREAMHOUSE_USER` and others apply (docs/security.md).
    """

    def __init__(
        self, address: str = "localhost:8080", *, timeout_s: float = 30.0, credentials: Credentials | None = None
    ) -> None:
        login = Credentials.from_environment(os.environ) if credentials is None else credentials
        self._address = address
        self._credentials = login.for_agents(address)
        self._timeout_s = timeout_s
        self._http = Http(address, timeout_s=min(timeout_s, 10.0), credentials=self._credentials)
        self._admin: Admin | None = None
        self._opening = asyncio.Lock()
        self._is_open = False
        self.topics = Topics(self._administrator)
        self.groups = ConsumerGroups(self._administrator)
        self.transactions = Transactions(self._http)
        self.schemas = Schemas(self._http)
        self.cluster = ClusterView(self._http)
        self.tables = Tables(self._http)
        self.pipelines = Pipelines(self._http)
        self.views = Views(self._http)
        self.sql = Sql(self._http)

    def __repr__(self) -> str:
        return f"<Client {self._address} {'open' if self._is_open else 'closed'}>"

    async def __aenter__(self) -> Self:
        await self._bootstrap()  # fails at once, with the address, if no agent responds
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_open = False
        admin, self._admin = self._admin, None
        if admin is not None:
            await admin.__aexit__(None, None, None)
        await self._http.__aexit__(None, None, None)

    # --- records

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
    ) -> Producer:
        """Write to a topic: `async with client.producer("orders") as producer`.

        With a schema (a subject, a `SchemaRef`, or a `NewSchema` that is registered as `TOPIC-value`) values are
        Python's types for JSON, encoded as Confluent's serialisers do. Without one they are bytes, text, or encoded as
        JSON.
        """
        settings = ProducerSettings(
            acks=acks,
            compression=compression,
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            buffer_bytes=buffer_bytes,
            timeout_s=self._timeout_s if timeout_s is None else timeout_s,
        )
        return Producer(
            self._bootstrap,
            topic,
            settings=settings,
            write_value=self._writer(schema, f"{topic}-value"),
            write_key=self._writer(key_schema, f"{topic}-key"),
            credentials=self._credentials,
        )

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
    ) -> RecordReader:
        """Read a topic: `async for record in client.consume("orders", until="end")`.

        Starts at an end, an offset, a time, or offsets by partition; never ends unless `until` or `limit` is given.
        Order holds within a partition. `decode` decodes values with the schema whose id they contain.
        """

        def connect(starts: Mapping[int, int]) -> Consumer:
            return Consumer(
                self._bootstrap, topic, starts=starts, timeout_s=self._timeout_s, credentials=self._credentials
            )

        span = ReadRange(from_=from_, until=until, partitions=partitions, limit=limit)
        return RecordReader(self._administrator, connect, topic, span, reader=self._reader(decode, decode_keys))

    def consumer(
        self,
        topics: str | Sequence[str],
        *,
        group: str,
        from_: str = "earliest",
        commit: Commit = "auto",
        decode: bool = False,
        decode_keys: bool = False,
    ) -> GroupConsumer:
        """Read topics as a member of a group: `async with client.consumer("orders", group="billing") as consumer`.

        Starts at the group's committed offsets, or at `from_` in partitions without one. `auto` commits each record
        once the loop asks for the next one; `explicit` when you call `commit`.
        """
        if from_ not in ("earliest", "latest"):
            raise Rejected(f"a group starts at earliest or latest; from={from_!r}; move it with client.groups.reset")
        return GroupConsumer(
            self._bootstrap,
            topics,
            group=group,
            from_beginning=from_ == "earliest",
            commit=commit,
            reader=self._reader(decode, decode_keys),
            timeout_s=self._timeout_s,
            credentials=self._credentials,
        )

    # --- parts

    async def _bootstrap(self) -> str:
        return await self._http.bootstrap()

    async def _administrator(self) -> Admin:
        """The admin client, shared by all parts and opened on first use."""
        if not self._is_open:
            raise Rejected("the client is not open; use it in: async with Client(...) as client")
        async with self._opening:
            if self._admin is None:
                admin = Admin(
                    await self._bootstrap(), timeout_s=min(self._timeout_s, 10.0), credentials=self._credentials
                )
                self._admin = await admin.__aenter__()
            return self._admin

    def _writer(self, schema: AnySchema | None, subject: str) -> Write | None:
        return None if schema is None else SchemaWriter(self.schemas, schema, subject=subject)

    def _reader(self, values: bool, keys: bool) -> SchemaReader | None:
        return SchemaReader(self.schemas, values=values, keys=keys) if values or keys else None
