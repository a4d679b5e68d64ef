"""Topics over HTTP: made, listed, changed, deleted; and the cluster they are in."""

from typing import Any

import httpx
import pytest

from streamhouse.broker.broker import Broker


async def test_a_topic_is_made_where_its_address_says(http: httpx.AsyncClient) -> None:
    made = await http.post("/v1/topics", json={"name": "clicks", "partitions": 4, "settings": {"retention.ms": 1000}})
    assert (made.status_code, made.headers["location"]) == (201, "/v1/topics/clicks")
    assert (made.json()["partitions"], made.json()["settings"]) == (4, {"retention.ms": "1000"})
    response = (await http.get(made.headers["location"])).json()
    assert (response["name"], response["effective_settings"]["retention.ms"], response["bytes"]) == (
        "clicks",
        "1000",
        0,
    )
    assert response["effective_settings"]["cleanup.policy"] == "delete"


async def test_topics_are_listed_without_those_of_the_agents(broker: Broker, http: httpx.AsyncClient) -> None:
    await broker.catalog.create("__consumer_offsets", partitions=1)
    assert [each["name"] for each in (await http.get("/v1/topics")).json()["topics"]] == ["orders"]
    everything = (await http.get("/v1/topics", params={"internal": "true"})).json()["topics"]
    assert [(each["name"], each["internal"]) for each in everything] == [
        ("__consumer_offsets", True),
        ("orders", False),
    ]


async def test_a_dry_run_changes_nothing(http: httpx.AsyncClient) -> None:
    made = await http.post("/v1/topics", params={"dry_run": "1"}, json={"name": "clicks"})
    assert made.status_code == 200
    assert (await http.get("/v1/topics/clicks")).status_code == 404
    grown = await http.patch("/v1/topics/orders", params={"dry_run": "1"}, json={"partitions": 5})
    assert grown.json()["partitions"] == 5
    assert (await http.get("/v1/topics/orders")).json()["partitions"] == 3


async def test_a_topic_grows_and_its_settings_change_and_go_back(http: httpx.AsyncClient) -> None:
    change = {"partitions": 5, "settings": {"retention.ms": 60000, "preallocate": True}}
    changed = (await http.patch("/v1/topics/orders", json=change)).json()
    assert (changed["partitions"], changed["settings"]) == (5, {"retention.ms": "60000", "preallocate": "true"})
    undone = (await http.patch("/v1/topics/orders", json={"settings": {"retention.ms": None}})).json()
    assert undone["settings"] == {"preallocate": "true"}
    same = await http.patch("/v1/topics/orders", json={"partitions": 5})
    assert same.status_code == 200


async def test_a_topic_is_reported_as_another_agent_has_changed_it(broker: Broker, http: httpx.AsyncClient) -> None:
    await http.post("/v1/topics", json={"name": "orders", "partitions": 1})
    topic = await broker.topic("orders")
    store = broker._dependencies.metadata
    await store.alter_topic(topic.topic_id, expected={}, overrides={"retention.ms": "7000"})
    assert (await http.get("/v1/topics/orders")).json()["settings"] == {"retention.ms": "7000"}


async def test_a_deleted_topic_is_gone(http: httpx.AsyncClient) -> None:
    gone = await http.delete("/v1/topics/orders")
    assert (gone.status_code, gone.content) == (204, b"")
    for response in (await http.get("/v1/topics/orders"), await http.delete("/v1/topics/orders")):
        assert (response.status_code, response.json()["title"]) == (404, "UnknownTopic")


@pytest.mark.parametrize(
    ("body", "status", "path"),
    [
        ({"name": "orders"}, 409, None),
        ({"name": "a b"}, 400, "$.name"),
        ({"name": "x", "partitions": 0}, 400, "$.partitions"),
        ({"name": "x", "partitions": "3"}, 400, "$.partitions"),
        ({"name": "x", "size": 1}, 400, "$.size"),
        ({"partitions": 1}, 400, "$.name"),
        ({"name": "x", "settings": {"retention.ms": {}}}, 400, "$.settings[...]"),
        ({"name": "x", "settings": {"retention.msx": 1}}, 422, None),
        ({"name": "x", "partitions": 1_000_000}, 422, None),
        ({"name": ".."}, 422, None),
        ({"name": "__consumer_offsets"}, 422, None),
    ],
)
async def test_a_topic_that_can_not_be_is_refused_with_the_place(
    http: httpx.AsyncClient, body: dict[str, Any], status: int, path: str | None
) -> None:
    answer = await http.post("/v1/topics", json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    response = answer.json()
    assert (response["status"], bool(response["detail"])) == (status, True)
    assert [field_error["path"] for field_error in response.get("errors", [])] == ([path] if path else [])


async def test_partitions_of_a_topic_are_reported(http: httpx.AsyncClient) -> None:
    response = (await http.get("/v1/topics/orders/partitions")).json()["partitions"]
    assert [(each["topic"], each["partition"], each["log_start"]) for each in response] == [
        ("orders", number, 0) for number in range(3)
    ]


async def test_the_cluster_says_where_its_agents_are(http: httpx.AsyncClient) -> None:
    response = (await http.get("/v1/cluster")).json()
    assert (response["cluster_id"], response["node"], response["bootstrap"]) == ("cluster-1", 1, "127.0.0.1:9092")
    (agent,) = response["agents"]
    assert (agent["node"], agent["kafka"], agent["http"]) == (1, "127.0.0.1:9092", "127.0.0.1:8080")
