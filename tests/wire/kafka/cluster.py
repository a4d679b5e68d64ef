"""Several agents on the same stores, each behind a socket, that reach each other as clients do; some of them die."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry

from streamhouse.broker.broker import Broker
from streamhouse.broker.dependencies import AppendResult, Dependencies
from streamhouse.broker.wal.object_recovery import ObjectWalFactory
from streamhouse.clock import Ids, SystemClock
from streamhouse.config import (
    ClusterSettings,
    FlushSettings,
    GroupSettings,
    LeaseSettings,
    RecordSettings,
    Settings,
    WalSettings,
    parse_address,
)
from streamhouse.config.fields import Address
from streamhouse.config.listener_spec import DEFAULT_NAME, ListenerProtocol, ListenerSpec
from streamhouse.config.secrets import Secrets
from streamhouse.errors import StreamhouseError, Unavailable
from streamhouse.format.batch import iter_batches
from streamhouse.format.records import decode_batch
from streamhouse.model.access import AGENT, Principal
from streamhouse.model.cluster_tokens import ClusterTokens
from streamhouse.model.fetch import PartitionFetch
from streamhouse.model.names import PartitionId, SessionId, TopicPartition
from streamhouse.model.record import Receipt, StoredRecord
from streamhouse.stores.metadata.base import MetadataStore
from streamhouse.stores.metadata.open import open_metadata_store
from streamhouse.stores.objects.memory import MemoryObjectStore
from streamhouse.wire.agent_login import AgentLogin
from streamhouse.wire.kafka.agent_client import KafkaAgentClient
from streamhouse.wire.kafka.schema import Buffer
from streamhouse.wire.kafka.server import KafkaServer
from streamhouse.wire.listener import OpenListener, bind
from tests.wire.kafka.talk import until

MANY_BYTES = 1 << 24
LEASE_LEFT_S = 1.0
"""How long the leases of an agent last after it was killed."""
SETTINGS = Settings(
    cluster=ClusterSettings(refresh_s=0.05),
    flush=FlushSettings(check_s=0.01, age_s=600.0),
    wal=WalSettings(kind="object", window_ms=1),
    groups=GroupSettings(shards=8, initial_rebalance_delay_s=0.0),
    # So long that no living agent loses its leases, however busy the machine; a killed one's end after `LEASE_LEFT_S`.
    lease=LeaseSettings(ttl_s=60.0, takeover_s=1.0, renew_s=0.2, margin_s=0.2),
    records=RecordSettings(stored_look_s=0.02),
)


class LossyPeers(KafkaAgentClient):
    """Loses answers to appends that happened, as often as told."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.to_lose = 0
        self.appends = 0

    async def append(self, at: Address, partition: PartitionId, batch: Buffer, **kwargs: Any) -> AppendResult:
        self.appends += 1
        result = await super().append(at, partition, batch, **kwargs)
        if self.to_lose:
            self.to_lose -= 1
            raise Unavailable("the answer got lost")
        return result


class Member:
    """One agent: a broker, its server, and its way to the others."""

    def __init__(
        self,
        settings: Settings,
        metadata: MetadataStore,
        objects: MemoryObjectStore,
        at: str = "127.0.0.1:0",
        *,
        secret: str = "",
    ) -> None:
        """With a secret, agents and clients have to log in."""
        clock, ids = SystemClock(), Ids()
        self._listener = bind(parse_address(at), flag="--kafka")
        self.address = Address(*self._listener.getsockname()[:2])
        make_token = None
        if secret:
            tokens = ClusterTokens(secret, clock=clock)
            make_token = partial(tokens.make, Principal(AGENT, str(self.address)))
        self.peers = LossyPeers(settings.peers, clock=clock, login=AgentLogin(make_token=make_token))
        protocol = ListenerProtocol.SASL_PLAINTEXT if secret else ListenerProtocol.PLAINTEXT
        spec = ListenerSpec(name=DEFAULT_NAME, bind=self.address, protocol=protocol)
        self.broker = Broker(
            Dependencies(
                settings=settings,
                objects=objects,
                metadata=metadata,
                wal_factory=ObjectWalFactory(objects, settings.wal, clock=clock, ids=ids),
                clock=clock,
                ids=ids,
                kafka=self.address,
                http=Address("127.0.0.1", 1),
                single_agent=False,
                agents=self.peers,
                secrets=Secrets(cluster_secret=secret),
            )
        )
        self.server = KafkaServer(
            settings.kafka,
            self.broker,
            listeners=[OpenListener(spec=spec, listening=self._listener, advertised=self.address)],
            clock=clock,
            registry=CollectorRegistry(),
            cluster_id="a-team",
        )
        self._metadata = metadata
        self._running: asyncio.Task[None] | None = None
        self._expiring: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.broker.start()
        self._running = asyncio.create_task(self.broker.run())
        await self.server.start()

    async def stop(self) -> None:
        if self._running is not None:
            self.broker.stop()
            await self._running
            await self._close()
        if self._expiring is not None:
            self._expiring.cancel()
            await asyncio.gather(self._expiring, return_exceptions=True)

    async def kill(self) -> None:
        """Nothing is flushed, nothing is given up. Its network goes a little earlier than itself, so that some of what
        it made durable is never acknowledged."""
        assert self._running is not None
        assert self.broker.agent_session is not None
        session_id = self.broker.agent_session.session.session_id
        for connection in self.server.connections:
            connection.abort("test", "killed")
        await asyncio.sleep(0.02)
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        self._expiring = asyncio.create_task(self._expire(session_id))
        await self._close()

    async def _expire(self, session_id: SessionId) -> None:
        await asyncio.sleep(LEASE_LEFT_S)
        await self._metadata.renew_session(session_id, 0)

    async def _close(self) -> None:
        self._running = None
        await self.server.stop()
        await self.peers.aclose()

    def leads(self, name: TopicPartition) -> bool:
        return self.broker.leader_epoch(name) >= 0


