"""Three agents on the same stores: any of them answers for all."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import grpc
import pytest
from prometheus_client import CollectorRegistry

from streamhouse.broker.broker import Broker
from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.wal.object_recovery import ObjectWalFactory
from streamhouse.clock import Ids, SystemClock
from streamhouse.config import (
    Address,
    ClusterSettings,
    FlushSettings,
    GroupSettings,
    GrpcSettings,
    Settings,
    WalSettings,
)
from streamhouse.config.listener_spec import listeners_of
from streamhouse.model.names import TopicPartition
from streamhouse.stores.metadata.base import MetadataStore
from streamhouse.stores.metadata.open import open_metadata_store
from streamhouse.stores.objects.base import ObjectStore
from streamhouse.stores.objects.memory import MemoryObjectStore
from streamhouse.wire.grpc.generated import streamhouse_pb2 as pb
from streamhouse.wire.grpc.server import GrpcServer
from streamhouse.wire.kafka.agent_client import KafkaAgentClient
from streamhouse.wire.kafka.server import KafkaServer
from streamhouse.wire.listener import OpenListener, bind
from tests.wire.grpc.talk import TIMEOUT_S, Client, values_of
from tests.wire.grpc.test_produce import batch

PARTITIONS = 48  # so many that each of three agents leads some of them, whatever ids the topic and the agents have
SETTINGS = Settings(
    cluster=ClusterSettings(refresh_s=0.05),
    flush=FlushSettings(check_s=0.01, age_s=600.0),
    wal=WalSettings(kind="object", window_ms=1),
    groups=GroupSettings(shards=8, initial_rebalance_delay_s=0.0),
    grpc=GrpcSettings(listen="127.0.0.1:0"),
)


class Member:
    def __init__(self, broker: Broker, client: Client) -> None:
        self.broker = broker
        self.client = client


@asynccontextmanager
async def a_member(objects: ObjectStore, metadata: MetadataStore) -> AsyncIterator[Member]:
    clock, ids, registry = SystemClock(), Ids(), CollectorRegistry()
    listener = bind(Address("127.0.0.1", 0), flag="--kafka")
    peers = KafkaAgentClient()
    broker = Broker(
        Dependencies(
            settings=SETTINGS,
            objects=objects,
            metadata=metadata,
            wal_factory=ObjectWalFactory(objects, SETTINGS.wal, clock=clock, ids=ids),
            clock=clock,
            ids=ids,
            kafka=Address(*listener.getsockname()[:2]),
            http=Address("127.0.0.1", 1),
            single_agent=False,
            agents=peers,
        )
    )
    await broker.start()
    running = asyncio.create_task(broker.run())
    kafka = KafkaServer(
        SETTINGS.kafka,
        broker,
        listeners=[OpenListener.plain(listener)],
        clock=clock,
        registry=registry,
        cluster_id="three-agents",
    )
    await kafka.start()
    server = GrpcServer(SETTINGS.grpc, listeners_of("grpc", SETTINGS.grpc.listen, "", "PLAINTEXT"))
    await server.start(broker, clock=clock, registry=registry, cluster_id="three-agents")
    try:
        async with grpc.aio.insecure_channel(str(server.address)) as channel:
            yield Member(broker, Client(channel))
    finally:
        broker.stop()
        await running
        await server.stop()
        await kafka.stop()
        await peers.aclose()


@pytest.fixture
async def cluster() -> AsyncIterator[list[Member]]:
    """Three agents, and a topic of which each of them leads something."""
    objects = MemoryObjectStore(SystemClock())
    async with AsyncExitStack() as stack:
        metadata = await open_metadata_store("sqlite::memory:", clock=SystemClock())
        stack.push_async_callback(metadata.aclose)
        members = [await stack.enter_async_context(a_member(objects, metadata)) for _ in range(3)]
        async with asyncio.timeout(TIMEOUT_S):
            while any(len(each.broker.agents()) < 3 for each in members):
                await asyncio.gather(*(each.broker.cluster.refresh() for each in members))
        await members[0].client.create("orders", PARTITIONS)
        for each in members:
            await each.broker.catalog.reload()
        yield members


def led_by(member: Member) -> set[int]:
    """The partitions that an agent leads by now."""
    return {number for number in range(PARTITIONS) if member.broker.leader_epoch(TopicPartition("orders", number)) >= 0}


async def test_records_go_to_their_leaders_and_come_from_them_through_any_agent(cluster: list[Member]) -> None:
    first, second, third = cluster
    records = [pb.Record(value=b"%d" % n, partition=n % PARTITIONS) for n in range(90)]
    response = await first.client(pb.ProduceRequest(topic="orders", records=records), pb.ProduceResponse)
    assert not response.errors
    assert list(response.offsets) == [n // PARTITIONS for n in range(90)]
    led = [led_by(each) for each in cluster]
    assert all(led), "each of them has its share"
    assert set().union(*led) == set(range(PARTITIONS))
    for member in (second, third):
        values = await member.client.values("orders")
        assert sorted(values, key=int) == [b"%d" % n for n in range(90)]


async def test_a_produce_stream_keeps_its_order_also_where_another_agent_leads(cluster: list[Member]) -> None:
    client = cluster[0].client
    stream = client.stream("ProduceStream", pb.ProduceStreamResponse)
    for n in range(30):
        records = [pb.Record(value=b"%d" % n, partition=number) for number in range(PARTITIONS)]
        await stream.send(pb.ProduceStreamRequest(produce=pb.ProduceRequest(topic="orders", records=records)))
    await stream.end()
    responses = await stream.rest()
    assert [list(response.produced.offsets) for response in responses] == [[n] * PARTITIONS for n in range(30)]
    assert await cluster[2].client.values("orders") == [b"%d" % n for n in range(30)] * PARTITIONS


async def test_a_consume_stream_reads_from_all_leaders(cluster: list[Member]) -> None:
    stream = cluster[0].client.stream("Consume", pb.ConsumeResponse)
    await stream.send(pb.ConsumeRequest(subscribe=[pb.Position(topic="orders", edge=pb.EDGE_EARLIEST)]))
    for n in range(18):
        await cluster[n % 3].client.produce("orders", b"%d" % n, partition=n % PARTITIONS)
    results: list[bytes] = []
    while len(results) < 18:
        results += values_of([await stream.next()])
    assert sorted(results, key=int) == [b"%d" % n for n in range(18)]


async def test_whole_batches_and_offsets_are_forwarded_too(cluster: list[Member]) -> None:
    for number in range(PARTITIONS):
        request = pb.ProduceBatchesRequest(topic="orders", partition=number, batches=[batch(b"a", b"b")])
        assert list((await cluster[1].client(request, pb.ProduceBatchesResponse)).base_offsets) == [0]
    question = pb.ListOffsetsRequest(positions=[pb.Position(topic="orders", edge=pb.EDGE_LATEST)])
    for each in cluster:
        results = (await each.client(question, pb.ListOffsetsResponse)).offsets
        assert [offset.offset for offset in results] == [2] * PARTITIONS


async def test_every_agent_names_all_of_them(cluster: list[Member]) -> None:
    for each in cluster:
        response = await each.client(pb.GetClusterRequest(), pb.GetClusterResponse)
        assert len(response.agents) == 3
        assert len(response.bootstrap_servers.split(",")) == 3
        assert [agent.node_id for agent in response.agents if agent.grpc] == [each.broker.node_id]
