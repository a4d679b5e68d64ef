"""What a task does, without Spark around it: agents away, objects gone, runs that were placed elsewhere."""

import asyncio
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from streamhouse.errors import DataLost, Misconfigured, MissingRecords
from streamhouse.format.compression import Codec
from streamhouse.format.records import encode_batch
from streamhouse.format.segment import RunInput, encode_segment
from streamhouse.model.names import Epoch, PartitionId, TopicId, TopicPartition
from streamhouse.model.record import NewRecord
from streamhouse.spark.agents.client import RunLocation
from streamhouse.spark.columns.record_columns import RecordBatchBuilder
from streamhouse.spark.columns.record_schema import record_schema
from streamhouse.spark.datasource.pushed_filters import NO_FILTERS
from streamhouse.spark.datasource.read_options import read_options
from streamhouse.spark.datasource.split_planner import InputSplit, SegmentRange, plan_batch, splits_of
from streamhouse.spark.datasource.split_reader import ReadTask, read_split
from streamhouse.spark.runtime.object_store import open_store
from streamhouse.stores.objects.base import Refused
from tests.spark.conftest import BUCKET, LAZY, client_of, send
from tests.support.agent import LiveAgent
from tests.support.s3 import RealS3

pytestmark = pytest.mark.spark

NOBODY = ReadTask(agents="localhost:1")
"""Whoever asks an agent fails."""


@pytest.fixture
def own(tmp_path: Path) -> Iterator[LiveAgent]:
    """An agent of the test's own, with 200 records in segments of a topic with one partition."""
    agent = LiveAgent(tmp_path / "data", *LAZY)
    with agent:
        with client_of(agent) as client:
            client.topics.create("orders", partitions=1)
            send(client, "orders", range(200))
        agent.stop()
        agent.start()
        yield agent


def splits(agent: LiveAgent, topic: str = "orders") -> list[InputSplit]:
    given = {"topic": topic, "agents": agent.http}
    return asyncio.run(plan_batch(read_options(given, streaming=False), NO_FILTERS))


def values(split: InputSplit, task: ReadTask) -> list[int]:
    shape = RecordBatchBuilder.of(StructType().add("value", "binary"))
    return [int(value) for batch in read_split(split, task, shape) for value in batch.column(0).to_pylist()]


def test_segments_are_read_without_an_agent_and_the_tail_once_it_is_back(own: LiveAgent) -> None:
    with client_of(own) as client:
        send(client, "orders", range(200, 250))
    (split,) = splits(own)
    assert [piece.run is None for piece in split.pieces] == [False, True]
    own.stop()
    flushed = replace(split, pieces=split.pieces[:1])
    assert values(flushed, ReadTask(agents=own.http)) == list(range(200))
    own.start()  # what was the tail is in a segment now; agents have it still
    assert values(split, ReadTask(agents=own.http)) == list(range(250))


def test_records_that_expired_under_the_reader_fail_it_or_are_left_out(own: LiveAgent) -> None:
    (split,) = splits(own)
    with client_of(own) as client:
        send(client, "orders", [200])
    delete_records(own, "orders", before=150)
    for segments in own.data.rglob("segments"):
        shutil.rmtree(segments)
    with pytest.raises(DataLost, match=r"offsets=0 to 150.*failOnDataLoss=false"):
        values(split, ReadTask(agents=own.http))
    # What is left of the run is named by the plan still, and is gone as well: nobody is told that all is fine.
    with pytest.raises(MissingRecords, match=r"partition=orders-0 offsets=\[150,200\) key=segments/"):
        values(split, ReadTask(agents=own.http, fail_on_data_loss=False))
    delete_records(own, "orders", before=200)
    assert values(split, ReadTask(agents=own.http, fail_on_data_loss=False)) == []


def test_a_tail_that_expired_under_the_reader_fails_it_or_is_left_out(agent: LiveAgent) -> None:
    with client_of(agent) as client:
        client.topics.create("short", partitions=1)
        send(client, "short", range(20))
    run_less = SegmentRange(partition=TopicPartition("short", 0), start=0, end=20, weight=1.0)
    split = InputSplit(store=splits(agent, "short")[0].store, pieces=(run_less,))
    delete_records(agent, "short", before=15)
    with pytest.raises(DataLost, match=r"offset=0 .*failOnDataLoss=false"):
        values(split, ReadTask(agents=agent.http))
    assert values(split, ReadTask(agents=agent.http, fail_on_data_loss=False)) == list(range(15, 20))


