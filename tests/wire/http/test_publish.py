"""Publishing over HTTP: forms of keys and values, receipts, uploads, and what is refused with its place."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.forwarding.publish import MAX_BATCHES
from streamhouse.errors import RecordTooLarge, StreamhouseError, Unavailable
from streamhouse.format.partitioner import partition_for
from streamhouse.format.records import Record
from streamhouse.model.names import TopicPartition
from streamhouse.model.record import Receipt
from streamhouse.wire.http.records.upload import LINES_AT_ONCE
from tests.broker.support import batch, fetch, records_of

RECORDS = "/v1/topics/orders/records"
NDJSON = {"content-type": "application/x-ndjson"}


async def stored(broker: Broker, partition: int = 0) -> list[Record]:
    return records_of((await fetch(broker, 0, TopicPartition("orders", partition))).records)


async def publish(http: httpx.AsyncClient, *records: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    response = await http.post(RECORDS, json={"records": list(records), **more})
    assert response.status_code == 200, response.text
    results: list[dict[str, Any]] = response.json()["records"]
    return results


async def test_records_get_their_offsets_in_order(http: httpx.AsyncClient) -> None:
    result = await publish(http, *({"value": number, "partition": number % 2} for number in range(4)))
    assert [(each["partition"], each["offset"]) for each in result] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert all(each["timestamp_ms"] > 0 for each in result)


async def test_keys_find_the_partitions_that_javas_client_finds(http: httpx.AsyncClient) -> None:
    keys = [f"customer-{number}" for number in range(20)]
    result = await publish(http, *({"key": key, "value": 1} for key in keys))
    assert [each["partition"] for each in result] == [partition_for(key.encode(), 3) for key in keys]


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        ({"value": {"b": 1.50, "a": [1, None]}}, None, b'{"b":1.5,"a":[1,null]}'),
        ({"value": "text"}, None, b'"text"'),
        ({"value": None}, None, None),
        ({"value": 12345678901234567890123}, None, b"12345678901234567890123"),
        ({"value": "text", "value_format": "text"}, None, b"text"),
        ({"value": {"a": 1}, "value_format": "text"}, None, b'{"a":1}'),
        ({"value": "aGVsbG8A/w==", "value_format": "base64"}, None, b"hello\x00\xff"),
        ({"value": "Zürich €", "value_format": "text"}, None, "Zürich €".encode()),
        ({"value": 1, "key": "k"}, b"k", b"1"),
        ({"value": 1, "key": 7}, b"7", b"1"),
        ({"value": 1, "key": "k", "key_format": "json"}, b'"k"', b"1"),
        ({"value": 1, "key": "AAE=", "key_format": "base64"}, b"\x00\x01", b"1"),
        ({"value": 1, "key": None}, None, b"1"),
        ({"value": ""}, None, b'""'),
        ({"value": "", "value_format": "text"}, None, b""),
    ],
)
async def test_keys_and_values_are_stored_as_their_formats_say(
    broker: Broker, http: httpx.AsyncClient, record: dict[str, Any], key: bytes | None, value: bytes | None
) -> None:
    await publish(http, {**record, "partition": 0})
    (result,) = await stored(broker)
    assert (result.key, result.value) == (key, value)


async def test_json_is_stored_compact_and_otherwise_as_it_was_written(broker: Broker, http: httpx.AsyncClient) -> None:
    body = b'{"records": [{"partition": 0, "value": { "price" : 1.50 ,\n "a b": 1e3 } }]}'
    response = await http.post(RECORDS, content=body, headers={"content-type": "application/json"})
    assert response.status_code == 200
    assert [record.value for record in await stored(broker)] == [b'{"price":1.50,"a b":1e3}']


async def test_a_body_says_what_holds_for_all_its_records(broker: Broker, http: httpx.AsyncClient) -> None:
    records = [{"value": "YQ=="}, {"value": "b", "value_format": "text"}]
    await publish(http, *({"partition": 0, **each} for each in records), format="base64")
    assert [record.value for record in await stored(broker)] == [b"a", b"b"]


async def test_the_query_says_what_holds_where_the_body_does_not(broker: Broker, http: httpx.AsyncClient) -> None:
    body = {"records": [{"value": "a"}, {"value": "b", "key": "own", "partition": 1, "timestamp_ms": 5}]}
    query: dict[str, str | int] = {"key": "k", "partition": 0, "timestamp_ms": 4, "value_format": "text"}
    assert (await http.post(RECORDS, params=query, json=body)).status_code == 200
    (first,), (second,) = await stored(broker), await stored(broker, 1)
    assert (first.key, first.value, first.timestamp_ms) == (b"k", b"a", 4)
    assert (second.key, second.value, second.timestamp_ms) == (b"own", b"b", 5)


async def test_headers_are_text_or_bytes_or_nothing_and_keep_their_order(
    broker: Broker, http: httpx.AsyncClient
) -> None:
    headers = [{"name": "a", "value": "é"}, {"name": "a", "base64": "/w=="}, {"name": "b"}]
    await publish(http, {"value": 1, "partition": 0, "headers": headers})
    (result,) = await stored(broker)
    assert list(result.headers) == [("a", "é".encode()), ("a", b"\xff"), ("b", None)]


@pytest.mark.parametrize("media_type", ["text/plain", "application/octet-stream", "text/plain; charset=utf-8"])
async def test_text_and_bytes_are_one_value(broker: Broker, http: httpx.AsyncClient, media_type: str) -> None:
    response = await http.post(
        RECORDS, params={"key": "k", "partition": 0}, content=b"a\n\xff", headers={"content-type": media_type}
    )
    assert response.json()["records"][0]["offset"] == 0
    (result,) = await stored(broker)
    assert (result.key, result.value) == (b"k", b"a\n\xff")


@pytest.mark.parametrize(
    ("body", "status", "field_errors"),
    [
        (b"{", 400, ["$"]),
        (b'{"records": []}', 400, ["$.records"]),
        (b"[]", 400, ["$"]),
        (b'{"records": [{"value": 1}, {"key": "a"}]}', 400, ["$.records[1].value"]),
        (b'{"records": [{"value": 1, "vlaue": 1}]}', 400, ["$.records[0].vlaue"]),
        (b'{"records": [{"value": 1, "partition": "0"}]}', 400, ["$.records[0].partition"]),
        (b'{"records": [{"value": 1, "partition": -1}]}', 400, ["$.records[0].partition"]),
        (b'{"records": [{"value": 1, "headers": {"a": "b"}}]}', 400, ["$.records[0].headers"]),
        (b'{"records": [{"value": 1}], "acks": "all"}', 400, ["$.acks"]),
        (b'{"records": [{"value": "\xff"}]}', 400, ["$"]),
        (b'{"records": [{"value": ' + b"[" * 5000 + b"]" * 5000 + b"}]}", 400, ["$"]),
        (
            b'{"records": [{"value": "*"}, {"value": "YQ=="}, {"value": 7, "key": "%", "key_format": "base64"}],'
            b' "value_format": "base64"}',
            422,
            ["$.records[0].value", "$.records[2].key", "$.records[2].value"],
        ),
        (
            b'{"records": [{"value": 1, "headers": [{"name": "a", "value": "b", "base64": "YQ=="}]}]}',
            422,
            ["$.records[0].headers"],
        ),
        (b'{"records": [{"value": 1}], "value_schema_id": 99}', 422, ["$.value_schema_id"]),
        (b'{"records": [{"value": 1}], "key_subject": "nobody"}', 422, ["$.key_subject"]),
        (b'{"records": [{"value": 1}], "value_schema_id": 1, "format": "json"}', 422, ["$"]),
    ],
)
async def test_a_body_that_can_not_be_read_publishes_nothing_and_says_where(
    broker: Broker, http: httpx.AsyncClient, body: bytes, status: int, field_errors: list[str]
) -> None:
    response = await http.post(RECORDS, content=body, headers={"content-type": "application/json"})
    assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json"), (
        response.text
    )
    assert [field_error["path"] for field_error in response.json()["errors"]] == field_errors
    assert all(field_error["reason"] for field_error in response.json()["errors"])
    assert [await stored(broker, number) for number in range(3)] == [[], [], []]


async def test_whole_numbers_may_be_written_with_a_fraction_of_nothing(broker: Broker, http: httpx.AsyncClient) -> None:
    body = b'{"records": [{"value": 1.0, "partition": 0.0, "timestamp_ms": 5.00, "headers": []}], "format": null}'
    response = await http.post(RECORDS, content=body, headers={"content-type": "application/json"})
    assert response.status_code == 200
    (result,) = await stored(broker)
    assert (result.value, result.timestamp_ms) == (b"1.0", 5)  # a value stays as it was written
    for wrong in (b"0.5", b"-1.0", b'"0"', b"1e1000"):
        refused = await http.post(
            RECORDS, content=body.replace(b"0.0", wrong), headers={"content-type": "application/json"}
        )
        assert (refused.status_code, refused.json()["errors"][0]["path"]) == (400, "$.records[0].partition")


async def test_a_topic_that_is_not_there_is_not_found(world: Any, http: httpx.AsyncClient, broker: Broker) -> None:
    response = await http.post("/v1/topics/a b/records", json={"records": [{"value": 1}]})
    assert response.status_code in (404, 422)


async def test_a_partition_that_is_not_there_is_reported_for_its_record(http: httpx.AsyncClient) -> None:
    good, bad = await publish(http, {"value": 1, "partition": 0}, {"value": 2, "partition": 9})
    assert (good["offset"], bad["error"]["title"], bad["error"]["status"]) == (0, "UnknownTopic", 404)
    response = await http.post(RECORDS, json={"records": [{"value": 2, "partition": 9}, {"value": 2, "partition": 8}]})
    assert (response.status_code, response.json()["title"]) == (404, "UnknownTopic")
    assert [field_error["path"] for field_error in response.json()["errors"]] == ["$.records[0]", "$.records[1]"]


async def test_an_idempotency_key_stores_once_and_is_refused_for_something_else(
    broker: Broker, http: httpx.AsyncClient
) -> None:
    headers = {"idempotency-key": "order-7"}
    body = {"records": [{"value": 1, "partition": 0}]}
    first, again = [await http.post(RECORDS, json=body, headers=headers) for _ in range(2)]
    assert (first.status_code, first.json()["records"]) == (200, again.json()["records"])
    assert len(await stored(broker)) == 1
    other = await http.post(RECORDS, json={"records": [{"value": 2, "partition": 0}]}, headers=headers)
    assert (other.status_code, other.json()["title"]) == (409, "IdempotencyKeyReused")


@pytest.mark.parametrize("key", ["", "x" * 256, "with space", "ü"])
async def test_an_idempotency_key_is_short_and_plain(http: httpx.AsyncClient, key: str) -> None:
    response = await http.post(RECORDS, json={"records": [{"value": 1}]}, headers={b"idempotency-key": key.encode()})
    assert (response.status_code, response.json()["errors"][0]["path"]) == (400, "$.Idempotency-Key")


class Answering:
    """Stands in for the broker's answers."""

    def __init__(self, *responses: Receipt | StreamhouseError) -> None:
        self.responses = list(responses)
        self.calls = 0

    async def publish(self, _: str, records: Any, **__: Any) -> list[Receipt | StreamhouseError]:
        self.calls += 1
        return [self.responses.pop(0) for _ in records]


