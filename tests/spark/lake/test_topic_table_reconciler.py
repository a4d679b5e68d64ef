"""A supervisor follows the settings of topics: tables come, change and go with them, whoever looks how often."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from streamhouse.client.http import Http
from streamhouse.clock import Ids, SystemClock
from streamhouse.errors import Unavailable
from streamhouse.spark.pipelines.topic_tables import RETRY_REJECTED_S, TopicTableReconciler

ICEBERG = {"table.format": "iceberg"}


class MadeUpAgents:
    """Agents that keep what is put to them; `asked` has every question."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[str, str]] = {"orders": {}, "clicks": {}}
        self.kept: dict[str, dict[str, Any]] = {"tables": {}, "pipelines": {}}
        self.requests: list[tuple[str, str]] = []
        self.is_away = False

    def changes(self) -> list[tuple[str, str]]:
        """What was changed since the last time."""
        results = [each for each in self.requests if each[0] in ("PUT", "DELETE")]
        self.requests.clear()
        return results

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append((request.method, request.url.path))
        _, _, what, *names = request.url.path.split("/")
        if self.is_away:
            return httpx.Response(503, json={"detail": "away"})
        if what == "topics":
            results = [{"name": name, "settings": settings} for name, settings in self.topics.items()]
            return httpx.Response(200, json={"topics": results})
        if what == "read-plans":
            return httpx.Response(200, json={"store": "file:///srv/data/objects"})
        return self._kept(request, what, names)

    def _kept(self, request: httpx.Request, what: str, names: list[str]) -> httpx.Response:
        kept = self.kept[what]
        if not names:
            named = [{"name": name, "connector": "topic"} for name in self.topics] if what == "tables" else []
            return httpx.Response(200, json={what: [*named, *kept.values()]})
        if request.method == "DELETE":
            return httpx.Response(404 if kept.pop(names[0], None) is None else 200, json={"detail": "unknown"})
        if request.method == "PUT":
            outcome = "changed" if names[0] in kept else "created"
            kept[names[0]] = {"name": names[0], "wish": "run", **json.loads(request.content)}
            return httpx.Response(200, json={"outcome": outcome} if what == "pipelines" else kept[names[0]])
        return httpx.Response(200 if names[0] in kept else 404, json=kept.get(names[0], {"detail": "unknown"}))


