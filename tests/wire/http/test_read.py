"""Reading over HTTP: pages of one partition and of all, formats, cursors, streams that end."""

import json
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.partition.batch_decoder import BatchDecoder, StoredSize, stored_size
from streamhouse.clock import SystemClock
from streamhouse.config import DecoderSettings, ProducerSettings
from streamhouse.format.compression import Codec
from streamhouse.format.records import Record, build_batch, encode_batch
from streamhouse.model.fetch import FetchResult
from streamhouse.model.names import PartitionId, TopicId, TopicPartition
from streamhouse.model.record import Acks, NewRecord
from streamhouse.wire.http.errors import Unprocessable
from streamhouse.wire.http.records import topic_reader
from streamhouse.wire.http.records.topic_reader import read_cursor, write_cursor
from tests.broker.support import NOW_MS, World, current, produce

PAGE = "/v1/topics/orders/partitions/0/records"
RECORDS = "/v1/topics/orders/records"


async def publish(broker: Broker, *records: NewRecord) -> None:
    responses = await broker.records.publish("orders", records, acks=Acks.WAL, timeout_s=5)
    assert not [each for each in responses if isinstance(each, Exception)]


async def some(broker: Broker, count: int, partition: int = 0) -> None:
    await publish(broker, *(NewRecord(str(each).encode(), partition=partition) for each in range(count)))


async def page(http: httpx.AsyncClient, path: str = PAGE, **params: Any) -> dict[str, Any]:
    answer = await http.get(path, params=params)
    assert answer.status_code == 200, answer.text
    response: dict[str, Any] = answer.json()
    return response


def values(reported: dict[str, Any]) -> list[Any]:
    return [record["value"] for record in reported["records"]]


async def test_a_page_says_where_the_next_one_begins(broker: Broker, http: httpx.AsyncClient) -> None:
    await some(broker, 10)
    first = await page(http, limit=4)
    assert (values(first), first["next_offset"], first["high_watermark"], first["log_start"]) == (
        [0, 1, 2, 3],
        4,
        10,
        0,
    )
    rest = await page(http, offset=first["next_offset"])
    assert (values(rest), rest["next_offset"]) == ([4, 5, 6, 7, 8, 9], 10)
    assert values(await page(http, offset=10)) == []


async def test_a_page_ends_at_its_bytes_but_has_one_record(broker: Broker, http: httpx.AsyncClient) -> None:
    await publish(broker, *(NewRecord(json.dumps("x" * 100).encode(), partition=0) for _ in range(5)))
    response = await page(http, max_bytes=250)
    assert (len(response["records"]), response["next_offset"]) == (2, 2)
    assert len((await page(http, max_bytes=1))["records"]) == 1


async def test_a_page_goes_on_behind_what_is_in_segments(broker: Broker, http: httpx.AsyncClient) -> None:
    await some(broker, 30)
    await current(broker).flusher.flush_all()
    await some(broker, 3)
    await current(broker).flusher.flush_all()
    await some(broker, 2)
    response = await page(http, limit=1000)
    assert (values(response), response["next_offset"]) == ([*range(30), *range(3), *range(2)], 35)
    response = await page(http, RECORDS, limit=1000)
    assert values(response) == [*range(30), *range(3), *range(2)]
    assert values(await page(http, RECORDS, cursor=response["cursor"])) == []
    response = await page(http, limit=32)
    assert (len(response["records"]), response["next_offset"]) == (32, 32)
    response = await page(http, RECORDS, limit=32)
    assert len(response["records"]) == 32
    assert values(await page(http, RECORDS, cursor=response["cursor"])) == [2, 0, 1]


