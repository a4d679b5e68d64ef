"""Three agents, PostgreSQL and a bucket in a folder: the coordinator of a commit is killed in the middle of it."""

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from prometheus_client import CollectorRegistry

from streamhouse.broker.broker import Broker
from streamhouse.clock import Ids, SystemClock
from streamhouse.model.names import TopicId, TopicPartition
from streamhouse.stores.objects.base import ObjectStore
from streamhouse.stores.objects.open import open_object_store
from tests.broker.external_commits.support import QUERY, written
from tests.stores.postgres.conftest import databases, empty_database
from tests.support.agent import LiveAgent
from tests.support.depth import scaled
from tests.wire.http.test_external_commits import body_of

__all__ = ["databases", "empty_database"]

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

AGENTS, PARTITIONS, KILLS = 3, 4, scaled(quick=2, nightly=8)
NAMES = [TopicPartition("orders", number) for number in range(PARTITIONS)]
FLAGS = ("wal.kind=object", "lease.ttl_s=3", "lease.takeover_s=1", "lease.renew_s=0.5", "lease.margin_s=0.3")


@pytest.fixture
def agents(tmp_path: Path, empty_database: str) -> Iterator[list[LiveAgent]]:
    flags = ["--metadata", empty_database, "--store", f"file://{tmp_path}/bucket"]
    for setting in (*FLAGS, "placing.hold_s=2", "flush.age_s=1"):
        flags += ["--set", setting]
    with ExitStack() as stack:
        yield [stack.enter_context(LiveAgent(tmp_path / f"agent{number}", *flags)) for number in range(AGENTS)]


@pytest.fixture
async def bucket(tmp_path: Path) -> AsyncIterator[ObjectStore]:
    store = open_object_store(f"file://{tmp_path}/bucket", clock=SystemClock(), ids=Ids(), registry=CollectorRegistry())
    yield store
    await store.aclose()


async def committed(http: httpx.AsyncClient, agents: list[LiveAgent], body: dict[str, Any]) -> dict[str, Any]:
    """As a query's driver does it: at one agent after the other, until it gets the result."""
    for turn in range(600):
        agent = agents[turn % len(agents)]
        try:
            answer = await http.post(f"http://{agent.http}/v1/commits", json=body)
        except httpx.HTTPError:
            await asyncio.sleep(0.1)
            continue
        if answer.status_code == 200:
            response: dict[str, Any] = answer.json()
            return response
        assert answer.status_code in (429, 503), answer.text
        await asyncio.sleep(0.1)
    raise AssertionError("the commit never happened")


async def read_all(http: httpx.AsyncClient, agent: LiveAgent, name: TopicPartition) -> list[str]:
    url = f"http://{agent.http}/v1/topics/{name.topic}/partitions/{name.partition}/records"
    response = await http.get(url, params={"offset": 0, "limit": 1000, "format": "text"})
    assert response.status_code == 200, response.text
    return [record["value"] for record in response.json()["records"]]


async def test_a_commit_happens_once_whichever_agent_is_killed_in_the_middle_of_it(
    agents: list[LiveAgent], bucket: ObjectStore
) -> None:
    chance = random.Random(7)
    async with httpx.AsyncClient(trust_env=False, timeout=40) as http:
        made = await http.post(f"http://{agents[0].http}/v1/topics", json={"name": "orders", "partitions": PARTITIONS})
        topic_id = TopicId(uuid.UUID(made.json()["id"]))

        async def topic(_: str) -> SimpleNamespace:
            return SimpleNamespace(topic_id=topic_id)

        writer = cast(Broker, SimpleNamespace(topic=topic))
        expected: dict[TopicPartition, list[str]] = {name: [] for name in NAMES}
        for epoch in range(KILLS):
            values = {name: [f"{epoch}-{name.partition}-{n}".encode() for n in range(3)] for name in NAMES}
            body = body_of(await written(writer, bucket, values, epoch=epoch), progress={"epoch": epoch})
            victim = agents[epoch % AGENTS]
            pending = asyncio.ensure_future(http.post(f"http://{victim.http}/v1/commits", json=body))
            await asyncio.sleep(chance.uniform(0.0, 0.08))
            victim.kill()
            await asyncio.gather(pending, return_exceptions=True)
            others = [agent for agent in agents if agent is not victim]
            result = await committed(http, others, body)
            assert sorted(each["partition"] for each in result["placed"]) == list(range(PARTITIONS))
            for each in result["placed"]:
                assert (each["base"], each["end"]) == (3 * epoch, 3 * epoch + 3)
            for name in NAMES:
                expected[name] += [value.decode() for value in values[name]]
                assert await read_all(http, others[0], name) == expected[name]
            await asyncio.to_thread(victim.start)
        last = (await http.get(f"http://{agents[0].http}/v1/commits/{QUERY}")).json()
        assert (last["epoch"], last["progress"]) == (KILLS - 1, {"epoch": KILLS - 1})