async def test_errors_are_reported_per_record_unless_all_failed(
    broker: Broker, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = RecordTooLarge("orders-0", size_bytes=9, limit_bytes=8)
    monkeypatch.setattr(broker, "records", Answering(Receipt(0, 5, 1), large, Unavailable("later"), large))
    body = {"records": [{"value": 1}, {"value": 2}]}
    good, bad = (await http.post(RECORDS, json=body)).json()["records"]
    assert (good, bad["error"]["status"]) == ({"partition": 0, "offset": 5, "timestamp_ms": 1}, 413)
    response = await http.post(RECORDS, json=body)
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")


# --- uploads


def lines(*records: object) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in records)


async def test_an_upload_is_published_line_by_line_and_summed_up(broker: Broker, http: httpx.AsyncClient) -> None:
    body = lines({"value": 1, "partition": 0}, {"value": 2, "partition": 2}, {"value": 3, "partition": 0})
    response = (await http.post(RECORDS, content=body, headers=NDJSON)).json()
    assert (response["records"], response["failed"], response["errors"], response["complete"]) == (3, 0, [], True)
    assert response["partitions"] == [
        {"partition": 0, "records": 2, "last_offset": 1},
        {"partition": 2, "records": 1, "last_offset": 0},
    ]
    assert [record.value for record in await stored(broker)] == [b"1", b"3"]