async def test_a_page_of_all_partitions_ends_at_its_bytes(broker: Broker, http: httpx.AsyncClient) -> None:
    records = [NewRecord(json.dumps("x" * 100).encode()) for _ in range(3)]
    for partition in range(3):  # together they fit, until they are opened
        data = encode_batch(records, codec=Codec.ZSTD, now_ms=NOW_MS)
        await produce(broker, memoryview(data), TopicPartition("orders", partition))
    seen: list[tuple[int, int]] = []
    cursor = ""
    while (result := await page(http, RECORDS, max_bytes=450, cursor=cursor))["records"]:
        assert len(result["records"]) <= 4
        seen += [(record["partition"], record["offset"]) for record in result["records"]]
        cursor = result["cursor"]
    assert sorted(seen) == [(partition, offset) for partition in range(3) for offset in range(3)]
    assert len((await page(http, RECORDS, max_bytes=1))["records"]) == 1


async def test_a_page_begins_at_a_time(broker: Broker, http: httpx.AsyncClient) -> None:
    await publish(broker, *(NewRecord(b"%d" % at, partition=0, timestamp_ms=NOW_MS + at) for at in range(5)))
    assert values(await page(http, timestamp=NOW_MS + 3)) == [3, 4]
    assert values(await page(http, timestamp=NOW_MS + 99)) == []


@pytest.mark.parametrize(
    ("stored", "form", "value", "mark"),
    [
        (b'{"a": 1}', "json", {"a": 1}, None),
        (b"plain", "json", "plain", "text"),
        (b"\xff\x00", "json", "/wA=", "base64"),
        (b"null", "json", "null", "text"),
        (None, "json", None, None),
        (b'"\xff"', "json", "Iv8i", "base64"),
        (b"[" * 5000 + b"]" * 5000, "json", "[" * 5000 + "]" * 5000, "text"),
        (b"", "json", "", "text"),
        (b'{"a": 1}', "text", '{"a": 1}', None),
        (b"\xff", "text", "/w==", "base64"),
        (b"plain", "base64", "cGxhaW4=", None),
        (b"\x00\x00\x00\x00\x63abc", "schema", "\x00\x00\x00\x00cabc", "text"),
    ],
)
async def test_values_are_written_as_wanted_or_say_how_they_are(
    broker: Broker, http: httpx.AsyncClient, stored: bytes | None, form: str, value: Any, mark: str | None
) -> None:
    await publish(broker, NewRecord(stored, partition=0))
    (record,) = (await page(http, format=form))["records"]
    assert (record["value"], record.get("value_format")) == (value, mark)
    assert (await page(http, value_format=form))["records"] == [record]


async def test_what_was_read_can_be_published_again(broker: Broker, http: httpx.AsyncClient) -> None:
    first = NewRecord(b"\xff", key=b"\xfe", headers=(("h", b"\xfd"), ("n", None)), timestamp_ms=NOW_MS, partition=0)
    await publish(broker, first, NewRecord(b'{"a":1}', key=b"k", partition=0), NewRecord(None, key=b"k", partition=0))
    read = (await page(http))["records"]
    again = [{name: value for name, value in record.items() if name != "offset"} for record in read]
    assert (await http.post(RECORDS, json={"records": again})).status_code == 200
    for one, other in zip(read, (await page(http, offset=3))["records"], strict=True):
        assert {**one, "offset": None} == {**other, "offset": None}


async def test_compressed_batches_are_opened(broker: Broker, http: httpx.AsyncClient) -> None:
    records = [NewRecord(json.dumps({"n": each, "text": "y" * 300}).encode()) for each in range(500)]
    data = encode_batch(records, codec=Codec.ZSTD, now_ms=NOW_MS)
    await produce(broker, memoryview(data), TopicPartition("orders", 0))
    response = await page(http, limit=1000)
    assert [value["n"] for value in values(response)] == list(range(500))


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"offset": 99}, 416),
        ({"offset": -1}, 400),
        ({"offset": "x"}, 400),
        ({"limit": 0}, 400),
        ({"wait_ms": 10**9}, 400),
        ({"format": "avro"}, 400),
        ({"from": "latest"}, 400),
    ],
)
async def test_a_page_that_can_not_be_is_refused(http: httpx.AsyncClient, params: dict[str, Any], status: int) -> None:
    response = await http.get(PAGE, params=params)
    assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json")


