"""A task's rows become segments: decoded again, they are the rows."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from streamhouse.clock import Ids
from streamhouse.errors import (
    InvalidRecord,
    InvalidTimestamp,
    Misconfigured,
    RecordTooLarge,
    StreamhouseError,
    Unavailable,
    UnknownTopic,
)
from streamhouse.format.batch import iter_batches, read_header
from streamhouse.format.block import decode_block
from streamhouse.format.compression import Codec
from streamhouse.format.object_keys import parse_external_segment_key
from streamhouse.format.partitioner import partition_for
from streamhouse.format.records import decode_batch
from streamhouse.format.run_index import decode_run_index
from streamhouse.format.segment import EncodedSegment
from streamhouse.model.external_commit import QueryId
from streamhouse.model.names import TopicId, TopicPartition
from streamhouse.model.record import StoredRecord
from streamhouse.model.topic import parse_topic_config
from streamhouse.spark.agents.commits import SegmentRow, TopicTarget
from streamhouse.spark.datasource.input_rows import check_schema
from streamhouse.spark.datasource.segment_writer import COALESCE_BYTES, SegmentWriter
from streamhouse.spark.datasource.write_options import CommitId, WriteOptions, write_options

NOW_MS = 1_750_000_000_000
QUERY = QueryId("01234567-89ab-cdef-0123-456789abcdef")
LIMIT = 1 << 24
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class StillClock:
    def monotonic(self) -> float:
        return 0.0

    def now_ms(self) -> int:
        return NOW_MS

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("a task doesn't sleep")


class Bucket:
    """What a task stored, and reading it as a reader would: by the rows that the driver gets."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def put(self, key: str, encoded: EncodedSegment) -> "Future[None]":
        assert key not in self.objects
        self.objects[key] = b"".join(bytes(piece) for piece in encoded.body)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def batches(self, segments: Sequence[SegmentRow]) -> dict[TopicPartition, list[bytes]]:
        results: dict[TopicPartition, list[bytes]] = {}
        for segment in segments:
            body = self.objects[segment.key]
            assert len(body) == segment.size_bytes
            for run in segment.runs:
                index = decode_run_index(body[run.index_position : run.index_position + run.index_length])
                assert (run.stored_base, run.stored_end) == (index.stored_base, index.stored_end)
                for entry in index.blocks:
                    block = decode_block(body[entry.position : entry.position + entry.stored_bytes], entry)
                    name = TopicPartition(run.topic, run.partition)
                    results.setdefault(name, []).extend(
                        block[span.position : span.position + span.size_bytes] for span in iter_batches(block)
                    )
        return results

    def records(self, segments: Sequence[SegmentRow]) -> dict[TopicPartition, list[StoredRecord]]:
        return {
            name: [record for batch in batches for record in decode_batch(batch, limit_bytes=LIMIT)]
            for name, batches in self.batches(segments).items()
        }


def target(name: str = "orders", partitions: int = 4, **settings: str) -> TopicTarget:
    config = parse_topic_config({key.replace("_", "."): value for key, value in settings.items()})
    topic_id = TopicId(uuid.uuid5(uuid.NAMESPACE_DNS, name))
    return TopicTarget(name=name, topic_id=topic_id, partitions=partitions, config=config)


def writer(
    bucket: Bucket, targets: Mapping[str | None, TopicTarget] | TopicTarget, options: WriteOptions | None = None
) -> SegmentWriter:
    known: Mapping[str | None, TopicTarget] = {None: targets} if isinstance(targets, TopicTarget) else targets
    find: Callable[[str | None], TopicTarget] = known.__getitem__
    options = options or WriteOptions(topic="orders" if None in known else None)
    return SegmentWriter(options, CommitId(QUERY, 7), target=find, put=bucket.put, clock=StillClock(), ids=Ids())


def rows(**columns: Any) -> pa.RecordBatch:
    return pa.record_batch(columns)


