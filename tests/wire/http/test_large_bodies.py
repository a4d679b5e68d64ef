"""Large bodies: what takes longer with every byte happens in threads, and ends at a limit."""

import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import httpx
import msgspec
import pytest
from msgspec import inspect
from prometheus_client import CollectorRegistry
from starlette.routing import Route

from streamhouse.broker.broker import Broker
from streamhouse.broker.fetch.read_plans import OffsetRange
from streamhouse.broker.forwarding import outbound_batch, publish
from streamhouse.format.compression import Codec
from streamhouse.format.records import encode_batch
from streamhouse.model.record import Acks, NewRecord, Receipt
from streamhouse.wire.http import endpoint, operations
from streamhouse.wire.http.app import make_app
from streamhouse.wire.http.elements import MAX_ELEMENTS, Element, counted
from streamhouse.wire.http.endpoint import Endpoint, decode_json
from streamhouse.wire.http.errors import Malformed
from streamhouse.wire.http.records import publish_body, upload
from streamhouse.wire.http.records.types import Publication
from streamhouse.wire.http.routes import produce, read_plans, schemas_requests

from .conftest import StartSite
from .test_streams import with_topic

RECORDS = "/v1/topics/orders/records"
BATCHES = "/v1/topics/orders/partitions/0/batches"
NDJSON = {"content-type": "application/x-ndjson"}


