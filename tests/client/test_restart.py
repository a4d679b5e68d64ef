"""An agent that is killed and started again under a client: a pause, and every record once."""

import asyncio
import threading
from pathlib import Path

import pytest

from streamhouse import Client
from streamhouse.errors import Unavailable
from streamhouse.model.names import TopicPartition
from tests.support.agent import LiveAgent

RECORDS = 3_000


async def test_a_producer_and_a_reader_outlive_the_agent(tmp_path: Path) -> None:
    with LiveAgent(tmp_path / "data", "--fsync", "always") as agent:
        async with Client(agent.http, timeout_s=60) as client:
            await client.topics.create("orders", partitions=2)

            async def read() -> list[int]:
                return [int(record.value) async for record in client.consume("orders", limit=RECORDS)]

            reading = asyncio.create_task(read())
            async with client.producer("orders", batch_bytes=2_000) as producer:
                for number in range(RECORDS):
                    delivery = await producer.enqueue(b"%d" % number, partition=number % 2)
                    if number % 100 == 0:
                        await delivery
                    if number == RECORDS // 2:
                        await asyncio.to_thread(agent.kill)
                        threading.Thread(target=agent.start).start()
            result = await reading
            assert sorted(result) == list(range(RECORDS))
            assert [number for number in result if number % 2] == list(range(1, RECORDS, 2))


async def test_a_group_goes_on_where_it_was(tmp_path: Path) -> None:
    with LiveAgent(tmp_path / "data", "--fsync", "always", "--set", "groups.initial_rebalance_delay_s=0") as agent:
        async with Client(agent.http, timeout_s=60) as client:
            await client.topics.create("orders")
            async with client.producer("orders") as producer:
                for number in range(20):
                    await producer.enqueue(b"%d" % number)
            seen: list[int] = []
            async with client.consumer("orders", group="g", commit="explicit") as consumer:
                async for record in consumer:
                    seen.append(record.offset)
                    if record.offset == 9:
                        await consumer.commit()
                        await asyncio.to_thread(agent.kill)
                        await asyncio.to_thread(agent.start)
                    if record.offset == 19:
                        break
            assert set(seen) == set(range(20))
            assert await client.groups.committed("g") == {TopicPartition("orders", 0): 10}


async def test_a_record_fails_in_time_when_nobody_comes_back(tmp_path: Path) -> None:
    with LiveAgent(tmp_path / "data") as agent:
        async with Client(agent.http) as client:
            await client.topics.create("orders")
            async with client.producer("orders", timeout_s=1) as producer:
                await producer.send(b"before")
                await asyncio.to_thread(agent.kill)
                with pytest.raises(Unavailable, match="no agent answers on"):
                    await producer.send(b"after")
            with pytest.raises(Unavailable, match="no agent answers on"):
                await client.schemas.subjects()