def values_of(records: Sequence[StoredRecord]) -> list[bytes | None]:
    return [record.value for record in records]


def test_rows_stand_in_their_partitions_in_their_order_from_offset_0() -> None:
    bucket = Bucket()
    keys = [f"key-{n}" for n in range(500)]
    batch = rows(key=keys, value=[f"value-{n}" for n in range(500)])
    (segment,) = writer(bucket, target()).write([batch.slice(0, 123), batch.slice(123)])
    result = bucket.records([segment])
    for partition in range(4):
        expected = [n for n in range(500) if partition_for(keys[n].encode(), 4) == partition]
        records = result[TopicPartition("orders", partition)]
        assert records == [
            StoredRecord(offset, NOW_MS, keys[n].encode(), f"value-{n}".encode(), ())
            for offset, n in enumerate(expected)
        ]
    name = parse_external_segment_key(segment.key)
    assert name is not None
    assert (name.query, name.epoch) == (QUERY, 7)
    assert sum(run.records for run in segment.runs) == 500


def test_rows_without_a_key_spread_evenly_over_all_batches() -> None:
    bucket = Bucket()
    given = [rows(value=[str(n)]) for n in range(100)]
    result = bucket.records(writer(bucket, target()).write(given))
    assert [len(records) for records in result.values()] == [25] * 4


def test_headers_times_and_partitions_come_as_they_are_given() -> None:
    bucket = Bucket()
    own = next(key for key in (b"%d" % n for n in range(100)) if partition_for(key, 5) == 1)
    batch = rows(
        key=pa.array([b"a", own, b"c"], pa.binary()),
        value=pa.array([None, b"", b"\xff"], pa.binary()),
        partition=pa.array([3, None, 0], pa.int32()),
        timestamp=pa.array([1_700_000_000_123_999, None, 0], pa.timestamp("us", "UTC")),
        headers=pa.array([[("h", b"1"), ("h", None)], None, []], HEADERS),
        ignored=[1, 2, 3],
    )
    result = bucket.records(writer(bucket, target(partitions=5)).write([batch]))
    assert result == {
        TopicPartition("orders", 3): [StoredRecord(0, 1_700_000_000_123, b"a", None, (("h", b"1"), ("h", None)))],
        TopicPartition("orders", 1): [StoredRecord(0, NOW_MS, own, b"", ())],
        TopicPartition("orders", 0): [StoredRecord(0, 0, b"c", b"\xff", ())],
    }


def test_slices_and_large_types_are_rows_like_others() -> None:
    bucket = Bucket()
    batch = rows(
        key=pa.array(["x", "a", "b"], pa.large_string()),
        value=pa.array(["x", "1", "2"], pa.string()),
        headers=pa.array([[("x", b"")], [("h", b"v")], None], HEADERS),
    )
    ((_, records),) = bucket.records(writer(bucket, target(partitions=1)).write([batch.slice(1)])).items()
    assert records == [
        StoredRecord(0, NOW_MS, b"a", b"1", (("h", b"v"),)),
        StoredRecord(1, NOW_MS, b"b", b"2", ()),
    ]


def test_rows_go_to_the_topics_that_they_name_in_one_object() -> None:
    bucket = Bucket()
    topics: dict[str | None, TopicTarget] = {name: target(name, 2) for name in ("orders", "returns")}
    names = ["returns", "orders", "orders", "returns", "orders"]
    batch = rows(value=list("abcde"), topic=names, partition=pa.array([0] * 5, pa.int32()))
    segments = writer(bucket, topics).write([batch])
    result = bucket.records(segments)
    assert len(segments) == 1
    assert values_of(result[TopicPartition("orders", 0)]) == [b"b", b"c", b"e"]
    assert values_of(result[TopicPartition("returns", 0)]) == [b"a", b"d"]


