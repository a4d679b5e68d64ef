"""Whole agents on PostgreSQL and a shared folder: records published at any of them are read at any other, and a leader
that leaves costs nobody an error."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from streamhouse.agent import Agent, build_agent
from streamhouse.config import (
    AgentSettings,
    ClusterSettings,
    FlushSettings,
    GrpcSettings,
    HttpSettings,
    KafkaSettings,
    MetadataSettings,
    Settings,
    StoreSettings,
    WalSettings,
)
from streamhouse.model.record import Acks, NewRecord
from tests.support.postgres import RealPostgres, find_binaries
from tests.wire.kafka.cluster import read_all, receipts
from tests.wire.kafka.talk import until

PARTITIONS = 12
PATIENT_S = 60.0
PUBLISHERS, TURNS = 6, 20


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    if (binaries := find_binaries()) is None:
        pytest.skip("no PostgreSQL here")
    with RealPostgres(binaries) as server:
        yield server.dsn()


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[Agent]:
    async with build_agent(settings) as agent:
        running = asyncio.create_task(agent.serve())
        try:
            yield agent
        finally:
            agent.stop()
            await running


@pytest.fixture
async def agents(dsn: str, tmp_path: Path) -> AsyncIterator[list[Agent]]:
    async with AsyncExitStack() as stack:
        results = []
        for number in range(3):
            settings = Settings(
                agent=AgentSettings(data=str(tmp_path / f"agent-{number}")),
                kafka=KafkaSettings(listen="127.0.0.1:0"),
                http=HttpSettings(listen="127.0.0.1:0"),
                grpc=GrpcSettings(listen=""),
                metadata=MetadataSettings(url=dsn),
                store=StoreSettings(url=f"file://{tmp_path / 'objects'}"),
                wal=WalSettings(kind="object", window_ms=1),
                cluster=ClusterSettings(refresh_s=0.2),
                flush=FlushSettings(check_s=0.02),
            )
            results.append(await stack.enter_async_context(serving(settings)))
        await until(lambda: all(len(agent.broker.agents()) == 3 for agent in results))
        yield results


async def test_records_go_through_any_agent_while_one_leaves(agents: list[Agent]) -> None:
    await agents[0].broker.create_topic("orders", partitions=PARTITIONS, overrides={})
    result: dict[bytes, tuple[int, int | None]] = {}
    under_way = asyncio.Event()

    async def publisher(number: int) -> None:
        agent = agents[number % 2]
        for turn in range(TURNS):
            values = [b"%d/%d/%d" % (number, turn, each) for each in range(PARTITIONS)]
            records = [NewRecord(value, partition=each) for each, value in enumerate(values)]
            responses = await agent.broker.records.publish("orders", records, acks=Acks.WAL, timeout_s=PATIENT_S)
            result.update((value, got[:2]) for value, got in zip(values, receipts(responses), strict=True))
            if turn == TURNS // 3:
                under_way.set()

    async with asyncio.TaskGroup() as work:
        for number in range(PUBLISHERS):
            work.create_task(publisher(number))
        await under_way.wait()
        agents[2].stop()
    for agent in agents[:2]:
        actual = await read_all(agent.broker, "orders", PARTITIONS)
        stored = {
            (name.partition, offset): value for name, values in actual.items() for offset, value in values.items()
        }
        assert {value: stored[at[0], at[1]] for value, at in result.items() if at[1] is not None} == {
            value: value for value in result
        }
        assert Counter(stored.values()) == Counter(list(result))
    assert sum(agent.broker.records.delivery.forwarded for agent in agents) > 0
