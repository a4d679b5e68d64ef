"""Reads whose executors have no key to the object store: agents read it for them, and the rows are the same."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pytest
from aiokafka import AIOKafkaProducer
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructType

from streamhouse.client.sync import SyncClient
from streamhouse.errors import Misconfigured
from streamhouse.spark.datasource import segment_source
from streamhouse.spark.datasource.data_source import StreamhouseSource
from streamhouse.spark.datasource.read_options import read_options
from tests.support.agent import LiveAgent

SCHEMA = StructType().add("partition", IntegerType()).add("offset", LongType()).add("value", BinaryType())
RECORDS = 50


async def _transact(bootstrap: str, *, commits: bool, first: int) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"t-{first}")
    await producer.start()
    await producer.begin_transaction()
    for number in range(first, first + RECORDS):
        await producer.send_and_wait("orders", str(number).encode(), partition=number % 2)
    await (producer.commit_transaction() if commits else producer.abort_transaction())
    await producer.stop()


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAgent]:
    """Records in segments, aborted ones among them, and behind them some in the tail."""
    with LiveAgent(tmp_path_factory.mktemp("through") / "data", "--set", "flush.age_s=1h") as agent:
        with SyncClient(agent.http) as client:
            client.topics.create("orders", partitions=2)
        for first, commits in ((0, True), (RECORDS, False), (2 * RECORDS, True)):
            asyncio.run(_transact(agent.bootstrap, commits=commits, first=first))
        agent.stop()
        agent.start()
        asyncio.run(_transact(agent.bootstrap, commits=True, first=3 * RECORDS))
        yield agent


def rows(agent: LiveAgent, access: str) -> list[tuple[int, int, bytes]]:
    reader = StreamhouseSource({"agents": agent.http, "topic": "orders", "storeAccess": access}).reader(SCHEMA)
    batches: list[pa.RecordBatch] = [batch for split in reader.partitions() for batch in reader.read(split)]
    return sorted((row["partition"], row["offset"], row["value"]) for batch in batches for row in batch.to_pylist())


def test_the_rows_are_those_of_the_store(agent: LiveAgent, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    direct = rows(agent, "direct")
    assert len(direct) == 3 * RECORDS

    def no_key(url: str) -> NoReturn:
        raise AssertionError(f"the store was opened; url={url}")

    monkeypatch.setattr(segment_source, "open_store", no_key)
    assert rows(agent, "agents") == direct
    with pytest.raises(AssertionError, match="the store was opened"):
        rows(agent, "direct")


def test_another_access_is_refused() -> None:
    with pytest.raises(Misconfigured, match="storeAccess"):
        read_options({"topic": "orders", "storeAccess": "sealed"}, streaming=False)