async def test_lines_may_be_cut_anywhere_on_their_way(broker: Broker, http: httpx.AsyncClient) -> None:
    body = lines(*({"value": number, "partition": 0} for number in range(50)))

    async def pieces() -> Any:
        for at in range(0, len(body), 7):
            yield body[at : at + 7]

    response = (await http.post(RECORDS, content=pieces(), headers=NDJSON)).json()
    assert (response["records"], response["failed"]) == (50, 0)
    assert [record.value for record in await stored(broker)] == [str(number).encode() for number in range(50)]


async def test_bad_lines_are_named_and_the_others_published(http: httpx.AsyncClient) -> None:
    body = b'{"value": 1}\n\n{"valeu": 1}\n{"value": "*", "value_format": "base64"}\nnonsense\n{"value": 2}'
    answer = await http.post(RECORDS, content=body, headers=NDJSON)
    response = answer.json()
    assert (answer.status_code, response["records"], response["failed"]) == (200, 2, 3)
    assert [each["line"] for each in response["errors"]] == [3, 4, 5]


async def test_an_upload_that_ends_inside_a_line_says_so(broker: Broker, http: httpx.AsyncClient) -> None:
    answer = await http.post(RECORDS, content=b'{"value": 1, "partition": 0}\n{"value": 2, "part', headers=NDJSON)
    response = answer.json()
    assert (response["records"], [each["line"] for each in response["errors"]]) == (1, [2])
    assert len(await stored(broker)) == 1


