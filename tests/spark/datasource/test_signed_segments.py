"""Reads whose executors have no credentials of the bucket: agents sign each read of it, and the rows are the same."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import httpx
import pytest
from pyspark.sql.types import StructType

from streamhouse.client.http import HttpResponse
from streamhouse.errors import Misconfigured, Rejected
from streamhouse.model.names import TopicPartition
from streamhouse.spark.agents.client import RunLocation
from streamhouse.spark.columns.record_columns import RecordBatchBuilder
from streamhouse.spark.datasource import segment_source
from streamhouse.spark.datasource.pushed_filters import NO_FILTERS
from streamhouse.spark.datasource.read_options import ReadOptions, read_options
from streamhouse.spark.datasource.segment_source import SignedSource
from streamhouse.spark.datasource.split_planner import SegmentRange, plan_batch
from streamhouse.spark.datasource.split_reader import ReadTask, read_split
from streamhouse.stores.objects.base import ObjectMissing, Refused
from tests.spark.conftest import BUCKET, LAZY, client_of, send
from tests.support.agent import LiveAgent
from tests.support.s3 import RealS3

pytestmark = [pytest.mark.spark, pytest.mark.s3]


@pytest.fixture
def agent(bucket: RealS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveAgent]:
    """An agent with records in a bucket and in the tail; nobody else has the bucket's credentials."""
    with monkeypatch.context() as agents:
        for name, value in bucket.environment.items():
            agents.setenv(name, value)
        running = LiveAgent(tmp_path / "data", *LAZY, "--store", f"s3://{BUCKET}/signed-{tmp_path.name}")
        running.start()
        with client_of(running) as client:
            client.topics.create("orders", partitions=1)
            send(client, "orders", range(200))
        running.stop()
        running.start()
    for name in bucket.environment:
        monkeypatch.delenv(name, raising=False)
    with client_of(running) as client:
        send(client, "orders", range(200, 220))
    yield running
    running.stop()


def options(agent: LiveAgent, access: str) -> ReadOptions:
    return read_options({"topic": "orders", "agents": agent.http, "storeAccess": access}, streaming=False)


def values(chosen: ReadOptions) -> list[int]:
    shape = RecordBatchBuilder.of(StructType().add("value", "binary"))
    task = ReadTask(agents=chosen.agents, access=chosen.access)
    return [
        int(value)
        for split in asyncio.run(plan_batch(chosen, NO_FILTERS))
        for batch in read_split(split, task, shape)
        for value in batch.column(0).to_pylist()
    ]


def test_rows_come_from_the_bucket_without_credentials(agent: LiveAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_key(url: str) -> NoReturn:
        raise AssertionError(f"the store was opened; url={url}")

    monkeypatch.setattr(segment_source, "open_store", no_key)
    assert values(options(agent, "signed")) == list(range(220))


def test_a_store_that_signs_nothing_is_refused_on_the_driver(tmp_path: Path) -> None:
    with LiveAgent(tmp_path / "data") as folder:
        with client_of(folder) as client:
            client.topics.create("orders", partitions=1)
            send(client, "orders", range(5))
        with pytest.raises(Misconfigured, match=r"can't sign.*storeAccess"):
            values(options(folder, "signed"))


# --- responses of agents and stores

RUN = RunLocation(
    key="segments/a",
    base=0,
    end=9,
    stored_base=0,
    position=0,
    length=90,
    index_position=90,
    index_length=9,
    records=9,
    max_timestamp_ms=0,
)
PIECE = SegmentRange(partition=TopicPartition("orders", 0), start=3, end=9, weight=1.0, run=RUN)
URL = "https://store/records/segments/a?X-Amz-Signature=secret"


class Signing:
    """An agent that signs; `answers` come first."""

    def __init__(self, *responses: HttpResponse) -> None:
        self.requests: list[object] = []
        self._answers = list(responses)

    async def send(self, method: str, path: str, *, body: object) -> HttpResponse:
        self.requests.append((method, path, body))
        if self._answers:
            return self._answers.pop(0)
        return HttpResponse(200, json.dumps({"url": URL, "headers": {"range": "bytes=0-8"}}).encode())


def source(agents: Signing, *responses: httpx.Response | Exception) -> SignedSource:
    script = list(responses)

    def respond(request: httpx.Request) -> httpx.Response:
        assert (str(request.url), request.headers["range"]) == (URL, "bytes=0-8")
        assert "authorization" not in request.headers
        now = script.pop(0)
        if isinstance(now, Exception):
            raise now
        return now

    client: Any = agents
    return SignedSource(client, httpx.AsyncClient(transport=httpx.MockTransport(respond)), first_wait_s=0.001)


async def test_what_passes_is_tried_again_with_another_signature() -> None:
    agents = Signing()
    whole = httpx.Response(206, content=b"123456789")
    passing = (httpx.Response(503), httpx.ConnectError("refused"), httpx.Response(206, content=b"short"))
    assert await source(agents, *passing, whole).get_range(PIECE, 0, 9) == b"123456789"
    body = {"topic": "orders", "partition": 0, "offset": 3, "key": "segments/a", "start": 0, "end": 9}
    assert agents.requests == [("POST", "/v1/signed-reads", body)] * 4


async def test_a_segment_that_moved_is_missing() -> None:
    moved = HttpResponse(409, b'{"title": "RunsChanged", "detail": "runs changed"}')
    with pytest.raises(ObjectMissing):
        await source(Signing(moved)).get_range(PIECE, 0, 9)
    with pytest.raises(ObjectMissing):
        await source(Signing(), httpx.Response(404)).get_range(PIECE, 0, 9)


async def test_what_is_refused_is_not_tried_again_and_no_error_has_the_url() -> None:
    denied = HttpResponse(422, b'{"title": "CannotSign", "detail": "reads can\'t be signed"}')
    with pytest.raises(Rejected, match="can't be signed"):
        await source(Signing(denied)).get_range(PIECE, 0, 9)
    for status in (403, 200, 302):
        with pytest.raises(Refused, match=f"key=segments/a status={status}") as refused:
            await source(Signing(), httpx.Response(status)).get_range(PIECE, 0, 9)
        assert "secret" not in str(refused.value)