class Threads:
    """Whether functions were called on the event loop, by their names."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._loop = threading.current_thread()
        self.on_loop: dict[str, bool] = {}

    def watch(self, module: Any, *names: str) -> None:
        for name in names:
            self._monkeypatch.setattr(module, name, self._watched(name, getattr(module, name)))

    def _watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **options: Any) -> Any:
            self.on_loop[name] = self.on_loop.get(name, False) or threading.current_thread() is self._loop
            return function(*args, **options)

        return watched


@pytest.fixture
async def real(start_site: StartSite) -> httpx.AsyncClient:
    """A client of an agent whose loop has real threads."""
    return (await with_topic(await start_site())).http


@pytest.fixture
def threads(real: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> Threads:
    threads = Threads(monkeypatch)
    threads.watch(endpoint, "decode_json")
    threads.watch(publish_body, "new_records")
    threads.watch(publish, "IdempotencyKey", "assign_partitions", "_fill_receipts")
    threads.watch(outbound_batch, "encode_batch")
    threads.watch(produce, "published")
    threads.watch(upload, "_shape_of")
    return threads


def body_of(records: int, *, headers: int = 0) -> bytes:
    record = {"value": 1, "headers": [{"name": ""}] * headers}
    return msgspec.json.encode({"records": [record] * records})


@pytest.mark.parametrize(("records", "headers", "is_large"), [(3, 3, False), (2500, 0, True), (1, 2500, True)])
async def test_records_of_a_large_body_are_translated_in_threads(
    threads: Threads, real: httpx.AsyncClient, records: int, headers: int, is_large: bool
) -> None:
    body = body_of(records, headers=headers)
    key = {"content-type": "application/json", "idempotency-key": "k"}
    assert (await real.post(RECORDS, content=body, headers=key)).status_code == 200
    steps = ["decode_json", "new_records", "IdempotencyKey", "assign_partitions", "encode_batch", "_fill_receipts"]
    assert {name: threads.on_loop[name] for name in steps} == dict.fromkeys(steps, not is_large)
    assert threads.on_loop["published"] == (records < 1000)  # one entry for each record


async def test_records_that_no_batch_can_hold_are_found_in_a_thread(
    start_site: StartSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = await with_topic(await start_site())
    threads = Threads(monkeypatch)
    threads.watch(publish, "encode_batch")
    good = NewRecord(b"1", None, (), None, None)
    records = [good._replace(headers=(("\ud800", b""),)), *[good] * 2500]
    results = await site.agent.broker.records.publish("orders", records, acks=Acks.WAL, timeout_s=10)
    assert [number for number, each in enumerate(results) if not isinstance(each, Receipt)] == [0]
    assert threads.on_loop == {"encode_batch": False}


@pytest.mark.parametrize(("headers", "is_large"), [(10, False), (2500, True)])
async def test_a_large_line_of_an_upload_is_read_in_a_thread(
    threads: Threads, real: httpx.AsyncClient, headers: int, is_large: bool
) -> None:
    line = msgspec.json.encode({"value": 1, "headers": [{"name": ""}] * headers})
    assert (await real.post(RECORDS, content=line + b"\n", headers=NDJSON)).json()["records"] == 1
    assert threads.on_loop["_shape_of"] is not is_large


def test_objects_in_lists_of_bodies_are_counted(broker: Broker) -> None:
    limits: Any = make_app(broker, CollectorRegistry(), cluster_id="cluster-1")
    routes = [each for each in limits.app.app.routes if isinstance(each, Route)]
    endpoints = [each.endpoint for each in routes if isinstance(each.endpoint, Endpoint)]
    bodies = {each.body for endpoint in endpoints for each in endpoint.operations if each.body is not None}
    listed = {kind for body in bodies for kind in listed_types(inspect.type_info(body))}
    assert {kind.__name__ for kind in listed if not issubclass(kind, Element)} == set()
    assert {"RecordShape", "HeaderShape", "WantedPartition", "RunToPlace"} <= {kind.__name__ for kind in listed}


def listed_types(kind: inspect.Type, *, in_list: bool = False) -> Iterator[type]:
    """The structs that are in a list anywhere in this type."""
    match kind:
        case inspect.Metadata():
            yield from listed_types(kind.type, in_list=in_list)
        case inspect.UnionType():
            for each in kind.types:
                yield from listed_types(each, in_list=in_list)
        case inspect.ListType():
            yield from listed_types(kind.item_type, in_list=True)
        case inspect.StructType():
            if in_list:
                yield kind.cls
            for field in kind.fields:
                yield from listed_types(field.type)


def test_decoding_ends_at_the_limit_of_elements() -> None:
    made = 0

    class Counted(Element, frozen=True):
        def __post_init__(self) -> None:
            nonlocal made
            super().__post_init__()
            made += 1

    with pytest.raises(msgspec.ValidationError, match="too many elements"), counted(10):
        msgspec.json.decode(b"[" + b"{}," * 1000 + b"{}]", type=list[Counted])
    assert made == 10
    with counted(10), counted(2):
        msgspec.json.decode(b"[{},{}]", type=list[Counted])
    assert msgspec.json.decode(b"[" + b"{}," * 20 + b"{}]", type=list[Counted])  # of no body


def test_a_body_has_a_limit_of_elements() -> None:
    with pytest.raises(Malformed, match=f"too many elements in the body; limit={MAX_ELEMENTS}"):
        decode_json(body_of(1, headers=MAX_ELEMENTS), Publication)
    assert len(decode_json(body_of(1, headers=MAX_ELEMENTS - 1), Publication).records[0].headers) == MAX_ELEMENTS - 1


def test_numbers_of_a_list_without_end_are_not_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"records":[{"value":1,"partition":2.0},{"value":1},{"value":1},{"value":1}]}'
    assert decode_json(body, Publication).records[0].partition == 2
    monkeypatch.setattr(endpoint, "MAX_REWRITTEN", 3)
    with pytest.raises(Malformed, match="got `float`"):
        decode_json(body, Publication)


async def test_a_topic_named_often_is_refused_before_its_partitions_are_listed(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = count()
    real = OffsetRange
    monkeypatch.setattr(read_plans, "OffsetRange", lambda *args: (next(made), real(*args))[1])
    answer = await http.post("/v1/read-plans", json={"topics": [{"topic": "orders"}] * 1000})
    assert (answer.status_code, "requested twice" in answer.json()["detail"]) == (422, True)
    named = [{"partition": number % 3} for number in range(1000)]
    answer = await http.post("/v1/read-plans", json={"topics": [{"topic": "orders", "partitions": named}]})
    assert (answer.status_code, "requested twice" in answer.json()["detail"]) == (422, True)
    assert next(made) == 3


async def test_a_topic_may_be_named_with_one_partition_at_a_time(http: httpx.AsyncClient) -> None:
    named = [{"topic": "orders", "partitions": [{"partition": number}]} for number in range(3)]
    plan = (await http.post("/v1/read-plans", json={"topics": named})).json()
    assert [each["partition"] for each in plan["partitions"]] == [0, 1, 2]


@pytest.mark.parametrize(("batches", "is_large"), [(3, False), (500, True)])
async def test_batches_of_a_large_body_are_found_in_a_thread(
    threads: Threads, real: httpx.AsyncClient, batches: int, is_large: bool
) -> None:
    threads.watch(produce, "iter_batches")
    batch = encode_batch([NewRecord(b"1", None, (), None, None)], codec=Codec.NONE, now_ms=0)
    answer = await real.post(BATCHES, content=bytes(batch) * batches, headers={"content-type": operations.BATCHES})
    assert len(answer.json()["batches"]) == batches
    assert threads.on_loop["iter_batches"] is not is_large


@pytest.mark.parametrize(("size", "is_large"), [(10, False), (20_000, True)])
async def test_a_large_schema_is_decoded_in_a_thread(
    threads: Threads, real: httpx.AsyncClient, size: int, is_large: bool
) -> None:
    threads.watch(schemas_requests, "_json_text")
    body = {"schema": '"string"', "metadata": {"properties": {"a": "x" * size}}}
    assert (await real.post("/subjects/orders-value/versions", json=body)).status_code == 200
    assert threads.on_loop["_json_text"] is not is_large


async def test_references_are_counted_before_their_rights_are_looked_at(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = list[object]()
    monkeypatch.setattr(schemas_requests.RegistryCall, "require_subject", lambda _, *named: looked.append(named))
    body = {"schema": '"string"', "references": [{"name": "x", "subject": "y", "version": 1}] * 1001}
    response = await http.post("/subjects/orders-value/versions", json=body)
    assert (response.status_code, "schemas.max_references" in response.json()["message"]) == (422, True)
    assert len(looked) <= 1