def delete_records(agent: LiveAgent, topic: str, *, before: int) -> None:
    admin = pytest.importorskip("confluent_kafka.admin")
    kafka = pytest.importorskip("confluent_kafka")
    connected = admin.AdminClient({"bootstrap.servers": agent.bootstrap})
    for future in connected.delete_records([kafka.TopicPartition(topic, 0, before)]).values():
        future.result(30)


def test_a_folder_that_is_not_here_says_so(tmp_path: Path) -> None:
    piece = write_run(tmp_path, base=0, records=10)
    split = InputSplit(store=f"file://{tmp_path}/nothing", pieces=(piece,))
    with pytest.raises(Misconfigured, match="run Spark on the agent's machine"):
        list(read_split(split, NOBODY, RecordBatchBuilder.of(record_schema(include_headers=False))))


def write_run(store: Path, *, base: int, records: int, block_bytes: int = 512) -> SegmentRange:
    """A run whose offsets in the object count from 0, with many small blocks, placed at `base`."""
    batches = []
    for at in range(0, records, 10):
        batch = encode_batch(
            [NewRecord(value=str(base + n).encode(), timestamp_ms=1000 + n) for n in range(at, at + 10)],
            codec=Codec.NONE,
            now_ms=0,
        )
        batch[0:8] = at.to_bytes(8, "big")
        batches.append(batch)
    partition = PartitionId(TopicId(uuid.UUID(int=7)), 0)
    given = RunInput(partition=partition, epoch=Epoch(1), base=0, end=records, batches=batches, producers=b"")
    segment = encode_segment([given], block_bytes=block_bytes)
    key = "segments/placed/0000"
    path = store / key
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(bytes(part) for part in segment.body))
    (layout,) = segment.layouts
    entry = layout.entry
    run = RunLocation(
        key=key,
        base=base,
        end=base + records,
        stored_base=0,
        position=entry.position,
        length=entry.length,
        index_position=entry.index_position,
        index_length=entry.index_length,
        records=records,
        max_timestamp_ms=entry.max_timestamp_ms,
    )
    return SegmentRange(partition=TopicPartition("orders", 0), start=base + 15, end=base + 95, weight=1000.0, run=run)


def test_offsets_of_a_run_count_from_where_it_was_placed(tmp_path: Path) -> None:
    piece = write_run(tmp_path, base=1_000_000, records=100)
    shape = RecordBatchBuilder.of(
        StructType().add("offset", "long").add("value", "binary").add("timestamp", "timestamp")
    )
    split = InputSplit(store=f"file://{tmp_path}", pieces=(piece,))
    table = pa.Table.from_batches(list(read_split(split, NOBODY, shape)))
    expected = list(range(1_000_015, 1_000_095))
    assert table["offset"].to_pylist() == expected
    assert [int(value) for value in table["value"].to_pylist()] == expected
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [(1000 + n) * 1000 for n in range(15, 95)]


def test_splits_share_blocks_but_no_records(tmp_path: Path) -> None:
    piece = write_run(tmp_path, base=1_000_000, records=100)
    cut = splits_of([piece], store=f"file://{tmp_path}", split_bytes=1 << 20, min_partitions=7)
    results = [values(split, NOBODY) for split in cut]
    assert {len(each) for each in results} == {11, 12}
    assert [value for each in results for value in each] == list(range(1_000_015, 1_000_095))


def test_times_leave_blocks_and_records_out(tmp_path: Path) -> None:
    split = InputSplit(store=f"file://{tmp_path}", pieces=(write_run(tmp_path, base=0, records=100),))
    assert values(split, replace(NOBODY, from_ms=1042, until_ms=1077)) == list(range(42, 77))
    assert values(split, replace(NOBODY, until_ms=1)) == []


def test_a_bucket_without_rights_says_what_to_do(bucket: RealS3, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**bucket.environment, "AWS_SECRET_ACCESS_KEY": "wrong"}.items():
        monkeypatch.setenv(name, value)
    run = RunLocation("segments/x/0", 0, 9, 0, 8, 100, 108, 100, 9, 0)
    piece = SegmentRange(partition=TopicPartition("orders", 0), start=0, end=9, weight=1.0, run=run)
    split = InputSplit(store=f"s3://{BUCKET}/no-rights", pieces=(piece,))
    shape = RecordBatchBuilder.of(record_schema(include_headers=False))
    with pytest.raises(Refused, match="do="):
        list(read_split(split, NOBODY, shape))


@pytest.fixture(autouse=True)
def _close_stores() -> Iterator[None]:
    yield
    open_store.cache_clear()