@pytest.mark.parametrize("path", ["/v1/topics/orders/partitions/7/records", "/v1/topics/none/partitions/0/records"])
async def test_a_partition_that_is_not_there_is_not_found(http: httpx.AsyncClient, path: str) -> None:
    response = await http.get(path)
    assert (response.status_code, response.json()["title"]) == (404, "UnknownTopic")


# --- all partitions


async def test_pages_of_all_partitions_follow_each_other_by_cursor(broker: Broker, http: httpx.AsyncClient) -> None:
    for partition in range(3):
        await some(broker, 5, partition)
    results: list[tuple[int, int]] = []
    cursor = ""
    while True:
        response = await page(http, RECORDS, limit=4, cursor=cursor)
        if not response["records"]:
            break
        results += [(record["partition"], record["offset"]) for record in response["records"]]
        cursor = response["cursor"]
    assert sorted(results) == [(partition, offset) for partition in range(3) for offset in range(5)]


async def test_reading_begins_at_the_end_or_at_a_time(broker: Broker, http: httpx.AsyncClient) -> None:
    await publish(broker, *(NewRecord(b"%d" % at, partition=at % 3, timestamp_ms=NOW_MS + at) for at in range(6)))
    end = await page(http, RECORDS, **{"from": "latest"})
    assert end["records"] == []
    assert sorted(values(await page(http, RECORDS, **{"from": NOW_MS + 4}))) == [4, 5]
    await some(broker, 1)
    assert values(await page(http, RECORDS, cursor=end["cursor"])) == [0]


async def test_a_stream_with_a_limit_ends(broker: Broker, http: httpx.AsyncClient) -> None:
    await some(broker, 10)
    response = await http.get(RECORDS, params={"limit": 7}, headers={"accept": "application/x-ndjson"})
    assert response.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line)["value"] for line in response.text.splitlines()] == list(range(7))


async def test_events_carry_cursors_that_resume(broker: Broker, http: httpx.AsyncClient) -> None:
    await some(broker, 4, 0)
    await some(broker, 4, 1)
    accept = {"accept": "text/event-stream"}
    response = await http.get(RECORDS, params={"limit": 3}, headers=accept)
    assert response.text.startswith("retry: 2000\n\n")
    events = [part for part in response.text.split("\n\n") if "data: " in part]
    last_id = events[-1].split("\n")[0].removeprefix("id: ")
    seen = [json.loads(event.split("data: ")[1]) for event in events]
    rest = await http.get(RECORDS, params={"limit": 5, "from": "latest"}, headers={**accept, "last-event-id": last_id})
    seen += [json.loads(part.split("data: ")[1]) for part in rest.text.split("\n\n") if "data: " in part]
    assert sorted((each["partition"], each["offset"]) for each in seen) == [
        (partition, offset) for partition in range(2) for offset in range(4)
    ]


async def test_a_stream_reports_records_that_retention_took(broker: Broker, http: httpx.AsyncClient) -> None:
    await some(broker, 5)
    before = (await page(http, RECORDS, limit=1))["cursor"]
    await broker.open_log(TopicPartition("orders", 0))
    (opened,) = [each for each in broker.agent_session.logs if each.name.partition == 0]  # type: ignore[union-attr]
    opened.advance_log_start(3)
    response = await http.get(
        RECORDS, params={"limit": 2, "cursor": before}, headers={"accept": "application/x-ndjson"}
    )
    first, *records = [json.loads(line) for line in response.text.splitlines()]
    assert first == {"gap": {"partition": 0, "from_offset": 1, "to_offset": 3}}
    assert [record["offset"] for record in records] == [3, 4]


@pytest.mark.parametrize("accept", ["image/png", "application/xml;q=0.5", "application/json;q=0", "nonsense"])
async def test_a_media_type_that_there_is_not_is_not_acceptable(http: httpx.AsyncClient, accept: str) -> None:
    response = await http.get(RECORDS, headers={"accept": accept})
    assert (response.status_code, response.headers["content-type"]) == (406, "application/problem+json")


