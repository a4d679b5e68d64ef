"""The client's tables, pipelines, views and SQL against a live agent."""

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest

from streamhouse import Client, SyncClient
from streamhouse.errors import (
    NameTaken,
    NoWorker,
    PlaceLost,
    Rejected,
    UnknownPipeline,
    UnknownQuery,
    UnknownTable,
    UnknownView,
    UnknownViewRow,
)
from streamhouse.model.pipeline import Definition, Kind, Phase, PipelineName, Shape
from streamhouse.model.table import Column, Connector, Table
from tests.client.live import agent as agent
from tests.client.live import topic as topic
from tests.support.agent import LiveAgent
from tests.wire.http.fake_worker import fake_worker


@pytest.fixture
async def client(agent: LiveAgent) -> AsyncIterator[Client]:
    async with Client(agent.http) as opened:
        yield opened


def definition(name: str, *, kind: Kind = Kind.SQL) -> Definition:
    return Definition(
        name=PipelineName(name),
        kind=kind,
        text="SELECT",
        options={"trigger": "1 second"},
        target="totals",
        key=("shop", "id"),
        columns=(Column(name="id", type="BIGINT"),),
        shape=Shape(streams=("orders",), target="totals"),
    )


async def test_tables_are_defined_found_and_dropped(client: Client, topic: str) -> None:
    await client.topics.create(topic)
    assert await client.tables.get(topic) == Table(name=topic, connector=Connector.TOPIC, options={})
    result = Table(
        name=topic,
        connector=Connector.TOPIC,
        columns=(Column(name="id", type="INT"),),
        key=("id",),
        options={"format": "json"},
        text="CREATE TABLE",
    )
    assert await client.tables.put(result) == result
    assert result in await client.tables.list()
    await client.tables.drop(topic)
    await client.tables.drop(topic, missing_ok=True)
    with pytest.raises(UnknownTable, match=f"name={topic}"):
        await client.tables.drop(topic)
    with pytest.raises(NameTaken):
        await client.pipelines.put(definition(topic, kind=Kind.VIEW))


async def test_pipelines_are_applied_and_shown(client: Client, topic: str) -> None:
    expected = definition(topic)
    made = await client.pipelines.put(expected, starting="latest")
    assert (made.outcome, made.pipeline.key, made.pipeline.shape) == ("created", expected.key, expected.shape)
    assert made.pipeline.status.phase is Phase.WAITING
    assert (await client.pipelines.put(expected)).outcome == "unchanged"
    other = replace(expected, text="other", shape=Shape(streams=("clicks",), target="totals"))
    with pytest.raises(PlaceLost, match="other streams"):
        await client.pipelines.put(other)
    anew = await client.pipelines.put(other, fresh=True, starting="earliest")
    assert (anew.outcome, anew.pipeline.generation) == ("changed", 2)
    assert (await client.pipelines.pause(topic)).status.phase is Phase.PAUSED
    assert (await client.pipelines.resume(topic)).wish == "run"
    assert (await client.pipelines.restart(topic, "latest")).generation == 3
    assert await client.pipelines.get(topic) in await client.pipelines.list()
    assert await client.pipelines.events(topic) == []
    await client.pipelines.delete(topic)
    await client.pipelines.delete(topic, missing_ok=True)
    with pytest.raises(UnknownPipeline):
        await client.pipelines.get(topic)


async def test_views_are_looked_up_by_key_and_read_wholly(client: Client, agent: LiveAgent, topic: str) -> None:
    made = (await client.pipelines.put(definition(topic, kind=Kind.VIEW))).pipeline
    rows = [{"shop": "a", "id": number, "sum": number / 2} for number in range(5)]
    async with httpx.AsyncClient(base_url=f"http://{agent.http}", trust_env=False) as http:
        beat = await http.post("/v1/supervisors/s/heartbeat", json={"host": "h", "slots": 100})
        epochs = {each["pipeline"]["name"]: each["epoch"] for each in beat.json()["assigned"]}
        part = {"epoch": epochs[topic], "query": made.query_id, "batch": 0, "fresh_at_ms": 7}
        upserts = [{"key": [row["shop"], row["id"]], "row": row} for row in rows]
        assert (await http.post(f"/v1/views/{topic}/rows", json={**part, "upserts": upserts})).is_success
    assert [each.id for each in await client.pipelines.supervisors()] == ["s"]
    result = await client.views.row(topic, {"shop": "a", "id": 3})
    assert (result.row, result.fresh_at_ms) == (rows[3], 7)
    assert [row async for row in client.views.rows(topic)] == rows
    page = await client.views.page(topic, limit=2)
    assert page.rows == rows[:2]
    assert (await client.views.page(topic, cursor=page.cursor)).rows == rows[2:]
    assert (await client.views.get(topic)).rows == 5
    assert topic in [each.name for each in await client.views.list()]
    with pytest.raises(UnknownViewRow):
        await client.views.row(topic, {"shop": "b", "id": 3})
    with pytest.raises(Rejected, match="missing=id"):
        await client.views.row(topic, {"shop": "b"})
    with pytest.raises(UnknownView):
        await client.views.get("nothing")
    await client.pipelines.delete(topic)


async def test_sql_is_asked_streamed_and_cancelled(client: Client, agent: LiveAgent) -> None:
    with pytest.raises(NoWorker, match="streamhouse sql serve"):
        await client.sql.query("SELECT 1")
    with pytest.raises(NoWorker):
        _ = [row async for row in client.sql.stream("SELECT 1")]
    async with fake_worker() as worker, httpx.AsyncClient(base_url=f"http://{agent.http}", trust_env=False) as http:
        body = {"address": worker.address, "token": "t", "busy": 0}
        await http.post("/v1/sql/workers/w/heartbeat", json=body)
        assert [each.address for each in await client.sql.workers()] == [worker.address]
        response = await client.sql.query("SELECT 1", max_rows=3)
        assert (response.rows, response.columns) == ([{"id": 1}], (Column(name="id", type="INT"),))
        assert worker.requested[-1]["max_rows"] == 3
        assert [row async for row in client.sql.stream("SELECT 1")] == [{"id": 1}, {"id": 2}]
        assert await client.sql.validate("SELECT 1") == []
        await client.sql.cancel("q1")
        with pytest.raises(UnknownQuery):
            await client.sql.cancel("q2")
        with pytest.raises(Rejected, match="no such column"):
            await client.sql.query("wrong")
        await http.delete("/v1/sql/workers/w")


def test_the_same_without_an_event_loop(agent: LiveAgent, topic: str) -> None:
    with SyncClient(agent.http) as client:
        made = client.pipelines.put(definition(topic, kind=Kind.VIEW))
        assert client.pipelines.get(topic) == made.pipeline
        assert list(client.views.rows(topic)) == []
        assert client.tables.get(topic).connector is Connector.VIEW
        with pytest.raises(NoWorker):
            client.sql.query("SELECT 1")
        with pytest.raises(NoWorker):
            list(client.sql.stream("SELECT 1"))
        client.pipelines.delete(topic)
