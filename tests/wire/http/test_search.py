"""Search over HTTP: what it finds is what a person would find who reads everything."""

import asyncio
import json
import random
import tracemalloc
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.segments import key_search
from streamhouse.config import FlushSettings, HttpSettings
from streamhouse.errors import CorruptBatch
from streamhouse.format import key_filter
from streamhouse.format.batch import BatchHeader
from streamhouse.format.compression import Codec
from streamhouse.format.key_filter import FilteredKeys
from streamhouse.format.records import encode_batch, iterate_payload
from streamhouse.format.run_index import RunIndex
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.record import NewRecord, StoredRecord
from streamhouse.model.segment import Run
from streamhouse.wire.http.records import search as search_module
from streamhouse.wire.http.records.search import JsonCondition, parse_path
from streamhouse.wire.http.records.topic_reader import MAX_HEADERS
from streamhouse.wire.http.routes.search import SearchRequest
from tests.broker.conftest import MakeWorld
from tests.broker.support import World, current, produce
from tests.wire.http.conftest import serving

PATH = "/v1/topics/orders/search"
START_MS = 1_700_000_000_000


async def search(http: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await http.post(PATH, json=body)
    assert answer.status_code == 200, answer.text
    response: dict[str, Any] = answer.json()
    return response


async def search_all(http: httpx.AsyncClient, **body: Any) -> list[dict[str, Any]]:
    """All pages; each goes on where the one before ended."""
    results: list[dict[str, Any]] = []
    cursor = ""
    for _ in range(1000):
        response = await search(http, **body, cursor=cursor)
        results += response["records"]
        if response["cursor"] is None:
            assert response["searched"]["left"] == 0
            return results
        cursor = response["cursor"]
    raise AssertionError("the search never ended")


class Topic:
    """Records in two partitions, partly flushed, in batches of every codec, and the same in a list."""

    def __init__(self, broker: Broker, seed: int) -> None:
        self._broker = broker
        self._chance = random.Random(seed)
        self.records: list[tuple[int, int, NewRecord]] = []

    async def fill(self) -> "Topic":
        ends = [0, 0]
        for number in range(40):
            partition = self._chance.randrange(2)
            records = [self._record(number) for _ in range(self._chance.randrange(1, 30))]
            codec = self._chance.choice(list(Codec))
            data = memoryview(encode_batch(records, codec=codec, now_ms=START_MS))
            await produce(self._broker, data, TopicPartition("orders", partition))
            for record in records:
                self.records.append((partition, ends[partition], record))
                ends[partition] += 1
            if self._chance.random() < 0.1:
                await current(self._broker).flusher.flush_all()
        return self

    def _record(self, number: int) -> NewRecord:
        chance = self._chance
        key = chance.choice((None, b"", b"alice", b"bob", b"al"))
        value: object = {
            "user": {"name": chance.choice(("alice", "bob"))},
            "n": chance.randrange(4),
            "tags": ["a", "b"],
        }
        content = chance.choice((json.dumps(value).encode(), b"plain alice", None, b"\xff\x00"))
        headers = chance.choice(((), (("trace", b"t1"),), (("trace", None), ("kind", b"alice"))))
        return NewRecord(content, key=key, headers=headers, timestamp_ms=START_MS + number * 1000)

    def matching(self, body: dict[str, Any]) -> list[tuple[int, int]]:
        return sorted((partition, offset) for partition, offset, record in self.records if self._matches(record, body))

    def _matches(self, record: NewRecord, body: dict[str, Any]) -> bool:
        if "key" in body and record.key != body["key"].encode():
            return False
        everything = [record.key or b"", record.value or b""]
        everything += [part for name, value in record.headers for part in (name.encode(), value or b"")]
        if "text" in body and not any(body["text"].encode() in each for each in everything):
            return False
        if (header := body.get("header")) is not None:
            values = [value for name, value in record.headers if name == header["name"]]
            if not values or ("value" in header and header["value"].encode() not in values):
                return False
        if conditions := body.get("json"):
            try:
                value = json.loads(record.value or b"")
                return all(eval(f"value{each['path']}", {"value": value}) == each["equals"] for each in conditions)
            except (ValueError, KeyError, TypeError):
                return False
        return True


def as_python(body: dict[str, Any]) -> dict[str, Any]:
    """The same request with paths as Python's subscripts."""
    paths = {"user.name": "['user']['name']", "$.n": "['n']", "tags[1]": "['tags'][1]"}
    conditions = [{**each, "path": paths[each["path"]]} for each in body.get("json", [])]
    return {**body, "json": conditions}


QUERIES: list[dict[str, Any]] = [
    {"key": "alice"},
    {"key": ""},
    {"key": "nobody"},
    {"text": "alice"},
    {"text": "al", "key": "bob"},
    {"header": {"name": "trace"}},
    {"header": {"name": "trace", "value": "t1"}},
    {"header": {"name": "kind", "value": "alice"}, "text": "plain"},
    {"json": [{"path": "user.name", "equals": "bob"}]},
    {"json": [{"path": "user.name", "equals": "alice"}, {"path": "$.n", "equals": 2}]},
    {"json": [{"path": "tags[1]", "equals": "b"}], "key": "al"},
]


@pytest.mark.parametrize(("seed", "key_filters"), [(0, "none"), (1, "uncompressed"), (2, "all"), (3, "none")])
@pytest.mark.parametrize("read_bytes", [600, search_module.READ_BYTES])
async def test_a_search_finds_what_is_there_in_pages_of_any_size(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, seed: int, key_filters: FilteredKeys, read_bytes: int
) -> None:
    monkeypatch.setattr(search_module, "READ_BYTES", read_bytes)
    broker = await (await make_world(flush=FlushSettings(block_bytes=256, key_filters=key_filters))).start()
    await broker.create_topic("orders", partitions=3, overrides={})
    topic = await Topic(broker, seed).fill()
    chance = random.Random(seed)
    async with serving(broker) as http:
        for body in QUERIES:
            sizes = {"limit": chance.choice((1, 3, 1000)), "max_bytes": chance.choice((1, 2000, 1 << 30))}
            result = await search_all(http, **body, **sizes)
            offsets = sorted((each["partition"], each["offset"]) for each in result)
            assert offsets == topic.matching(as_python(body)), body


async def filled(world: World) -> Broker:
    broker = await world.start_with(TopicPartition("orders", 0))
    for segment in range(20):
        for block in range(10):
            record = NewRecord(b"x" * 250, key=b"key-%d" % (10 * segment + block))
            data = memoryview(encode_batch([record], codec=Codec.NONE, now_ms=START_MS))
            await produce(broker, data, TopicPartition("orders", 0))
        await current(broker).flusher.flush_all()
    return broker


@pytest.mark.skipif(not key_filter.IS_COMPILED, reason="built without a compiler")
async def test_a_search_ends_in_time_and_goes_on_where_it_was(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three of twenty segments are opened in a step; each answer ends after the first one."""
    monkeypatch.setattr(key_search, "STEP_RUNS", 3)
    broker = await filled(await make_world(http=HttpSettings(search_time_s=1e-9)))
    async with serving(broker) as http:
        response = await search(http, key="nobody")
        assert (response["searched"]["segments"], response["searched"]["offsets"]) == (3, 30)
        assert [each["offset"] for each in await search_all(http, key="key-123")] == [123]
        assert len(await search_all(http, text="x", limit=1000)) == 200


async def test_a_search_ends_in_time_within_a_batch_too(make_world: MakeWorld) -> None:
    """Each answer ends behind the first record that it compares."""
    world = await make_world(http=HttpSettings(search_time_s=1e-9))
    broker = await world.start_with(TopicPartition("orders", 0))
    records = [NewRecord(b'{"n": %d}' % number) for number in range(20)]
    data = memoryview(encode_batch(records, codec=Codec.ZSTD, now_ms=START_MS))
    await produce(broker, data, TopicPartition("orders", 0))
    async with serving(broker) as http:
        response = await search(http, json=[{"path": "n", "equals": 7}])
        assert (response["searched"]["offsets"], response["searched"]["left"]) == (1, 19)
        assert [each["offset"] for each in await search_all(http, json=[{"path": "n", "equals": 7}])] == [7]


@pytest.mark.skipif(not key_filter.IS_COMPILED, reason="built without a compiler")
class TestKeyFilters:
    """A topic of 20 segments of 10 blocks, each with a key of its own."""

    @pytest.fixture
    async def broker(self, world: World) -> Broker:
        return await filled(world)

    async def test_only_blocks_that_may_hold_the_key_are_read(self, http: httpx.AsyncClient) -> None:
        response = await search(http, key="key-123")
        assert [each["offset"] for each in response["records"]] == [123]
        searched = response["searched"]
        assert (searched["offsets"], searched["left"], searched["segments"]) == (200, 0, 20)
        assert searched["segments_needed"] < 5
        assert searched["skipped_bytes"] > 190 * 250

    async def test_runs_are_opened_several_at_a_time_the_more_the_longer_it_takes(
        self, broker: Broker, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opening, most = 0, [0]
        read = broker.reader.index

        async def index(run: Run) -> RunIndex:
            nonlocal opening
            opening += 1
            most[0] = max(most[0], opening)
            await asyncio.sleep(0.001)
            opening -= 1
            return await read(run)

        monkeypatch.setattr(broker.reader, "index", index)
        assert [each["offset"] for each in (await search(http, key="key-199"))["records"]] == [199]
        assert most == [8]

    async def test_what_is_not_flushed_yet_is_searched_too(self, broker: Broker, http: httpx.AsyncClient) -> None:
        data = memoryview(encode_batch([NewRecord(b"new", key=b"key-3")], codec=Codec.NONE, now_ms=START_MS))
        await produce(broker, data, TopicPartition("orders", 0))
        assert [each["offset"] for each in (await search(http, key="key-3"))["records"]] == [3, 200]

    async def test_a_search_that_finds_nothing_is_bounded_as_well(
        self, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(key_search, "STEP_BLOCKS", 16)
        response = await search(http, key="nobody", max_bytes=1)
        assert response["cursor"] is not None
        assert response["searched"]["left"] > 0
        assert await search_all(http, key="nobody", max_bytes=1) == []

    async def test_damaged_filters_hide_nothing(self, broker: Broker, world: World, http: httpx.AsyncClient) -> None:
        topic = await broker.topic("orders")
        for run in await world.sqlite.runs(PartitionId(topic.topic_id, 0), from_offset=0, limit=100):
            stored = bytearray(await world.bucket.get_range(run.object_key, 0, run.index_position))
            rest = await world.bucket.get_suffix(run.object_key, run.index_length + 1000)
            size = (await world.bucket.head(run.object_key)).size_bytes
            stored[run.position + run.length + 30] ^= 1
            await world.bucket.delete(run.object_key)
            await world.bucket.put_new(run.object_key, [bytes(stored), rest[-(size - run.index_position) :]])
        response = await search(http, key="key-123")
        assert [each["offset"] for each in response["records"]] == [123]
        assert response["searched"]["segments_needed"] == response["searched"]["segments"] == 20


async def test_what_was_read_before_a_damaged_object_is_found(make_world: MakeWorld) -> None:
    """Reads that are under way at once end in order: one that fails takes nothing from those before it."""
    world = await make_world(flush=FlushSettings(key_filters="none"))
    broker = await world.start_with(TopicPartition("orders", 0))
    for _ in range(3):
        await produce_one(broker, b"x", key=b"alice")
        await current(broker).flusher.flush_all()
    topic = await broker.topic("orders")
    *_, last = await world.sqlite.runs(PartitionId(topic.topic_id, 0), from_offset=0, limit=100)
    await world.bucket.delete(last.object_key)
    async with serving(broker) as http:
        assert [each["offset"] for each in (await search(http, key="alice"))["records"]] == [0, 1]


async def test_a_key_is_found_first_where_kafkas_clients_put_it(broker: Broker, http: httpx.AsyncClient) -> None:
    for partition in range(2):
        for key in (b"alice", b"bob"):
            data = encode_batch([NewRecord(b"x", key=key)], codec=Codec.NONE, now_ms=START_MS)
            await produce(broker, memoryview(data), TopicPartition("orders", partition))
    firsts = {key: (await search(http, key=key, limit=1))["records"][0]["partition"] for key in ("alice", "bob")}
    published = await http.post(
        "/v1/topics/orders/records", json={"records": [{"key": "alice", "value": 1}, {"key": "bob", "value": 1}]}
    )
    assert list(firsts.values()) == [each["partition"] for each in published.json()["records"]]


async def test_times_and_partitions_limit_what_is_searched(broker: Broker, http: httpx.AsyncClient) -> None:
    for number in range(10):
        data = encode_batch([NewRecord(b"x", timestamp_ms=START_MS + number)], codec=Codec.LZ4, now_ms=0)
        await produce(broker, memoryview(data), TopicPartition("orders", number % 2))
    response = await search(http, text="x", from_ms=START_MS + 3, until_ms=START_MS + 7)
    assert sorted(each["timestamp_ms"] - START_MS for each in response["records"]) == [3, 4, 5, 6]
    assert response["searched"]["offsets"] == 4
    assert [each["offset"] for each in (await search(http, text="x", partitions=[1]))["records"]] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ({}, 422, "what to find"),
        ({"text": ""}, 400, "length"),
        ({"text": "x", "limit": 0}, 400, "limit"),
        ({"text": "x", "max_bytes": 1 << 40}, 400, "max_bytes"),
        ({"text": "x", "partitions": [3]}, 422, "3 partitions"),
        ({"text": "x", "cursor": "abc"}, 422, "cursor"),
        ({"json": [{"path": "a..b", "equals": 1}]}, 422, "path"),
        ({"json": [{"path": "$", "equals": 1}]}, 422, "path"),
        ({"json": [{"path": "a", "equals": [1]}]}, 400, "equals"),
    ],
)
async def test_a_search_that_makes_no_sense_is_refused(
    http: httpx.AsyncClient, body: dict[str, Any], status: int, word: str
) -> None:
    response = await http.post(PATH, json=body)
    assert response.status_code == status, response.text
    assert word in response.text


BRACKETS = b"[" + b"[]," * (8 << 20) + b"[]]"
"""24 MiB, 8 million objects; a few kilobytes with zstd."""


async def produce_one(broker: Broker, value: bytes, *, key: bytes | None = None, codec: Codec = Codec.ZSTD) -> None:
    data = memoryview(encode_batch([NewRecord(value, key=key)], codec=codec, now_ms=START_MS))
    await produce(broker, data, TopicPartition("orders", 0))


class TestHostileRecords:
    """A record of a few kilobytes may become gigabytes: nothing of it does unless it is needed."""

    async def test_of_a_json_value_only_what_is_compared_becomes_an_object(self) -> None:
        value = b'{"before": ' + BRACKETS + b', "here": [0, {"x": 7}], "behind": ' + BRACKETS + b"}"
        result, missing = JsonCondition(parse_path("here[1].x"), 7), JsonCondition(parse_path("there"), 7)
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            assert result.holds_in(value)
            assert not missing.holds_in(value)
            assert not JsonCondition(parse_path("[3][0]"), 7).holds_in(BRACKETS)
            assert not JsonCondition(parse_path("before"), 7).holds_in(value)
            taken = tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()
        assert taken < len(value)

    async def test_a_value_too_large_for_json_is_an_error_with_its_offset(
        self, broker: Broker, http: httpx.AsyncClient
    ) -> None:
        await produce_one(broker, b'{"a": 1}')
        await produce_one(broker, BRACKETS)
        body = {"json": [{"path": "a", "equals": 1}]}
        response = await search(http, **body)
        assert [each["offset"] for each in response["records"]] == [0]
        answer = await http.post(PATH, json={**body, "cursor": response["cursor"]})
        assert answer.status_code == 422
        assert "offset=1" in answer.json()["detail"]
        assert "http.max_record_bytes" in answer.json()["detail"]

    @pytest.mark.parametrize("condition", [{"key": "large"}, {"text": "[],[]"}])
    async def test_so_is_a_match_that_can_not_be_written(
        self, broker: Broker, http: httpx.AsyncClient, condition: dict[str, Any]
    ) -> None:
        await produce_one(broker, BRACKETS, key=b"large")
        response = await http.post(PATH, json=condition)
        assert response.status_code == 422
        assert "offset=0" in response.json()["detail"]
        assert await search_all(http, key="small") == []

    async def test_headers_of_two_bytes_count(self, broker: Broker, http: httpx.AsyncClient) -> None:
        records = [NewRecord(b"x", headers=(("", None),) * 9_999)] * 100
        await produce(broker, memoryview(encode_batch(records, codec=Codec.ZSTD, now_ms=START_MS)))
        response = await search(http, text="x", limit=1000)
        assert 0 < len(response["records"]) * 9_999 < MAX_HEADERS + 9_999
        assert [each["offset"] for each in await search_all(http, text="x", limit=1000)] == list(range(100))

    async def test_decompressed_bytes_count(
        self, broker: Broker, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(20):
            await produce_one(broker, bytes(1 << 20), key=b"%d" % number)
        response = await search(http, text="nothing", max_bytes=64 * 1024)
        assert response["searched"]["bytes"] < 64 * 1024
        assert response["searched"]["offsets"] == 1  # a mebibyte, 16 times as much as was allowed
        monkeypatch.setattr(search_module, "TRIP_BYTES", 1)
        assert [each["offset"] for each in await search_all(http, key="17")] == [17]
        response = await search(http, text="nothing")
        assert (response["searched"]["offsets"], response["cursor"]) == (20, None)


@pytest.mark.parametrize(
    ("text", "path", "equals"),
    [
        (b'{"a": {"b": [1, 2.5, "x", true, null]}}', "a.b[1]", 2.5),
        (b'{"a": {"b": [1, 2.5, "x", true, null]}}', "a.b[4]", None),
        (b'{"a": 1, "a": 2}', "a", 2),
        (b'{"\\u0061": "\\u00e9"}', "a", "é"),
        (b'[{"": 0}, [[7]]]', "[1][0][0]", 7),
        (b'{"a b": 123456789012345678901234567890}', "a b", 123456789012345678901234567890),
        (b"[" + b"0," * 999 + b"5]", "[999]", 5),
        (b"[0, 1, 2, 3, 5, 4, 6, 7, 8]", "[4]", 5),
    ],
)
def test_a_stored_value_is_compared_as_a_decoded_one(text: bytes, path: str, equals: Any) -> None:
    condition = JsonCondition(parse_path(path), equals)
    assert condition.holds(json.loads(text))
    assert condition.holds_in(text)
    for other in (b"", b"null", b"7", b"[]", b"{}", b'{"a"', b"\xff", b"[" * 5000, text + b"x", b'{"a": [[]]}'):
        assert not condition.holds_in(other)


@pytest.mark.parametrize(
    ("path", "word"),
    [("a" + ".a" * 64, "64 steps"), ("[1000]", "first 1000"), ('a.b"c', "no quotes"), ("a\\b", "no quotes")],
)
async def test_paths_are_bounded(http: httpx.AsyncClient, path: str, word: str) -> None:
    response = await http.post(PATH, json={"json": [{"path": path, "equals": 1}]})
    assert response.status_code == 422
    assert word in response.text


def test_the_decoders_of_a_search_are_made_once() -> None:
    """One takes a hundred times as long to make as to use, and a search has up to 512 steps for each record."""
    paths = [".".join(f"n{number}-{step}" for step in range(64)) for number in range(8)]
    paths += ["".join(f"[{number * 64 + step}]" for step in range(64)) for number in range(8)]
    conditions = [JsonCondition(parse_path(path), 1) for path in paths]
    values = [b"1"] * len(conditions)
    for step in range(63, -1, -1):
        for number in range(8):
            values[number] = b'{"n%d-%d":' % (number, step) + values[number] + b"}"
            values[8 + number] = b"[" + b"0," * (number * 64 + step) + values[8 + number] + b"]"
    decoders = (search_module._member_decoder, search_module._elements_decoder)
    assert all(condition.holds_in(value) for condition, value in zip(conditions, values, strict=True))
    made = [each.cache_info().misses for each in decoders]
    assert all(condition.holds_in(value) for condition, value in zip(conditions, values, strict=True))
    assert [each.cache_info().misses for each in decoders] == made


async def test_where_records_can_not_be_searched_all_others_are_and_the_error_comes_last(
    broker: Broker, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def iterate(payload: memoryview, header: BatchHeader, **limits: int) -> Iterator[StoredRecord]:
        if b"damaged" in bytes(payload):
            raise CorruptBatch("records are malformed")
        yield from iterate_payload(payload, header, **limits)

    monkeypatch.setattr(search_module, "iterate_payload", iterate)
    for partition, value in ((0, b"a x"), (0, b"damaged x"), (0, b"c x"), (1, b"d x"), (2, b"e")):
        data = encode_batch([NewRecord(value)], codec=Codec.NONE, now_ms=START_MS)
        await produce(broker, memoryview(data), TopicPartition("orders", partition))
    response = await search(http, text="x")
    assert [each["value"] for each in response["records"]] == ["a x", "d x"]
    answer = await http.post(PATH, json={"text": "x", "cursor": response["cursor"]})
    assert answer.status_code == 422
    assert "partition=orders-0 offsets=[1,2)" in answer.json()["detail"]
    assert [each["value"] for each in (await search(http, text="x", partitions=[1, 2]))["records"]] == ["d x"]


async def test_a_lost_object_ends_no_other_partitions_search(make_world: MakeWorld) -> None:
    world = await make_world()
    broker = await world.start()
    await broker.create_topic("orders", partitions=2, overrides={"retention.ms": "-1"})
    for partition in range(2):
        data = encode_batch([NewRecord(b"x")], codec=Codec.NONE, now_ms=START_MS)
        await produce(broker, memoryview(data), TopicPartition("orders", partition))
        await current(broker).flusher.flush_all()
    topic = await broker.topic("orders")
    [lost] = await world.sqlite.runs(PartitionId(topic.topic_id, 0), from_offset=0, limit=1)
    await world.bucket.delete(lost.object_key)
    world.kill()
    async with serving(await world.start()) as http:
        response = await search(http, text="x")
        assert [each["partition"] for each in response["records"]] == [1]
        answer = await http.post(PATH, json={"text": "x", "cursor": response["cursor"]})
    assert answer.status_code == 500
    assert "partition=orders-0 offsets=[0,1)" in answer.json()["detail"]


def test_numbers_are_equal_whatever_their_type_and_true_is_no_number() -> None:
    assert JsonCondition(("a", 0), 1.0).holds({"a": [1]})
    assert not JsonCondition(("a", 0), 1).holds({"a": [True]})
    assert JsonCondition(("a",), None).holds({"a": None})
    assert not JsonCondition(("a",), None).holds({})


def test_paths() -> None:
    assert parse_path("$.user.roles[0]") == ("user", "roles", 0)
    assert parse_path("[3].x y") == (3, "x y")
    assert SearchRequest(text="x").limit == 100
