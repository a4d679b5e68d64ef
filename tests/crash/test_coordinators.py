"""Two agents and PostgreSQL: the coordinator of a commit is killed at a known step; the other agent continues."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import httpx
import pytest
from prometheus_client import CollectorRegistry

from streamhouse.broker.broker import Broker
from streamhouse.client.client import Client
from streamhouse.clock import Ids, SystemClock
from streamhouse.model.names import TopicId, TopicPartition
from streamhouse.stores.objects.base import ObjectStore
from streamhouse.stores.objects.open import open_object_store
from tests.broker.external_commits.support import written
from tests.crash.pair import PARTITIONS, Pair, running_pair
from tests.crash.test_placing import committed
from tests.stores.postgres.conftest import databases, empty_database
from tests.support.agent import LiveAgent
from tests.wire.http.test_external_commits import body_of

__all__ = ["databases", "empty_database"]

pytestmark = [pytest.mark.crash, pytest.mark.postgres, pytest.mark.timeout(120)]

NAMES = [TopicPartition("orders", number) for number in range(PARTITIONS)]
ENDS_S = 30.0
"""Far more than a hold, a lease and taking over last together: what takes longer has no end."""


@pytest.fixture(params=["disk", "object"])
def pair(request: pytest.FixtureRequest, tmp_path: Path, empty_database: str) -> Iterator[Pair]:
    with running_pair(tmp_path, database=empty_database, wal=request.param) as running:
        yield running


@pytest.fixture
async def bucket(tmp_path: Path) -> AsyncIterator[ObjectStore]:
    store = open_object_store(f"file://{tmp_path}/bucket", clock=SystemClock(), ids=Ids(), registry=CollectorRegistry())
    yield store
    await store.aclose()


async def until_shared(http: httpx.AsyncClient, pair: Pair) -> None:
    """Until the first agent knows that partitions are the other one's to lead, too."""
    for _ in range(200):
        response = (await http.get(f"http://{pair.first.http}/v1/partitions", params={"topic": "orders"})).json()
        if len({each["owner"] for each in response["partitions"]} - {None}) == 2:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"one agent is to lead everything: {response}")


async def until_read(http: httpx.AsyncClient, agent: LiveAgent, name: TopicPartition) -> list[str]:
    """The records of a partition, once it has a leader."""
    url = f"http://{agent.http}/v1/topics/{name.topic}/partitions/{name.partition}/records"
    async with asyncio.timeout(ENDS_S):
        while True:
            response = await http.get(url, params={"offset": 0, "limit": 1000, "format": "text"})
            if response.status_code == 200:
                return [record["value"] for record in response.json()["records"]]
            assert response.status_code == 503, response.text
            await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    ("words", "on_answer", "replayed"),
    [
        pytest.param(b"POST /v1/holds HTTP", True, False, id="before the transaction"),
        pytest.param(b"/end HTTP", False, True, id="behind the transaction"),
    ],
)
async def test_the_other_agent_answers_a_commit_whose_coordinator_was_killed(
    pair: Pair, bucket: ObjectStore, words: bytes, on_answer: bool, replayed: bool
) -> None:
    async with httpx.AsyncClient(trust_env=False, timeout=ENDS_S) as http:
        made = await http.post(f"http://{pair.first.http}/v1/topics", json={"name": "orders", "partitions": PARTITIONS})
        topic_id = TopicId(uuid.UUID(made.json()["id"]))

        async def topic(_: str) -> SimpleNamespace:
            return SimpleNamespace(topic_id=topic_id)

        await until_shared(http, pair)
        values = {name: [b"%d" % name.partition] for name in NAMES}
        body = body_of(await written(cast(Broker, SimpleNamespace(topic=topic)), bucket, values))
        pair.trap.set(words, pair.first.kill, on_answer=on_answer)
        with pytest.raises(httpx.TransportError):
            await http.post(f"http://{pair.first.http}/v1/commits", json=body)
        assert pair.trap.sprung == 1
        async with asyncio.timeout(ENDS_S):
            result = await committed(http, [pair.second], body)
        assert result["replayed"] is replayed
        assert sorted(each["partition"] for each in result["placed"]) == list(range(PARTITIONS))
        for name in NAMES:
            assert await until_read(http, pair.second, name) == [str(name.partition)]
        async with asyncio.timeout(ENDS_S), Client(pair.second.http) as client:
            results = [record.text() async for record in client.consume("orders", until="end")]
        assert sorted(results) == sorted(str(name.partition) for name in NAMES)
        again = await committed(http, [pair.second], body)
        assert (again["replayed"], again["placed"]) == (True, result["placed"])
