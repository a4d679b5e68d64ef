"""Transactions over HTTP: listed with filters and page by page, described, and aborted with their producers fenced."""

from typing import Any
from urllib.parse import quote

import httpx
import pytest

from streamhouse.broker.broker import Broker
from streamhouse.config import TransactionSettings
from streamhouse.errors import ProducerFenced
from streamhouse.model.names import TopicPartition
from tests.broker.support import World
from tests.broker.transactions.support import TIMEOUT_MS, Producer

HERE, THERE = TopicPartition("orders", 0), TopicPartition("orders", 2)


@pytest.fixture
async def broker(world: World) -> Broker:
    """One that runs, so that what is decided is ended; with a topic of three partitions."""
    broker = await world.start()
    await broker.create_topic("orders", partitions=3, overrides={})
    world.run(broker)
    await world.clock.advance(0)
    return broker


@pytest.fixture
async def alice(broker: Broker) -> Producer:
    """With something open in two partitions."""
    alice = await Producer(broker).init()
    await alice.send(b"a", name=THERE)
    await alice.send(b"b", name=HERE)
    return alice


async def listed(http: httpx.AsyncClient, **params: Any) -> list[str]:
    response = await http.get("/v1/transactions", params=params)
    assert response.status_code == 200, response.text
    return [each["transactional_id"] for each in response.json()["transactions"]]


async def stable(http: httpx.AsyncClient) -> tuple[int, int]:
    (first, *_) = (await http.get("/v1/partitions", params={"topic": "orders", "local": "1"})).json()["partitions"]
    return first["last_stable_offset"], first["high_watermark"]


async def test_an_open_transaction_is_reported_with_its_partitions(
    world: World, alice: Producer, http: httpx.AsyncClient
) -> None:
    world.clock.skip(7)
    response = (await http.get("/v1/transactions/alice")).json()
    assert response.pop("started_at_ms") == response.pop("changed_at_ms") == world.clock.now_ms() - 7000
    assert response == {
        "transactional_id": "alice",
        "producer_id": alice.identity.producer_id,
        "epoch": alice.identity.epoch,
        "state": "Ongoing",
        "timeout_ms": TIMEOUT_MS,
        "open_for_ms": 7000,
        "partitions": [{"topic": "orders", "partition": 0}, {"topic": "orders", "partition": 2}],
    }
    await alice.end(commit=True)
    response = (await http.get("/v1/transactions/alice")).json()
    assert (response["state"], response["started_at_ms"], response["open_for_ms"], response["partitions"]) == (
        "CompleteCommit",
        None,
        None,
        [],
    )


async def test_they_are_filtered_by_state_and_by_how_long_they_are_open(
    world: World, broker: Broker, alice: Producer, http: httpx.AsyncClient
) -> None:
    await Producer(broker, "bob").init()
    world.clock.skip(5)
    await (await Producer(broker, "carol").init()).send(b"c", name=HERE)
    world.clock.skip(1)
    assert await listed(http) == ["alice", "bob", "carol"]
    assert await listed(http, state="Ongoing") == ["alice", "carol"]
    assert await listed(http, state="Empty") == ["bob"]
    assert await listed(http, open_for_ms=0) == ["alice", "carol"]
    assert await listed(http, open_for_ms=3000) == ["alice"]
    assert await listed(http, state="Empty", open_for_ms=0) == []


async def test_pages_hold_everything_once(broker: Broker, http: httpx.AsyncClient) -> None:
    names = [f"p-{number}" for number in range(5)]
    for name in names:
        await Producer(broker, name).init()
    results: list[str] = []
    params: dict[str, Any] = {"limit": 2}
    for _ in range(3):
        response = (await http.get("/v1/transactions", params=params)).json()
        results += [each["transactional_id"] for each in response["transactions"]]
        params["cursor"] = response["cursor"]
    assert (results, params["cursor"]) == (names, None)


