"""Records written and read with schemas of the registry, over HTTP."""

import json
from typing import Any

import httpx
import pytest

from streamhouse.broker.broker import Broker
from streamhouse.model.names import TopicPartition
from tests.broker.support import fetch, records_of

RECORDS = "/v1/topics/orders/records"
PAGE = "/v1/topics/orders/partitions/0/records"
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
    }
)


@pytest.fixture
async def schema_id(http: httpx.AsyncClient) -> int:
    answer = await http.post("/subjects/orders-value/versions", json={"schema": AVRO})
    assert answer.status_code == 200, answer.text
    found: int = answer.json()["id"]
    return found


async def publish(http: httpx.AsyncClient, *values: Any, **said: Any) -> httpx.Response:
    return await http.post(RECORDS, json={"records": [{"value": each, "partition": 0} for each in values], **said})


async def test_values_are_written_with_a_schema_and_read_back(
    broker: Broker, http: httpx.AsyncClient, schema_id: int
) -> None:
    orders = [{"id": 7, "note": "new"}, {"id": 8, "note": None}]
    for named in ({"value_schema_id": schema_id}, {"value_subject": "orders-value"}):
        assert (await publish(http, *orders, None, **named)).status_code == 200
    stored = records_of((await fetch(broker, 0, TopicPartition("orders", 0))).records)
    assert stored[0].value is not None
    assert stored[0].value[:5] == b"\0" + schema_id.to_bytes(4)
    assert [record.value for record in stored[:3]] == [record.value for record in stored[3:]]
    read = (await http.get(PAGE, params={"format": "schema"})).json()["records"]
    assert [record["value"] for record in read[:3]] == [*orders, None]
    assert [record.get("value_schema_id") for record in read[:3]] == [schema_id, schema_id, None]


async def test_a_value_that_does_not_fit_its_schema_is_named(http: httpx.AsyncClient, schema_id: int) -> None:
    answer = await publish(http, {"id": 1}, {"id": "seven"}, value_schema_id=schema_id)
    assert answer.status_code == 422
    (flaw,) = answer.json()["errors"]
    assert (flaw["path"], "id" in flaw["reason"]) == ("$.records[1].value", True)
    assert (await http.get(PAGE)).json()["records"] == []


async def test_a_key_has_a_schema_of_its_own(http: httpx.AsyncClient, schema_id: int) -> None:
    made = await http.post("/subjects/orders-key/versions", json={"schema": '{"type": "string"}'})
    body = {"records": [{"key": "k", "value": 1, "partition": 0}], "key_schema_id": made.json()["id"]}
    assert (await http.post(RECORDS, json=body)).status_code == 200
    (record,) = (await http.get(PAGE, params={"key_format": "schema"})).json()["records"]
    assert (record["key"], record["key_schema_id"], record["value"]) == ("k", made.json()["id"], 1)


async def test_what_no_schema_can_read_is_told_as_it_is(http: httpx.AsyncClient, schema_id: int) -> None:
    broken = b"\0" + schema_id.to_bytes(4) + b"\xff"
    answer = await http.post(
        RECORDS, params={"partition": 0}, content=broken, headers={"content-type": "application/octet-stream"}
    )
    assert answer.status_code == 200
    (record,) = (await http.get(PAGE, params={"format": "schema"})).json()["records"]
    assert (record["value_format"], "value_schema_id" in record) == ("base64", False)