class Pausing(SystemClock):
    """Time goes on when somebody says so."""

    now_s, sleeps = 0.0, 0

    def monotonic(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.sleeps -= 1
        if self.sleeps < 0:
            raise asyncio.CancelledError


class Followed:
    def __init__(self, agents: MadeUpAgents, http: Http) -> None:
        self.clock = Pausing()
        self.news: list[tuple[str, str]] = []
        self.columns: tuple[str, ...] | None = None
        self.looked_at_columns = 0
        self.following = TopicTableReconciler(
            http,
            self._columns,
            every_s=1.0,
            clock=self.clock,
            ids=Ids(),
            news=lambda name, text: self.news.append((name, text)),
        )

    def _columns(self, topic: str) -> tuple[str, ...] | None:
        self.looked_at_columns += 1
        return self.columns

    async def reconcile_once(self) -> list[str]:
        """What it says."""
        self.news.clear()
        await self.following.reconcile_once()
        return [f"{name}: {text}" for name, text in self.news]


@pytest.fixture
def agents() -> MadeUpAgents:
    return MadeUpAgents()


@pytest.fixture
async def http(agents: MadeUpAgents) -> AsyncIterator[Http]:
    async with Http("127.0.0.1:1", transport=httpx.MockTransport(agents.answer)) as http:
        yield http


@pytest.fixture
def followed(agents: MadeUpAgents, http: Http) -> Followed:
    return Followed(agents, http)


async def test_a_look_asks_once_for_all_topics_and_changes_nothing_without_need(
    agents: MadeUpAgents, followed: Followed
) -> None:
    agents.topics = {f"topic{number}": ICEBERG for number in range(20)}
    await followed.reconcile_once()
    assert len(agents.kept["tables"]) == len(agents.kept["pipelines"]) == 20
    agents.requests.clear()
    assert await followed.reconcile_once() == []
    assert agents.requests == [("GET", "/v1/tables"), ("GET", "/v1/pipelines"), ("GET", "/v1/topics")]


async def test_a_setting_makes_the_table_changes_it_and_ends_it(agents: MadeUpAgents, followed: Followed) -> None:
    agents.topics["orders"] = ICEBERG
    (said,) = await followed.reconcile_once()
    assert said == "orders_lake: created by the settings of orders; location=/srv/data/lake/orders_lake"
    assert agents.kept["tables"]["orders_lake"]["options"]["settings_of"] == "orders"
    agents.changes()
    agents.topics["orders"] = {**ICEBERG, "table.commit.interval.ms": "5000"}
    (said,) = await followed.reconcile_once()
    assert said.startswith("orders_lake: changed")
    assert agents.changes() == [("PUT", "/v1/pipelines/orders_lake")]
    assert agents.kept["pipelines"]["orders_lake"]["options"]["trigger"] == "5000 milliseconds"
    agents.topics["orders"] = {}
    assert await followed.reconcile_once() == []
    (said,) = await followed.reconcile_once()
    assert said.startswith("orders_lake: dropped")
    assert agents.changes() == [("DELETE", "/v1/pipelines/orders_lake"), ("DELETE", "/v1/tables/orders_lake")]
    assert await followed.reconcile_once() == []


async def test_a_deleted_topic_ends_its_table(agents: MadeUpAgents, followed: Followed) -> None:
    agents.topics["orders"] = ICEBERG
    await followed.reconcile_once()
    del agents.topics["orders"]
    await followed.reconcile_once()
    await followed.reconcile_once()
    assert agents.kept == {"tables": {}, "pipelines": {}}


async def test_several_supervisors_dont_fight(agents: MadeUpAgents, http: Http) -> None:
    first, second = Followed(agents, http), Followed(agents, http)
    agents.topics["orders"] = ICEBERG
    for each in (first, second, first, second):
        await each.reconcile_once()
    assert agents.changes() == [("PUT", "/v1/tables/orders_lake"), ("PUT", "/v1/pipelines/orders_lake")]
    agents.topics["orders"] = {}
    for each in (first, second, first, second, first, second):
        await each.reconcile_once()
    assert agents.changes() == [("DELETE", "/v1/pipelines/orders_lake"), ("DELETE", "/v1/tables/orders_lake")]


async def test_a_refusal_is_said_once_until_it_is_another(agents: MadeUpAgents, followed: Followed) -> None:
    agents.topics["orders"] = ICEBERG
    await followed.reconcile_once()
    agents.topics["orders"] = {"table.format": "delta"}
    (said,) = await followed.reconcile_once()
    assert "orders: is not the table that its settings require: " in said
    assert "format is iceberg, not delta" in said
    assert await followed.reconcile_once() == []
    agents.topics["orders"] = {"table.format": "parquet"}
    (said,) = await followed.reconcile_once()
    assert "not parquet" in said
    agents.topics["orders"] = ICEBERG
    assert await followed.reconcile_once() == []
    assert "orders_lake" in agents.kept["tables"]


async def test_columns_that_arent_there_are_not_looked_for_all_the_time(
    agents: MadeUpAgents, followed: Followed
) -> None:
    keyed = {**ICEBERG, "table.mode": "upsert", "table.key": "id"}
    agents.topics["orders"], followed.columns = keyed, ("order_id", "amount")
    (said,) = await followed.reconcile_once()
    assert "table.key names no column of the topic; column=id" in said
    assert await followed.reconcile_once() == []
    assert (followed.looked_at_columns, agents.kept["tables"]) == (1, {})
    followed.clock.now_s += RETRY_REJECTED_S
    assert await followed.reconcile_once() == []
    assert followed.looked_at_columns == 2
    agents.topics["orders"] = {**keyed, "table.key": "order_id"}
    (said,) = await followed.reconcile_once()
    assert said.startswith("orders_lake: created")


async def test_agents_that_are_away_change_nothing(agents: MadeUpAgents, followed: Followed) -> None:
    agents.topics["orders"] = ICEBERG
    await followed.reconcile_once()
    agents.is_away = True
    with pytest.raises(Unavailable):
        await followed.reconcile_once()
    agents.is_away = False
    assert await followed.reconcile_once() == []
    assert "orders_lake" in agents.kept["tables"]


async def test_the_looks_go_on_while_agents_are_away_and_that_is_said_once(
    agents: MadeUpAgents, followed: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    agents.is_away, followed.clock.sleeps = True, 5
    with caplog.at_level(logging.WARNING), pytest.raises(asyncio.CancelledError):
        await followed.following.run()
    assert agents.requests.count(("GET", "/v1/tables")) >= 6
    assert len([each for each in caplog.records if "topic settings" in each.message]) == 1


async def test_one_topics_trouble_is_not_the_next_ones(agents: MadeUpAgents, followed: Followed) -> None:
    agents.topics = {"clicks": {**ICEBERG, "table.partition.by": "day(ts)"}, "orders": ICEBERG}
    followed.columns = ("page",)
    said = await followed.reconcile_once()
    assert [each.partition(":")[0] for each in said] == ["orders_lake", "clicks"]
    assert "table.partition.by names no column" in said[1]
