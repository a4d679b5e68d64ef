"""GET /v1/doctor: each check finds what it is there for."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from streamhouse.broker.admin.health_check import DEADLINE_S
from streamhouse.broker.broker import Broker
from streamhouse.config.fields import Address
from streamhouse.format.object_keys import CLUSTER_KEY, segment_key, wal_key
from streamhouse.model.names import SessionId
from streamhouse.stores.metadata.base import NewSession
from streamhouse.wire.http.app import make_app
from tests.broker.support import ORDERS, World, batch, produce, settle
from tests.broker.transactions.support import Producer

STRANGER = SessionId("s-" + "0" * 32)


@pytest.fixture
async def broker(world: World) -> Broker:
    return await world.start_with(ORDERS)


@pytest.fixture
async def http(broker: Broker) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(make_app(broker, CollectorRegistry()))
    async with httpx.AsyncClient(transport=transport, base_url="http://agent") as client:
        yield client


async def examine(http: httpx.AsyncClient, **params: str) -> dict[str, dict[str, Any]]:
    answer = await http.get("/v1/doctor", params=params)
    assert answer.status_code == 200
    response = answer.json()
    return {check["name"]: check for check in [*response["own"], *response["shared"]]}


async def open_session(world: World, *, life_s: float) -> None:
    await world.sqlite.open_session(
        NewSession(
            session_id=STRANGER,
            kafka=Address("127.0.0.1", 1),
            http=Address("127.0.0.1", 2),
            ttl_ms=round(life_s * 1000),
            wal="object",
        )
    )


async def test_a_healthy_agent_has_nothing_to_complain_about(broker: Broker, http: httpx.AsyncClient) -> None:
    await produce(broker, batch(b"a"))
    checks = await examine(http)
    assert {check["verdict"] for check in checks.values()} == {"ok"}
    assert list(checks) == [
        "ready",
        "exposure",
        "super users",
        "metadata store",
        "object store",
        "clock",
        "flush",
        "memory",
        "open transactions",
        "readable",
        "encryption keys",
        "damaged log files",
        "identity",
        "sessions",
        "leases",
        "deletions",
        "segments",
        "orphans",
        "write-ahead log",
        "damaged log objects",
        "disks",
        "transactions",
    ]
    assert checks["metadata store"]["figures"]["schema"] >= 1
    assert checks["leases"]["figures"]["held"] == 1
    response = (await http.get("/v1/doctor", params={"local": "1"})).json()
    assert (response["node"], response["members"], response["shared"]) == (1, [1], [])


async def test_the_proof_leaves_nothing_in_the_object_store(world: World, http: httpx.AsyncClient) -> None:
    await examine(http)
    assert [meta.key async for meta in world.bucket.list("proof/")] == []


async def test_those_who_allow_old_findings_share_them(world: World, http: httpx.AsyncClient) -> None:
    first, *others = await asyncio.gather(*(examine(http, max_age_s="300") for _ in range(3)))
    assert others == [first, first]
    world.metadata.refuse("schema_version")
    assert await examine(http, max_age_s="300") == first
    assert (await examine(http))["metadata store"]["verdict"] == "failure"
    assert (await http.get("/v1/doctor", params={"max_age_s": "-1"})).status_code == 400


async def test_however_many_ask_the_stores_are_looked_at_once_at_a_time(
    broker: Broker, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, look, may_end = 0, broker.health_check.shared, asyncio.Event()

    async def counted() -> Any:
        nonlocal looks
        looks += 1
        await may_end.wait()
        return await look()

    monkeypatch.setattr(broker.health_check, "shared", counted)
    requests = []
    for count in (1, 8):
        requests += [asyncio.create_task(examine(http)) for _ in range(count)]
        await settle()
        assert looks == 1
    may_end.set()
    await asyncio.gather(*requests)
    assert looks == 2  # the eight asked after the first look had begun


async def test_stores_that_are_away_are_failures(world: World, http: httpx.AsyncClient) -> None:
    world.metadata.refuse("schema_version")
    world.objects.refuse("put_new")
    checks = await examine(http)
    assert checks["metadata store"]["verdict"] == checks["object store"]["verdict"] == "failure"
    assert "refused" in checks["object store"]["text"]


async def test_a_store_that_says_nothing_keeps_nobody_waiting_forever(
    world: World, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamhouse.broker.admin.health_check.DEADLINE_S", 0.01)
    assert DEADLINE_S < 10  # the client's own
    world.objects.hold("put_new")
    check = (await examine(http))["object store"]
    assert (check["verdict"], "no answer within" in check["text"]) == ("failure", True)


async def test_failed_calls_of_the_metadata_store_are_reported(world: World, http: httpx.AsyncClient) -> None:
    world.sqlite._engine.failures_in_a_row = 2
    check = (await examine(http, local="1"))["metadata store"]
    assert (check["verdict"], check["figures"]["failures_in_a_row"]) == ("warning", 2)


@pytest.mark.parametrize(("ahead_ms", "said"), [(5000, "5.0 s ahead of"), (-5000, "5.0 s behind"), (900, "within")])
async def test_a_clock_that_differs_by_more_than_a_second_is_reported(
    world: World, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, ahead_ms: int, said: str
) -> None:
    async def theirs() -> int:
        return world.clock.now_ms() - ahead_ms

    monkeypatch.setattr(world.sqlite._engine, "now_ms", theirs)
    check = (await examine(http))["clock"]
    assert said in check["text"]
    assert check["verdict"] == ("warning" if abs(ahead_ms) > 1000 else "ok")


@pytest.mark.parametrize(("waits_s", "verdict"), [(30, "ok"), (100, "warning"), (700, "failure")])
async def test_records_that_are_not_flushed_in_time_are_reported(
    world: World, broker: Broker, http: httpx.AsyncClient, waits_s: float, verdict: str
) -> None:
    await produce(broker, batch(b"a"))
    world.clock.skip(waits_s)
    check = (await examine(http))["flush"]
    assert (check["verdict"], check["figures"]["oldest_s"]) == (verdict, waits_s)
    assert check["figures"]["bytes"] > 0


@pytest.mark.parametrize(("share", "verdict"), [(0.5, "ok"), (0.8, "warning"), (1.0, "failure")])
async def test_memory_that_runs_out_is_reported(
    world: World, broker: Broker, http: httpx.AsyncClient, share: float, verdict: str
) -> None:
    broker.budget.take(round(world.settings.buffer.memory_bytes * share))
    checks = await examine(http)
    assert checks["memory"]["verdict"] == verdict
    assert checks["ready"]["verdict"] == ("failure" if verdict == "failure" else "ok")


async def test_dead_sessions_their_leases_and_their_wal_are_reported(
    world: World, broker: Broker, http: httpx.AsyncClient
) -> None:
    topic = await broker.create_topic("clicks", partitions=2, overrides={})
    await open_session(world, life_s=1.0)
    states = await world.sqlite.partitions([topic.topic_id])
    await world.sqlite.acquire(STRANGER, [state.partition for state in states])
    await world.bucket.put_new(wal_key(STRANGER, 1), [b"x" * 1000])
    assert (await examine(http))["write-ahead log"]["figures"] == {"objects": 1, "bytes": 1000, "of_dead": 0}
    world.clock.skip(2.0)
    checks = await examine(http)
    assert [checks[name]["verdict"] for name in ("sessions", "leases", "write-ahead log")] == ["warning"] * 3
    assert checks["leases"]["figures"]["of_dead"] == 2
    assert checks["write-ahead log"]["figures"]["of_dead"] == 1
    world.clock.skip(4 * world.settings.lease.ttl_s)
    assert (await examine(http))["sessions"]["verdict"] == "failure"


async def test_objects_that_should_be_gone_are_reported(world: World, broker: Broker, http: httpx.AsyncClient) -> None:
    await produce(broker, batch(b"a"))
    await world.stop(broker, world.run(broker))
    await broker.delete_topic(await broker.topic("orders"))
    await open_session(world, life_s=1000.0)
    await world.sqlite.end_session(STRANGER)
    await world.bucket.put_new(segment_key(STRANGER, 7), [b"nobody knows me"])
    checks = await examine(http)
    assert (checks["deletions"]["verdict"], checks["orphans"]["verdict"]) == ("ok", "ok")
    assert checks["orphans"]["figures"]["orphans"] == 1
    settings = world.settings.retention
    world.clock.skip(settings.orphan_age_s + settings.grace_s + 3 * settings.sweep_s)
    await settle()
    checks = await examine(http)
    assert (checks["deletions"]["verdict"], checks["deletions"]["figures"]["overdue"]) == ("warning", 1)
    assert (checks["orphans"]["verdict"], checks["orphans"]["figures"]["overdue"]) == ("warning", 1)
    assert segment_key(STRANGER, 7) in checks["orphans"]["text"]


async def test_objects_of_sessions_that_the_database_does_not_know_are_reported_with_what_to_do(
    world: World, broker: Broker, http: httpx.AsyncClient
) -> None:
    await world.bucket.put_new(segment_key(STRANGER, 7), [b"nobody knows me"])
    result = (await examine(http))["orphans"]
    assert (result["verdict"], result["figures"]["unknown"]) == ("warning", 1)
    assert segment_key(STRANGER, 7) in result["text"]
    assert "streamhouse recover" in result["text"]


async def test_an_object_store_that_was_emptied_or_changed_below_the_agent_is_reported(
    world: World, broker: Broker, http: httpx.AsyncClient
) -> None:
    reported = (await examine(http))["identity"]
    limits_s = world.settings.cluster.generation_s + world.settings.lease.renew_s
    assert (reported["verdict"], reported["figures"]["unnoticed_commits_s"]) == ("ok", limits_s)
    await world.bucket.delete(CLUSTER_KEY)
    result = (await examine(http))["identity"]
    assert result["verdict"] == "failure"
    assert "it was emptied, or is another one" in result["text"]
    await world.bucket.put_new(CLUSTER_KEY, [b"somebody else's"])
    assert "belong to different clusters" in (await examine(http))["identity"]["text"]


@pytest.mark.parametrize(("open_for_s", "verdict"), [(30, "ok"), (90, "warning")])
async def test_a_transaction_that_holds_readers_back_for_long_is_reported(
    world: World, broker: Broker, http: httpx.AsyncClient, open_for_s: float, verdict: str
) -> None:
    assert (await examine(http, local="1"))["open transactions"]["figures"] == {"partitions": 0, "offsets": 0}
    alice = await Producer(broker).init(timeout_ms=600_000)
    await alice.send(b"x", b"y")
    world.clock.skip(open_for_s)
    check = (await examine(http, local="1"))["open transactions"]
    assert (check["verdict"], check["figures"]) == (
        verdict,
        {"partitions": 1, "offsets": 2, "longest_s": open_for_s},
    )
    assert "orders-0, 2 offsets, by alice" in check["text"]
    assert ("streamhouse transactions abort" in check["text"]) == (verdict == "warning")


@pytest.mark.parametrize(("late_s", "verdict"), [(20, "ok"), (100, "warning"), (400, "failure")])
@pytest.mark.parametrize("decided", [False, True])
async def test_transactions_that_nobody_ends_are_reported(
    world: World, broker: Broker, http: httpx.AsyncClient, late_s: float, verdict: str, decided: bool
) -> None:
    alice = await Producer(broker).init(timeout_ms=10_000)
    await alice.send(b"x")
    if decided:
        await world.sqlite.end_transaction(alice.call, commit=True, bump=False, fresh_id=-1)
    world.clock.skip(late_s + (0 if decided else 10))
    check = (await examine(http))["transactions"]
    assert (check["verdict"], check["figures"]["late"]) == (verdict, 0 if verdict == "ok" else 1)
    assert ("'alice'" in check["text"]) == (verdict != "ok")