def test_a_row_without_a_topic_is_reported() -> None:
    batch = rows(value=["a", "b"], topic=["orders", None])
    with pytest.raises(InvalidRecord, match="no topic"):
        writer(Bucket(), {"orders": target()}).write([batch])


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_have_the_codec_that_was_requested(codec: Codec) -> None:
    bucket = Bucket()
    given = rows(value=["the same again"] * 1000)
    options = WriteOptions(topic="orders", codec=codec)
    segments = writer(bucket, target(partitions=1), options).write([given])
    ((_, batches),) = bucket.batches(segments).items()
    assert {read_header(batch).codec for batch in batches} == {codec}
    assert values_of(bucket.records(segments)[TopicPartition("orders", 0)]) == [b"the same again"] * 1000


def test_what_does_not_shrink_is_not_compressed() -> None:
    bucket = Bucket()
    segments = writer(bucket, target(partitions=1)).write([rows(value=["a"])])
    ((_, (batch,)),) = bucket.batches(segments).items()
    assert read_header(batch).codec == Codec.NONE


def test_batches_and_objects_have_the_sizes_that_were_requested() -> None:
    bucket = Bucket()
    options = WriteOptions(topic="orders", codec=Codec.NONE, batch_bytes=10_000, segment_bytes=100_000)
    given = rows(value=[bytes([n % 256]) * 100 for n in range(5000)])
    segments = writer(bucket, target(partitions=2), options).write([given])
    batches = bucket.batches(segments)
    assert len(segments) > 4
    assert max(len(batch) for each in batches.values() for batch in each) <= 10_000
    assert all(sum(run.length for run in segment.runs) < 120_000 for segment in segments)
    records = bucket.records(segments)
    assert sum(map(len, records.values())) == 5000
    assert len({segment.key for segment in segments}) == len(segments)


def test_rows_are_encoded_in_pieces() -> None:
    bucket = Bucket()
    big = rows(
        value=["v" * 1000] * (COALESCE_BYTES // 1000 + 1),
        partition=pa.array([0] * (COALESCE_BYTES // 1000 + 1), pa.int32()),
    )
    last = rows(value=["last"], partition=pa.array([0], pa.int32()))
    (segment,) = writer(bucket, target()).write([big, last])
    records = bucket.records([segment])[TopicPartition("orders", 0)]
    assert (records[-1].value, records[-1].offset) == (b"last", len(records) - 1)


def test_no_rows_are_no_objects() -> None:
    bucket = Bucket()
    assert writer(bucket, target()).write([]) == ()
    assert writer(bucket, target()).write([rows(value=pa.array([], pa.string()))]) == ()
    assert bucket.objects == {}


def test_a_record_that_is_larger_than_its_topic_allows_is_reported_with_what_to_do() -> None:
    noise = Ids().token() * 100
    with pytest.raises(RecordTooLarge, match=r"orders-0 do=raise max\.message\.bytes.*limit=1000"):
        writer(
            Bucket(), target(partitions=1, max_message_bytes="1000"), WriteOptions(topic="orders", codec=Codec.NONE)
        ).write([rows(value=["small", noise])])


def test_small_records_fit_under_any_limit_of_their_topic() -> None:
    bucket = Bucket()
    limited = target(partitions=1, max_message_bytes="1000")
    segments = writer(bucket, limited).write([rows(value=[Ids().token() for _ in range(500)])])
    ((_, batches),) = bucket.batches(segments).items()
    assert max(map(len, batches)) <= 1000


@pytest.mark.parametrize(
    ("topic", "columns", "error", "text"),
    [
        (target(cleanup_policy="compact"), {"value": ["a"]}, InvalidRecord, "needs keys"),
        (target(), {"value": ["a"], "partition": pa.array([4], pa.int32())}, UnknownTopic, "orders-4 partitions=4 do="),
        (target(), {"value": ["a"], "timestamp": [-1]}, InvalidTimestamp, "before 1970"),
        (target(), {"value": ["a"], "timestamp": [NOW_MS + 86_400_000]}, InvalidTimestamp, "too far ahead"),
        (
            target(message_timestamp_before_max_ms="1000"),
            {"value": ["a"], "timestamp": [NOW_MS - 2000]},
            InvalidTimestamp,
            "too far behind",
        ),
        (target(), {"value": ["a"], "headers": pa.array([[None]], HEADERS)}, InvalidRecord, "header has no name"),
    ],
)
def test_what_an_agent_would_refuse_is_refused(
    topic: TopicTarget, columns: dict[str, Any], error: type[StreamhouseError], text: str
) -> None:
    with pytest.raises(error, match=text):
        writer(Bucket(), topic).write([rows(**columns)])


def test_a_topic_of_append_times_gets_the_time_of_writing() -> None:
    bucket = Bucket()
    stamped = target(partitions=1, message_timestamp_type="LogAppendTime")
    segments = writer(bucket, stamped).write([rows(value=["a"], timestamp=[5])])
    assert [r.timestamp_ms for r in bucket.records(segments)[TopicPartition("orders", 0)]] == [NOW_MS]


def test_an_upload_that_fails_fails_the_task() -> None:
    def put(key: str, encoded: EncodedSegment) -> "Future[None]":
        failed: Future[None] = Future()
        failed.set_exception(Unavailable("object store is away"))
        return failed

    task = SegmentWriter(
        WriteOptions(topic="orders"),
        CommitId(QUERY, 0),
        target=lambda topic: target(),
        put=put,
        clock=StillClock(),
        ids=Ids(),
    )
    with pytest.raises(Unavailable):
        task.write([rows(value=["a"])])


RECORD_HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))
SOURCE = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": RECORD_HEADERS,
}