class BrokerCluster:
    def __init__(self, members: Sequence[Member], metadata: MetadataStore, objects: MemoryObjectStore) -> None:
        self.members = members
        self.metadata = metadata
        self.objects = objects

    async def topic(self, name: str, partitions: int, **overrides: str) -> None:
        """Led by the members in turn."""
        topic = await self.members[0].broker.create_topic(name, partitions=partitions, overrides=overrides)
        nodes = [member.broker.node_id for member in self.members]
        await self.metadata.pin_partitions(
            {PartitionId(topic.topic_id, number): nodes[number % len(nodes)] for number in range(partitions)}
        )
        for member in self.members:
            await member.broker.catalog.reload()
            member.broker.cluster.invalidate_leases(topic.topic_id)

    async def led_by(self, member: Member, topic: str) -> list[TopicPartition]:
        """The partitions that this agent leads, or would."""
        result = await member.broker.topic(topic)
        leaders = await member.broker.leaders([result])
        return [
            TopicPartition(topic, each.partition)
            for each, leader in leaders.items()
            if leader.session is not None and leader.session.kafka == member.address
        ]


@asynccontextmanager
async def a_cluster(count: int, settings: Settings = SETTINGS, *, secret: str = "") -> AsyncIterator[BrokerCluster]:
    clock = SystemClock()
    objects = MemoryObjectStore(clock)
    async with AsyncExitStack() as stack:
        metadata = await open_metadata_store("sqlite::memory:", clock=clock)
        stack.push_async_callback(metadata.aclose)
        members = [Member(settings, metadata, objects, secret=secret) for _ in range(count)]
        for member in members:
            await member.start()
            stack.push_async_callback(member.stop)
        await until(lambda: all(len(each.broker.agents()) == count for each in members))
        yield BrokerCluster(members, metadata, objects)


def receipts(responses: Sequence[Receipt | StreamhouseError]) -> list[Receipt]:
    for response in responses:
        assert isinstance(response, Receipt), repr(response)
    return [response for response in responses if isinstance(response, Receipt)]


def records_of(buffers: Sequence[Buffer]) -> list[StoredRecord]:
    results: list[StoredRecord] = []
    for buffer in buffers:
        for span in iter_batches(buffer):
            part = memoryview(buffer)[span.position : span.position + span.size_bytes]
            results += decode_batch(part, limit_bytes=MANY_BYTES)
    return results


async def read_all(broker: Broker, topic: str, partitions: int) -> Mapping[TopicPartition, Mapping[int, bytes | None]]:
    """Everything, through `records.read`, by partition and offset."""
    names = [TopicPartition(topic, number) for number in range(partitions)]
    result: dict[TopicPartition, dict[int, bytes | None]] = {name: {} for name in names}
    ends = {name: (await broker.records.latest(name)).offset for name in names}
    offsets = dict.fromkeys(names, 0)
    while any(offsets[name] < ends[name] for name in names):
        requests = [PartitionFetch(name, offsets[name], MANY_BYTES) for name in names if offsets[name] < ends[name]]
        for got in await broker.records.read(requests, max_bytes=MANY_BYTES, min_bytes=1, max_wait_s=5):
            assert got.error is None, got
            for record in records_of(got.records):
                if record.offset >= offsets[got.name]:
                    result[got.name][record.offset] = record.value
                    offsets[got.name] = record.offset + 1
    return result


@asynccontextmanager
async def cancelled_at_the_end(*work: "asyncio.Task[Any]") -> AsyncIterator[None]:
    try:
        yield
    finally:
        for task in work:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
