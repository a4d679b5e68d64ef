"""Streams on real sockets: they follow the log, end with the agent, are counted and limited; slow readers are cut."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx
import pytest
from starlette.responses import Response
from starlette.types import Message

from streamhouse.config import HttpSettings
from streamhouse.errors import CorruptBatch, Overloaded
from streamhouse.format.compression import Codec
from streamhouse.format.records import encode_batch, iterate_batch
from streamhouse.model.record import NewRecord, StoredRecord
from streamhouse.wire.http.operations import BATCHES
from streamhouse.wire.http.records import topic_reader
from streamhouse.wire.http.records.streams import MAX_WAITING, WRITTEN, JsonMemory, PageResponse

from .conftest import Site, StartSite

RECORDS = "/v1/topics/orders/records"
EVENTS = {"accept": "text/event-stream"}
LINES = {"accept": "application/x-ndjson"}
STREAMS = "streamhouse_http_streams"
SLOW = 'streamhouse_http_cut_total{why="slow reader"}'


async def with_topic(site: Site, partitions: int = 2) -> Site:
    made = await site.http.post("/v1/topics", json={"name": "orders", "partitions": partitions})
    assert made.status_code == 201
    return site


async def publish(site: Site, *values: Any) -> None:
    response = await site.http.post(RECORDS, json={"records": [{"value": value} for value in values]})
    assert response.status_code == 200


async def data_of(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in response.aiter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


async def until(site: Site, metric: str, value: float) -> None:
    async def is_so() -> bool:
        return await site.metric(metric) == value

    await site.until(is_so)


async def test_a_stream_goes_on_with_what_is_published_later(start_site: StartSite) -> None:
    site = await with_topic(await start_site())
    await publish(site, "before")
    async with site.http.stream("GET", RECORDS, headers=EVENTS) as response:
        events = data_of(response)
        assert (await anext(events))["value"] == "before"
        assert await site.metric(STREAMS) == 1
        await publish(site, "after")
        assert (await anext(events))["value"] == "after"
    await until(site, STREAMS, 0)


async def test_a_stream_reads_by_a_schema_that_was_not_there_when_it_began(start_site: StartSite) -> None:
    site = await with_topic(await start_site(), partitions=1)
    raw = {"content-type": "application/octet-stream"}
    framed = b"\0\0\0\0\1\x02"  # the number 1, by the schema with the id 1
    async with site.http.stream("GET", RECORDS, params={"format": "schema"}, headers=EVENTS) as response:
        events = data_of(response)
        await site.http.post(RECORDS, content=framed, headers=raw)
        assert "value_schema_id" not in await anext(events)
        made = await site.http.post("/subjects/orders-value/versions", json={"schema": '"long"'})
        assert made.json()["id"] == 1
        await site.http.post(RECORDS, content=framed, headers=raw)
        result = await anext(events)
        assert (result["value"], result["value_schema_id"]) == (1, 1)


async def test_a_stream_says_that_it_is_alive(start_site: StartSite) -> None:
    site = await with_topic(await start_site(keep_alive_s=0.05))
    async with site.http.stream("GET", RECORDS, headers=EVENTS) as response:
        lines = response.aiter_lines()
        assert [await anext(lines) for _ in range(3)] == ["retry: 2000", "", ": alive"]


async def test_a_stream_reads_partitions_that_are_added(start_site: StartSite) -> None:
    site = await with_topic(await start_site(keep_alive_s=0.05), partitions=1)
    async with site.http.stream("GET", RECORDS, headers=LINES) as response:
        lines = response.aiter_lines()
        await publish(site, 1)
        assert json.loads(await anext(lines))["value"] == 1
        assert (await site.http.patch("/v1/topics/orders", json={"partitions": 2})).status_code == 200
        body = {"records": [{"value": 2, "partition": 1}]}
        assert (await site.http.post(RECORDS, json=body)).status_code == 200
        assert json.loads(await anext(lines))["partition"] == 1


async def test_streams_end_when_the_agent_stops(start_site: StartSite) -> None:
    site = await with_topic(await start_site())
    async with site.http.stream("GET", RECORDS, headers=EVENTS) as response:
        lines = response.aiter_lines()
        assert await anext(lines) == "retry: 2000"
        site.agent.stop()
        async with asyncio.timeout(10):
            assert [line async for line in lines] == [""]  # whole, as chunks end


async def test_a_stream_of_a_topic_that_is_deleted_ends_with_the_reason(start_site: StartSite) -> None:
    site = await with_topic(await start_site(keep_alive_s=0.05))
    async with site.http.stream("GET", RECORDS, headers=LINES) as response:
        lines = response.aiter_lines()
        await publish(site, 1)
        await anext(lines)
        assert (await site.http.delete("/v1/topics/orders")).status_code == 204
        async with asyncio.timeout(10):
            (last,) = [json.loads(line) async for line in lines]
        assert last["error"]["title"] == "UnknownTopic"


async def test_there_are_so_many_streams_and_no_more(start_site: StartSite) -> None:
    site = await with_topic(await start_site(max_streams=1))
    async with site.http.stream("GET", RECORDS, headers=EVENTS) as response:
        await anext(response.aiter_lines())
        refused = await site.http.get(RECORDS, headers=LINES)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["title"] == "TooManyRequests"
        assert (await site.http.get(RECORDS)).status_code == 200  # a page is no stream
    await until(site, STREAMS, 0)
    async with site.http.stream("GET", RECORDS, headers=EVENTS) as response:
        assert response.status_code == 200


async def test_a_reader_that_takes_nothing_is_cut_off(start_site: StartSite) -> None:
    site = await with_topic(await start_site(slow_reader_timeout_s=0.2, write_buffer_bytes=1024))
    for _ in range(8):
        await publish(site, *("x" * 1000 for _ in range(1000)))
    with socket.create_connection(("127.0.0.1", site.port)) as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.sendall(f"GET {RECORDS} HTTP/1.1\r\nHost: localhost\r\nAccept: application/x-ndjson\r\n\r\n".encode())
        await until(site, SLOW, 1)
        await until(site, STREAMS, 0)


async def test_a_head_of_a_stream_has_no_body(start_site: StartSite) -> None:
    site = await with_topic(await start_site())
    response = await site.http.head(RECORDS, headers=EVENTS)
    assert (response.status_code, response.headers["content-type"], response.content) == (
        200,
        "text/event-stream; charset=utf-8",
        b"",
    )


async def test_a_record_too_large_for_json_is_an_error_and_whatever_is_around_it_is_read(start_site: StartSite) -> None:
    site = await with_topic(await start_site(max_record_bytes=1000, keep_alive_s=0.05), partitions=2)
    for partition, value in ((0, "a"), (0, "b" * 2000), (0, "c"), (1, "d")):
        body = {"records": [{"value": value, "partition": partition}]}
        assert (await site.http.post(RECORDS, json=body)).status_code == 200
    of_partition = "/v1/topics/orders/partitions/0"
    before = (await site.http.get(f"{of_partition}/records")).json()
    assert ([each["value"] for each in before["records"]], before["next_offset"]) == (["a"], 1)
    refused = await site.http.get(f"{of_partition}/records", params={"offset": 1})
    assert (refused.status_code, "setting=http.max_record_bytes" in refused.json()["detail"]) == (422, True)
    assert len((await site.http.get(f"{of_partition}/batches", params={"offset": 1})).content) > 2000
    after = (await site.http.get(f"{of_partition}/records", params={"offset": 2})).json()
    assert [each["value"] for each in after["records"]] == ["c"]
    page = (await site.http.get(RECORDS)).json()
    assert sorted(each["value"] for each in page["records"]) == ["a", "d"]
    assert (await site.http.get(RECORDS, params={"cursor": page["cursor"]})).status_code == 422
    async with site.http.stream("GET", RECORDS, headers=LINES) as response, asyncio.timeout(10):
        lines = [json.loads(line) async for line in response.aiter_lines()]
    assert sorted(line["value"] for line in lines[:-1]) == ["a", "d"]
    assert "setting=http.max_record_bytes" in lines[-1]["error"]["detail"]


async def test_a_batch_beyond_the_limits_of_this_agent_is_an_error_and_whatever_is_around_it_is_read(
    start_site: StartSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = await with_topic(await start_site(keep_alive_s=0.05), partitions=2)
    for partition, value in ((0, "a"), (0, "b" * 300_000), (0, "c"), (1, "d")):
        batch = encode_batch([NewRecord(value.encode(), None, (), None, None)], codec=Codec.ZSTD, now_ms=0)
        path = f"/v1/topics/orders/partitions/{partition}/batches"
        response = await site.http.post(path, content=bytes(batch), headers={"content-type": BATCHES})
        assert response.status_code == 200
    assert len((await site.http.get(RECORDS)).json()["records"]) == 4
    monkeypatch.setattr(site.agent.broker.decoder, "limit_bytes", 100_000)
    page = (await site.http.get(RECORDS)).json()
    assert sorted(each["value"] for each in page["records"]) == ["a", "d"]
    refused = await site.http.get(RECORDS, params={"cursor": page["cursor"]})
    assert refused.status_code == 422
    assert refused.json()["detail"].endswith("partition=orders-0 do=read from offset=2 to continue behind it")
    rest = (await site.http.get("/v1/topics/orders/partitions/0/records", params={"offset": 2})).json()
    assert [each["value"] for each in rest["records"]] == ["c"]
    found = (await site.http.post("/v1/topics/orders/search", json={"text": "d"})).json()
    assert [each["value"] for each in found["records"]] == ["d"]


async def test_a_batch_that_can_not_be_decoded_is_an_error_and_whatever_is_around_it_is_read(
    start_site: StartSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    def iterate(batch: memoryview, **limits: int) -> Iterator[StoredRecord]:
        if b"damaged" in bytes(batch):
            raise CorruptBatch("compressed records are damaged")
        yield from iterate_batch(batch, **limits)

    monkeypatch.setattr(topic_reader, "iterate_batch", iterate)
    site = await with_topic(await start_site(keep_alive_s=0.05), partitions=2)
    for partition, value in ((0, "a"), (0, "damaged"), (0, "c"), (1, "d")):
        body = {"records": [{"value": value, "partition": partition}]}
        assert (await site.http.post(RECORDS, json=body)).status_code == 200
    async with site.http.stream("GET", RECORDS, headers=LINES) as response, asyncio.timeout(10):
        lines = [json.loads(line) async for line in response.aiter_lines()]
    assert sorted(line["value"] for line in lines[:-1]) == ["a", "d"]
    problem = lines[-1]["error"]
    assert problem["title"] == "CorruptBatch"
    assert problem["detail"].endswith("partition=orders-0 do=read from offset=2 to continue behind it")
    one = "/v1/topics/orders/partitions/0/records"
    assert [each["value"] for each in (await site.http.get(one)).json()["records"]] == ["a"]
    assert (await site.http.get(one, params={"offset": 1})).json()["detail"] == problem["detail"]
    assert [each["value"] for each in (await site.http.get(one, params={"offset": 2})).json()["records"]] == ["c"]


async def test_records_are_written_as_json_when_there_is_memory_until_their_client_has_them() -> None:
    size_bytes = 1_000_000
    memory = JsonMemory(HttpSettings(max_json_bytes=2 * WRITTEN * size_bytes))
    made: list[int] = []
    is_read = asyncio.Event()

    async def read(number: int) -> None:
        async def make() -> Response:
            made.append(number)
            return Response(bytes(size_bytes))

        async def receive() -> Message:
            raise AssertionError("nothing to receive")

        async def send(message: Message) -> None:
            if message.get("body"):
                await is_read.wait()

        await PageResponse(size_bytes, make, memory=memory)({"type": "http"}, receive, send)

    async with asyncio.TaskGroup() as readers:
        for number in range(2 + MAX_WAITING):
            readers.create_task(read(number))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert made == [0, 1]
        with pytest.raises(Overloaded):
            await read(-1)
        is_read.set()
    assert sorted(made) == list(range(2 + MAX_WAITING))


async def test_a_stream_waits_for_the_memory_of_a_large_record(
    start_site: StartSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    inside = JsonMemory.of

    def of(self: JsonMemory, size_bytes: int) -> AbstractAsyncContextManager[None]:
        held.append(size_bytes)
        return inside(self, size_bytes)

    monkeypatch.setattr(JsonMemory, "of", of)
    site = await with_topic(await start_site(max_json_bytes=1))  # so one at a time
    await publish(site, "x" * 100_000)
    async with site.http.stream("GET", RECORDS, params={"limit": 1}, headers=LINES) as response, asyncio.timeout(10):
        assert [len(json.loads(line)["value"]) async for line in response.aiter_lines()] == [100_000]
    assert [size for size in held if size] == [100_002]