@pytest.mark.parametrize(
    ("accept", "given"),
    [
        ("*/*", "application/json"),
        ("application/*", "application/json"),
        ("text/html, application/json;q=0.9, */*;q=0.1", "application/json"),
        ("application/json;q=0.1, application/x-ndjson", "application/x-ndjson"),
    ],
)
async def test_the_media_type_that_a_client_likes_best_is_served(
    broker: Broker, http: httpx.AsyncClient, accept: str, given: str
) -> None:
    await some(broker, 1)
    response = await http.get(RECORDS, params={"limit": 1}, headers={"accept": accept})
    assert response.headers["content-type"] == given


@pytest.mark.parametrize("cursor", ["x", "!!", "AAAA", "A" * 3000])
async def test_what_is_no_cursor_is_refused(http: httpx.AsyncClient, cursor: str) -> None:
    response = await http.get(RECORDS, params={"cursor": cursor})
    assert (response.status_code, "cursor" in response.json()["detail"]) == (422, True)


async def test_a_cursor_of_a_deleted_topic_is_refused(broker: Broker, http: httpx.AsyncClient) -> None:
    cursor = (await page(http, RECORDS))["cursor"]
    await broker.delete_topic(await broker.topic("orders"))
    await broker.create_topic("orders", partitions=3, overrides={})
    assert (await http.get(RECORDS, params={"cursor": cursor})).status_code == 422


def test_a_cursor_says_what_was_put_into_it(world: Any) -> None:
    topic_id = TopicId(world.ids.uuid())
    for offsets in ([], [0], [127, 128, 2**62, 0, 2**63 - 1]):
        assert read_cursor(write_cursor(topic_id, offsets), topic_id, partitions=5) == offsets
    with pytest.raises(Unprocessable):
        read_cursor(write_cursor(topic_id, [2**63]), topic_id, partitions=5)
    with pytest.raises(Unprocessable):
        read_cursor(write_cursor(topic_id, [1, 2]), topic_id, partitions=1)


async def test_partitions_beside_one_that_can_not_be_read_are_read_and_then_its_range_is_named(
    broker: Broker, http: httpx.AsyncClient, world: World
) -> None:
    for number in range(3):
        await some(broker, 2, partition=number)
        await current(broker).flusher.flush_all()
    topic = await broker.topic("orders")
    (run,) = await world.sqlite.runs(PartitionId(topic.topic_id, 1), from_offset=0, limit=9)
    await world.bucket.delete(run.object_key)
    response = await page(http, RECORDS)
    assert sorted((record["partition"], record["offset"]) for record in response["records"]) == [
        (0, 0),
        (0, 1),
        (2, 0),
        (2, 1),
    ]
    answer = await http.get(RECORDS, params={"cursor": response["cursor"]})
    assert answer.status_code == 500
    assert "orders-1 offsets=[0,2)" in answer.json()["detail"]


@pytest.mark.parametrize(("count", "on_loop"), [(3, True), (1000, False)])
async def test_many_batches_are_found_in_a_thread(monkeypatch: pytest.MonkeyPatch, count: int, on_loop: bool) -> None:
    """A read of megabytes may have a hundred thousand batches, of producers that wait for no others."""
    threads = list[bool]()

    def counted(batches: Sequence[memoryview]) -> StoredSize:
        threads.append(threading.current_thread() is threading.main_thread())
        return stored_size(batches)

    monkeypatch.setattr(topic_reader, "stored_size", counted)
    batches = [build_batch([Record(value=b"v")], base_offset=10 + number) for number in range(count)]
    fetched = FetchResult(name=TopicPartition("orders", 0), records=[b"".join(batches[:1]), b"".join(batches[1:])])
    decoder = BatchDecoder(DecoderSettings(), producers=ProducerSettings(), clock=SystemClock())
    result = await topic_reader.split_batches(cast(Broker, SimpleNamespace(decoder=decoder)), fetched)
    decoder.close()
    assert [bytes(each) for each in result.batches] == [bytes(each) for each in batches]
    assert result.end == 10 + count
    assert threads == [on_loop]