async def test_an_upload_without_a_good_line_is_refused(http: httpx.AsyncClient) -> None:
    response = await http.post(RECORDS, content=b"nonsense\n", headers=NDJSON)
    assert (response.status_code, response.headers["content-type"]) == (400, "application/problem+json")
    assert response.json()["errors"][0]["reason"].startswith("line 1: ")
    empty = await http.post(RECORDS, content=b"", headers=NDJSON)
    assert (empty.status_code, empty.json()["records"]) == (200, 0)


async def test_an_upload_stops_where_nobody_can_store_it(
    broker: Broker, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering = Answering(Receipt(0, 0, 1), Unavailable("later"))
    monkeypatch.setattr(broker, "records", answering)
    response = (await http.post(RECORDS, content=lines({"value": 1}, {"value": 2}), headers=NDJSON)).json()
    assert (response["records"], response["failed"], response["complete"]) == (1, 1, False)


async def test_an_upload_with_a_key_is_stored_once(broker: Broker, http: httpx.AsyncClient) -> None:
    body = lines(*({"value": number, "partition": 0} for number in range(20)))
    headers = {**NDJSON, "idempotency-key": "load-1"}
    first, again = [(await http.post(RECORDS, content=body, headers=headers)).json() for _ in range(2)]
    assert (first["records"], first["partitions"]) == (20, again["partitions"])
    assert len(await stored(broker)) == 20


# --- batches


async def test_whole_batches_go_through_as_they_are(broker: Broker, http: httpx.AsyncClient) -> None:
    path = "/v1/topics/orders/partitions/1/batches"
    body = bytes(batch(b"a", b"b")) + bytes(batch(b"c"))
    response = await http.post(path, content=body, headers={"content-type": "application/vnd.streamhouse.batches"})
    assert [each["offset"] for each in response.json()["batches"]] == [0, 2]
    assert [record.value for record in await stored(broker, 1)] == [b"a", b"b", b"c"]
    back = await http.get(path, params={"offset": 2})
    assert (back.headers["content-type"], back.headers["streamhouse-next-offset"]) == (
        "application/vnd.streamhouse.batches",
        "3",
    )
    assert [record.value for record in records_of([back.content])] == [b"c"]


@pytest.mark.parametrize("body", [b"", b"nonsense", bytes(batch(b"a"))[:-1], bytes(batch(b"a")) + b"x"])
async def test_what_is_no_batch_is_refused(http: httpx.AsyncClient, body: bytes) -> None:
    response = await http.post(
        "/v1/topics/orders/partitions/0/batches",
        content=body,
        headers={"content-type": "application/vnd.streamhouse.batches"},
    )
    assert (response.status_code, response.headers["content-type"]) == (422, "application/problem+json")


async def test_a_damaged_batch_is_refused(broker: Broker, http: httpx.AsyncClient) -> None:
    damaged = bytearray(batch(b"abc"))
    damaged[-2] ^= 1
    response = await http.post(
        "/v1/topics/orders/partitions/0/batches",
        content=bytes(damaged),
        headers={"content-type": "application/vnd.streamhouse.batches"},
    )
    assert (response.status_code, response.json()["title"]) == (422, "CorruptBatch")
    assert await stored(broker) == []


async def test_others_have_their_turn_while_an_upload_has_very_many_lines(http: httpx.AsyncClient) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.ensure_future(others())
    response = await http.post(RECORDS, content=b"{}\n" * 20_000, headers=NDJSON)
    running.cancel()
    assert response.json()["title"] == "Malformed"
    assert turns > 20_000 / LINES_AT_ONCE


async def test_a_request_has_so_many_batches_and_no_more(http: httpx.AsyncClient) -> None:
    body = bytes(batch(b"x")) * (MAX_BATCHES + 1)
    response = await http.post(
        "/v1/topics/orders/partitions/0/batches",
        content=body,
        headers={"content-type": "application/vnd.streamhouse.batches"},
    )
    assert response.status_code == 422
    assert "too many batches" in response.json()["detail"]
