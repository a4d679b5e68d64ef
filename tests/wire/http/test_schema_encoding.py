"""Records are written with schemas beside the event loop, and not for ever, whatever the schema is."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from streamhouse.config import SchemaSettings
from streamhouse.schemas import parse_schema
from streamhouse.wire.http.app import make_app
from streamhouse.wire.http.errors import TooManyRequests, Unprocessable
from streamhouse.wire.http.records.schema_encoding import MAX_STEPS, Deadline, SchemaEncoding
from tests.broker.conftest import MakeWorld

RECORDS = "/v1/topics/orders/records"
LOOKS_AROUND = {"type": "string", "pattern": "(?=.*b)c"}
COUNTS = {"type": "string", "pattern": "[01]*1[01]{5000}2"}
DOUBLES: dict[str, Any] = {
    "$defs": {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    | {"d40": {"type": "integer"}},
    "$ref": "#/$defs/d0",
}
"""Forty references, each of which is followed twice."""


@pytest.fixture
def encode_timeout_s() -> float:
    return 2.0


@pytest.fixture
async def http(make_world: MakeWorld, encode_timeout_s: float) -> AsyncIterator[httpx.AsyncClient]:
    world = await make_world(schemas=SchemaSettings(encode_timeout_s=encode_timeout_s))
    broker = await world.start()
    await broker.create_topic("orders", partitions=1, overrides={})
    app = make_app(broker, CollectorRegistry(), cluster_id="cluster-1")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://agent") as client:
        yield client


async def registered(http: httpx.AsyncClient, schema: dict[str, Any]) -> int:
    body = {"schema": json.dumps(schema), "schemaType": "JSON"}
    response = await http.post("/subjects/orders-value/versions", json=body)
    assert response.status_code == 200, response.text
    return int(response.json()["id"])


@pytest.mark.parametrize("encode_timeout_s", [0.8])
@pytest.mark.parametrize(
    ("schema", "value"),
    [(LOOKS_AROUND, "a" * 300_000), (COUNTS, "0110100110010110" * 20_000), (DOUBLES, "text")],
    ids=["pattern", "large pattern", "references"],
)
async def test_a_schema_that_takes_forever_holds_nobody_up_and_is_given_up(
    http: httpx.AsyncClient, schema: dict[str, Any], value: str
) -> None:
    named = {"value_schema_id": await registered(http, schema)}
    publishing = asyncio.ensure_future(http.post(RECORDS, json={"records": [{"value": value}], **named}))
    answered = 0
    while not publishing.done():
        assert (await http.get("/v1/topics")).status_code == 200
        answered += 1
        await asyncio.sleep(0.01)
    refused = await publishing
    assert (refused.status_code, "schemas.encode_timeout_s" in refused.json()["detail"]) == (422, True)
    assert answered >= 10
    lines = json.dumps({"value": value}).encode() + b"\n"
    upload = await http.post(RECORDS, params=named, content=lines, headers={"content-type": "application/x-ndjson"})
    assert (upload.status_code, "schemas.encode_timeout_s" in upload.text) == (422, True)
    assert (await http.get(RECORDS)).json()["records"] == []


SHORT = {"type": "string", "maxLength": 5}


@pytest.mark.parametrize(
    "schema", [LOOKS_AROUND | SHORT, {"$defs": {"t": SHORT}, "$ref": "#/$defs/t"}], ids=["pattern", "references"]
)
async def test_values_of_schemas_that_may_take_long_are_written_as_others_are(
    http: httpx.AsyncClient, schema: dict[str, Any]
) -> None:
    assert parse_schema("JSON", json.dumps(schema), {}).encoding_cost(1) == float("inf")
    named = {"value_schema_id": await registered(http, schema)}
    refused = await http.post(RECORDS, json={"records": [{"value": "cb"}, {"value": "cb, too long"}], **named})
    assert (refused.status_code, [field_error["path"] for field_error in refused.json()["errors"]]) == (
        422,
        ["$.records[1].value"],
    )
    assert (await http.post(RECORDS, json={"records": [{"value": "cb"}, {"value": None}], **named})).status_code == 200
    read = (await http.get(RECORDS, params={"format": "schema"})).json()["records"]
    assert [record["value"] for record in read] == ["cb", None]
    lines = b'{"value": "cb"}\n{"value": "cb, too long"}\n{"value": "cbb"}\n'
    upload = await http.post(RECORDS, params=named, content=lines, headers={"content-type": "application/x-ndjson"})
    assert (upload.json()["records"], [each["line"] for each in upload.json()["errors"]]) == (2, [2])


def test_only_schemas_that_may_take_long_are_taken_for_such() -> None:
    plain = parse_schema("JSON", json.dumps({"type": "object", "properties": {"a": {"pattern": "^[a-z]+$"}}}), {})
    assert plain.encoding_cost(1000) < MAX_STEPS < plain.encoding_cost(1 << 20)
    counted = parse_schema("JSON", json.dumps({"pattern": "[01]*1[01]{2000}2"}), {})
    assert counted.encoding_cost(1) == float("inf")


# --- turns


async def test_work_that_does_not_come_back_is_given_up_and_keeps_its_place() -> None:
    encoding = SchemaEncoding(SchemaSettings(encode_timeout_s=0.2, encoders=1, max_waiting_encodes=1))
    going_on = threading.Event()
    with pytest.raises(Unprocessable, match="encode_timeout_s"):
        await encoding.run(lambda _: going_on.wait(60))
    waiting = asyncio.ensure_future(encoding.run(lambda _: 1))
    await asyncio.sleep(0)
    with pytest.raises(TooManyRequests, match="max_waiting_encodes"):
        await encoding.run(lambda _: 2)
    with pytest.raises(TooManyRequests, match=r"schemas\.encoders"):
        await waiting
    going_on.set()
    for _ in range(1000):
        if not encoding._slots.locked():
            break
        await asyncio.sleep(0.01)
    assert await encoding.run(lambda _: 3) == 3


async def test_work_that_looks_at_the_time_ends_when_it_is_over() -> None:
    encoding = SchemaEncoding(SchemaSettings(encode_timeout_s=0.1, encoders=1))

    def work(deadline: Deadline) -> None:
        while True:
            deadline.check()

    for _ in range(2):
        with pytest.raises(Unprocessable, match="encode_timeout_s"):
            await encoding.run(work)


async def test_what_the_work_raises_is_raised() -> None:
    encoding = SchemaEncoding(SchemaSettings())

    def work(_: Deadline) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await encoding.run(work)
    assert await encoding.run(lambda _: 7) == 7