async def test_a_filter_that_lets_little_through_is_answered_in_steps(
    broker: Broker, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No answer looks at more than `max_listed`, and none is lost for it."""
    for number in range(9):
        producer = await Producer(broker, f"p-{number}").init()
        if number == 7:
            await producer.send(b"x", name=HERE)
    monkeypatch.setattr("streamhouse.broker.transactions.coordinator.PAGE", 2)
    monkeypatch.setattr(broker.transactions, "_settings", TransactionSettings(max_listed=4))
    results: list[list[str]] = []
    params: dict[str, Any] = {"state": "Ongoing"}
    while params.get("cursor", "") is not None:
        response = (await http.get("/v1/transactions", params=params)).json()
        results.append([each["transactional_id"] for each in response["transactions"]])
        params["cursor"] = response["cursor"]
    assert results == [[], ["p-7"], []]


async def test_an_abort_fences_the_producer_and_lets_readers_go_on(alice: Producer, http: httpx.AsyncClient) -> None:
    assert await stable(http) == (0, 1)
    done = (await http.post("/v1/transactions/alice/abort", json={})).json()
    assert (done["aborted"], done["before"]["state"], len(done["before"]["partitions"])) == (True, "Ongoing", 2)
    assert (done["after"]["state"], done["after"]["epoch"] > done["before"]["epoch"]) == ("Empty", True)
    assert await stable(http) == (2, 2)
    with pytest.raises(ProducerFenced):
        await alice.end(commit=True)
    again = (await http.post("/v1/transactions/alice/abort", json={})).json()
    assert (again["aborted"], again["before"]["state"]) == (False, "Empty")


async def test_what_is_committed_stays_so(world: World, alice: Producer, http: httpx.AsyncClient) -> None:
    await world.sqlite.end_transaction(alice.call, commit=True, bump=False, fresh_id=-1)
    done = (await http.post("/v1/transactions/alice/abort", json={})).json()
    assert (done["aborted"], done["before"]["state"]) == (False, "PrepareCommit")
    (log,) = (
        [each for each in alice.broker.agent_session.logs if each.name == HERE] if alice.broker.agent_session else []
    )
    assert (log.last_stable_offset, log.has_aborted) == (2, False)


async def test_a_timeout_that_is_too_long_by_now_is_no_obstacle(
    broker: Broker, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await Producer(broker).init(timeout_ms=600_000)).send(b"x", name=HERE)
    monkeypatch.setattr(broker.transactions, "_settings", TransactionSettings(max_timeout_s=60))
    done = await http.post("/v1/transactions/alice/abort", json={})
    assert (done.status_code, done.json()["after"]["timeout_ms"]) == (200, 60_000)


async def test_ids_may_have_any_characters(broker: Broker, http: httpx.AsyncClient) -> None:
    name = "a/b ü?#%&="
    await Producer(broker, name).init()
    path = f"/v1/transactions/{quote(name, safe='')}"
    assert (await http.get(path)).json()["transactional_id"] == name
    assert (await http.post(f"{path}/abort", json={})).json()["after"]["transactional_id"] == name
    assert await listed(http, cursor="a/b") == [name]


async def test_what_is_not_there_is_not_found(http: httpx.AsyncClient) -> None:
    for response in (
        await http.get("/v1/transactions/never"),
        await http.post("/v1/transactions/never/abort", json={}),
    ):
        assert (response.status_code, response.json()["title"]) == (404, "TransactionalIdNotFound")


async def test_nothing_is_aborted_by_a_form_of_another_site(alice: Producer, http: httpx.AsyncClient) -> None:
    assert (await http.post("/v1/transactions/alice/abort")).status_code in (400, 415)
    assert (await http.post("/v1/transactions/alice/abort", data={"a": "b"})).status_code == 415
    await alice.end(commit=True)


@pytest.mark.parametrize("params", [{"state": "Open"}, {"open_for_ms": "-2"}, {"limit": "0"}, {"what": "1"}])
async def test_a_request_that_makes_no_sense_is_refused(http: httpx.AsyncClient, params: dict[str, str]) -> None:
    assert (await http.get("/v1/transactions", params=params)).status_code == 400
