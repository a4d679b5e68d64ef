"""Records written and read with schemas of the registry, over HTTP."""

import json
from typing import Any

import httpx
import pytest

from streamhouse.broker.broker import Broker
from streamhouse.errors import Unavailable
from streamhouse.model.names import TopicPartition
from streamhouse.schemas.base import ParsedSchema
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
    response = await http.post("/subjects/orders-value/versions", json={"schema": AVRO})
    assert response.status_code == 200, response.text
    result: int = response.json()["id"]
    return result


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
    response = await publish(http, {"id": 1}, {"id": "seven"}, value_schema_id=schema_id)
    assert response.status_code == 422
    (field_error,) = response.json()["errors"]
    assert (field_error["path"], "id" in field_error["reason"]) == ("$.records[1].value", True)
    assert (await http.get(PAGE)).json()["records"] == []


async def test_a_key_has_a_schema_of_its_own(http: httpx.AsyncClient, schema_id: int) -> None:
    made = await http.post("/subjects/orders-key/versions", json={"schema": '{"type": "string"}'})
    body = {"records": [{"key": "k", "value": 1, "partition": 0}], "key_schema_id": made.json()["id"]}
    assert (await http.post(RECORDS, json=body)).status_code == 200
    (record,) = (await http.get(PAGE, params={"key_format": "schema"})).json()["records"]
    assert (record["key"], record["key_schema_id"], record["value"]) == ("k", made.json()["id"], 1)


async def test_what_no_schema_can_read_is_reported_as_it_is(http: httpx.AsyncClient, schema_id: int) -> None:
    broken = b"\0" + schema_id.to_bytes(4) + b"\xff"
    response = await http.post(
        RECORDS, params={"partition": 0}, content=broken, headers={"content-type": "application/octet-stream"}
    )
    assert response.status_code == 200
    (record,) = (await http.get(PAGE, params={"format": "schema"})).json()["records"]
    assert (record["value_format"], "value_schema_id" in record) == ("base64", False)


async def test_while_a_schema_can_not_be_looked_up_the_page_can_not_be_read(
    broker: Broker, http: httpx.AsyncClient, schema_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await publish(http, {"id": 1}, value_schema_id=schema_id)).status_code == 200

    async def away(schema_id: int, *, context: str = "") -> ParsedSchema:
        raise Unavailable("the store is away")

    monkeypatch.setattr(broker.schemas, "schema", away)
    assert (await http.get(PAGE, params={"format": "schema"})).status_code == 503


async def test_an_upload_is_written_with_the_schema_that_its_query_names(
    http: httpx.AsyncClient, schema_id: int
) -> None:
    body = b'{"value": {"id": 1}, "partition": 0}\n{"value": {"id": "x"}}\n{"value": {"id": 2}, "partition": 0}\n'
    for named in ({"value_schema_id": schema_id}, {"value_subject": "orders-value"}):
        answer = await http.post(RECORDS, content=body, params=named, headers={"content-type": "application/x-ndjson"})
        response = answer.json()
        assert (answer.status_code, response["records"], [each["line"] for each in response["errors"]]) == (200, 2, [2])
    read = (await http.get(PAGE, params={"format": "schema"})).json()["records"]
    assert [record["value"]["id"] for record in read] == [1, 2, 1, 2]
    assert {record["value_schema_id"] for record in read} == {schema_id}


async def test_the_nearest_word_about_a_value_holds(http: httpx.AsyncClient, schema_id: int) -> None:
    query = {"value_schema_id": schema_id}
    records = [{"value": "eA==", "partition": 0}]
    assert (await http.post(RECORDS, json={"records": records, "format": "base64"}, params=query)).status_code == 200
    records = [{"value": "eA==", "value_format": "base64", "partition": 0}, {"value": {"id": 1}, "partition": 0}]
    assert (await http.post(RECORDS, json={"records": records}, params=query)).status_code == 200
    read = (await http.get(PAGE, params={"format": "schema"})).json()["records"]
    assert [record["value"] for record in read] == ["x", "x", {"id": 1, "note": None}]


@pytest.mark.parametrize("media_type", ["text/plain", "application/octet-stream"])
async def test_a_value_that_is_stored_as_it_stands_has_no_schema(
    http: httpx.AsyncClient, schema_id: int, media_type: str
) -> None:
    params = {"value_schema_id": schema_id}
    response = await http.post(RECORDS, content=b"x", params=params, headers={"content-type": media_type})
    assert response.status_code == 422
    assert response.json()["errors"][0]["path"] == "$.value_schema_id"