def columns(types: Mapping[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


@pytest.mark.parametrize(
    ("types", "topic", "text"),
    [
        ({"key": StringType()}, "orders", "a record needs a value.*to_json"),
        ({"value": IntegerType()}, "orders", "column=value type=int do=cast it to string or binary"),
        ({"value": StringType()}, None, "no topic is named; do=give the option topic"),
        ({"value": StringType(), "partition": LongType()}, "orders", "column=partition type=bigint"),
        ({"value": StringType(), "timestamp": StringType()}, "orders", "column=timestamp"),
        (
            {"value": StringType(), "headers": MapType(StringType(), StringType())},
            "orders",
            "column=headers.*array<struct<key:string,value:binary>>",
        ),
    ],
)
def test_columns_that_can_not_be_records_are_reported_before_any_work(
    types: Mapping[str, DataType], topic: str | None, text: str
) -> None:
    with pytest.raises(Misconfigured, match=text):
        check_schema(columns(types), topic=topic)


def test_a_stream_that_was_read_can_be_written_as_it_is() -> None:
    check_schema(columns(SOURCE), topic=None)


def test_options_are_understood_or_told() -> None:
    assert write_options({"queryId": QUERY.upper(), "epochId": "7"}).identity == CommitId(QUERY, 7)
    given = {
        "Topic": "orders",
        "compression": "ZSTD",
        "batchbytes": "1000",
        "checkpointLocation": "/x",
        "agents": "a:1",
    }
    understood = write_options(given)
    assert (understood.topic, understood.codec, understood.batch_bytes, understood.agents) == (
        "orders",
        Codec.ZSTD,
        1000,
        "a:1",
    )
    assert write_options({"kafka.compression.type": "gzip"}).codec is Codec.GZIP
    assert write_options({"kafka.compression.type": "gzip", "compression": "none"}).codec is Codec.NONE
    for wrong, text in (
        ({"topik": "a"}, "did you mean topic"),
        ({"compression": "rar"}, "none, gzip, snappy, lz4, zstd"),
        ({"batchBytes": "-1"}, "option=batchBytes"),
        ({"queryId": QUERY}, "go together"),
        ({"queryId": "x", "epochId": "1"}, "not a UUID"),
    ):
        with pytest.raises(Misconfigured, match=text):
            write_options(wrong)
