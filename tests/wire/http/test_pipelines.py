"""Tables, pipelines and supervisors over HTTP."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from streamhouse.broker.broker import Broker
from streamhouse.broker.metrics import BrokerMetrics
from streamhouse.config import PipelineSettings, TableSettings
from tests.broker.conftest import MakeWorld
from tests.broker.support import World
from tests.wire.http.conftest import serving

REVENUE: dict[str, Any] = {
    "kind": "sql",
    "text": "CREATE PIPELINE revenue AS INSERT INTO totals SELECT id FROM STREAM(orders)",
    "options": {"trigger": "1 second"},
    "target": "totals",
    "key": ["id"],
    "columns": [{"name": "id", "type": "BIGINT"}],
    "shape": {"streams": ["orders"], "state": [], "target": "totals"},
}
VIEW: dict[str, Any] = {**REVENUE, "kind": "view", "target": "", "shape": None}


async def put(http: httpx.AsyncClient, name: str = "revenue", **other: Any) -> dict[str, Any]:
    answer = await http.put(f"/v1/pipelines/{name}", json={**REVENUE, **other})
    assert answer.status_code == 200, answer.text
    response: dict[str, Any] = answer.json()
    return response


async def beat(http: httpx.AsyncClient, who: str = "anna", *running: dict[str, Any]) -> dict[str, Any]:
    body = {"host": "h", "slots": 4, "running": running}
    response = await http.post(f"/v1/supervisors/{who}/heartbeat", json=body)
    assert response.status_code == 200, response.text
    assert response.json()["ttl_s"] == 15
    return {each["pipeline"]["name"]: each for each in response.json()["assigned"]}


# --- tables


async def test_topics_are_tables_and_definitions_and_views_beside_them(http: httpx.AsyncClient) -> None:
    await http.post("/v1/topics", json={"name": "clicks"})
    body = {
        "connector": "topic",
        "columns": [{"name": "id", "type": "INT"}],
        "key": ["id"],
        "options": {"format": "json"},
    }
    response = await http.put("/v1/tables/orders", json=body)
    expected = {"name": "orders", **body, "text": None}
    assert response.json() == expected
    await http.put("/v1/pipelines/sums", json=VIEW)
    tables = (await http.get("/v1/tables")).json()["tables"]
    assert [(each["name"], each["connector"]) for each in tables] == [
        ("orders", "topic"),
        ("clicks", "topic"),
        ("sums", "view"),
    ]
    assert (await http.get("/v1/tables/orders")).json() == expected
    assert (await http.get("/v1/tables/clicks")).json()["columns"] is None
    assert (await http.get("/v1/tables/sums")).json()["key"] == ["id"]
    assert (await http.delete("/v1/tables/orders")).status_code == 204
    assert (await http.get("/v1/tables/orders")).json()["columns"] is None  # the topic is still there
    assert (await http.delete("/v1/tables/orders")).status_code == 404
    assert (await http.get("/v1/tables/none")).status_code == 404
    assert (await http.get("/v1/tables/__consumer_offsets")).status_code == 404


async def test_one_name_means_one_thing(http: httpx.AsyncClient) -> None:
    await http.put("/v1/pipelines/sums", json=VIEW)
    assert (await http.put("/v1/tables/sums", json={"connector": "console"})).status_code == 409
    assert (await http.put("/v1/pipelines/orders", json=VIEW)).status_code == 409
    await http.put("/v1/tables/out", json={"connector": "console"})
    assert (await http.put("/v1/pipelines/out", json=VIEW)).status_code == 409


@pytest.mark.parametrize(
    "reported",
    [
        {"connector": "view"},
        {"connector": "topic", "columns": [{"name": "a", "type": "INT"}], "key": ["b"]},
        {"connector": "topic", "columns": [{"name": "a", "type": "INT"}, {"name": "a", "type": "INT"}]},
        {"connector": "topic", "text": "x" * 300_000},
    ],
)
async def test_a_definition_that_contradicts_itself_is_refused(
    http: httpx.AsyncClient, reported: dict[str, Any]
) -> None:
    assert (await http.put("/v1/tables/a", json=reported)).status_code == 422


# --- what reaches the machines of SQL workers and supervisors


async def test_pipelines_in_python_are_refused_with_the_setting_that_allows_them(http: httpx.AsyncClient) -> None:
    response = await http.put("/v1/pipelines/code", json={**REVENUE, "kind": "python", "text": "import os"})
    assert response.status_code == 422
    assert "pipelines.allow_python=true" in response.json()["detail"]
    assert (await http.get("/v1/pipelines/code")).status_code == 404


async def test_tables_of_files_are_refused_where_no_folder_is_allowed(http: httpx.AsyncClient) -> None:
    response = await http.put("/v1/tables/secrets", json={"connector": "files", "options": {"path": "/etc"}})
    assert response.status_code == 422
    assert "allowed=nowhere" in response.json()["detail"]
    assert "tables.files_under" in response.json()["detail"]
    assert (await http.get("/v1/tables/secrets")).status_code == 404


async def test_what_the_operator_allowed_is_taken(make_world: MakeWorld) -> None:
    world = await make_world(
        pipelines=PipelineSettings(allow_python=True), tables=TableSettings(files_under="/data/in, s3a://lake/raw")
    )
    async with serving(await world.start()) as http:
        await put(http, "code", kind="python", text="import os")
        for path, status in (("/data/in/orders", 200), ("s3a://lake/raw/x", 200), ("/data/other", 422), ("/data", 422)):
            response = await http.put("/v1/tables/files", json={"connector": "files", "options": {"path": path}})
            assert response.status_code == status, path


# --- lake tables: files are as they are


@pytest.fixture
async def lake(make_world: MakeWorld) -> AsyncIterator[httpx.AsyncClient]:
    world = await make_world(tables=TableSettings(files_under="/lake"))
    async with serving(await world.start()) as http:
        yield http


LAKE: dict[str, Any] = {
    "connector": "iceberg",
    "columns": [{"name": "id", "type": "BIGINT"}, {"name": "ts", "type": "TIMESTAMP"}],
    "key": ["id"],
    "options": {"location": "/lake/orders", "mode": "upsert", "partition_by": "day(ts)"},
}


@pytest.mark.parametrize(
    ("changed", "reported"),
    [
        ({"connector": "delta"}, "format is iceberg, not delta"),
        ({"connector": "topic", "options": {}}, "format is iceberg, not topic"),
        ({"key": ["ts"]}, "key is id, not ts"),
        ({"options": {**LAKE["options"], "mode": "append"}}, "mode is upsert, not append"),
        ({"options": {**LAKE["options"], "location": "/lake/other"}}, "location is /lake/orders, not /lake/other"),
        ({"options": {**LAKE["options"], "partition_by": "hour(ts)"}}, "partition_by is day(ts), not hour(ts)"),
        ({"options": {**LAKE["options"], "partition_by": "day("}}, "partition_by is day(ts), not day("),
        ({"options": {**LAKE["options"], "catalog": "sales"}}, "catalog is none, not sales"),
        ({"options": {**LAKE["options"], "table": "a.b"}}, "table is none, not a.b"),
    ],
)
async def test_a_lake_table_that_would_be_another_is_refused_and_stays_as_it_is(
    lake: httpx.AsyncClient, changed: dict[str, Any], reported: str
) -> None:
    kept = (await lake.put("/v1/tables/lake", json=LAKE)).json()
    refused = await lake.put("/v1/tables/lake", json={**LAKE, **changed})
    assert (refused.status_code, refused.json()["title"]) == (409, "AnotherTable")
    assert f"a different table of this name exists: {reported}; table=lake" in refused.json()["detail"]
    assert (await lake.get("/v1/tables/lake")).json() == kept
    await lake.delete("/v1/tables/lake")
    assert (await lake.put("/v1/tables/lake", json={**LAKE, **changed})).status_code == 200


async def test_a_lake_table_may_have_other_columns_file_sizes_and_words_for_the_same(lake: httpx.AsyncClient) -> None:
    await lake.put("/v1/tables/lake", json=LAKE)
    options = {"location": "file:///lake/orders/", "mode": "UPSERT", "partition_by": "days(ts)", "file_size": "1MiB"}
    changed = {**LAKE, "columns": [*LAKE["columns"], {"name": "paid", "type": "INT"}], "options": options}
    assert (await lake.put("/v1/tables/lake", json=changed)).status_code == 200


async def test_a_lake_tables_rows_are_distinguished_by_one_key_wherever_it_is_named(lake: httpx.AsyncClient) -> None:
    without = {**LAKE, "key": []}
    await lake.put("/v1/tables/lake", json=without)
    await put(lake, target="lake", key=["id"])
    assert (await lake.put("/v1/tables/lake", json=LAKE)).status_code == 200  # the pipeline's, said once more
    assert (await lake.put("/v1/tables/lake", json=without)).status_code == 200
    refused = await lake.put("/v1/pipelines/revenue", json={**REVENUE, "target": "lake", "key": ["ts"], "fresh": True})
    assert (refused.status_code, refused.json()["title"]) == (409, "AnotherTable")
    assert "key is id, not ts" in refused.json()["detail"]
    assert (await put(lake, target="lake", key=["id"]))["outcome"] == "unchanged"
    await put(lake, target="totals", key=["ts"], fresh=True)  # what isn't there yet may be anything


# --- lake tables: where they may be


@pytest.mark.parametrize("connector", ["iceberg", "delta", "parquet"])
@pytest.mark.parametrize(
    "location",
    [
        "/etc",
        "/srv/data",
        "/lake",
        "/lake/../etc",
        "/srv/lake/../etc",
        "file:///etc/x",
        "file:/etc/x",
        "file:///srv/lake/%2e%2e/%2e%2e/etc",
        "FILE:///etc/x",
        "file://elsewhere/srv/lake/x",
        "s3://bucket/x",
        "s3a://raw/x",
        "s3://raw@evil/x",
        "s3://raw/x?endpoint=http://169.254.169.254",
        "http://169.254.169.254/latest",
        "hdfs://namenode/x",
        "relative/x",
        "",
    ],
)
async def test_lake_tables_are_refused_where_the_operator_allowed_none(
    make_world: MakeWorld, connector: str, location: str
) -> None:
    world = await make_world(tables=TableSettings(files_under="/srv/lake, s3a://raw/in"))
    async with serving(await world.start()) as http:
        body = {"connector": connector, "options": {"location": location}}
        response = await http.put("/v1/tables/stolen", json=body)
        assert response.status_code == 422
        assert "allowed=/srv/lake, s3://raw/in" in response.json()["detail"]
        assert "tables.files_under" in response.json()["detail"]
        assert (await http.get("/v1/tables/stolen")).status_code == 404


async def test_lake_tables_are_taken_where_the_operator_allowed_them(make_world: MakeWorld) -> None:
    world = await make_world(tables=TableSettings(files_under="/srv/lake, s3a://raw/in"))
    async with serving(await world.start()) as http:
        for location in ("/srv/lake/orders", "file:///srv/lake/a%20b", "s3://raw/in/x"):
            body = {"connector": "delta", "options": {"location": location}}
            name = f"t{len(location)}"
            assert (await http.put(f"/v1/tables/{name}", json=body)).status_code == 200, location
        catalog = {"connector": "iceberg", "options": {"catalog": "sales", "table": "a.b"}}
        assert (await http.put("/v1/tables/cataloged", json=catalog)).status_code == 200


@pytest.mark.parametrize(
    "connection",
    ["postgresql://169.254.169.254/x", "host=evil sslkey=/etc/ssl/key", "", "warehouse?service=x", "../x", "a b"],
)
async def test_a_connection_is_a_name(http: httpx.AsyncClient, connection: str) -> None:
    body = {"connector": "postgresql", "options": {"connection": connection, "table": "t"}}
    response = await http.put("/v1/tables/a", json=body)
    assert response.status_code == 422
    assert "STREAMHOUSE_CONNECTION_WAREHOUSE" in response.json()["detail"]


@pytest.mark.parametrize(
    ("connector", "options"),
    [
        ("topic", {"agents": "evil:9092"}),
        ("console", {"path": "/etc"}),
        ("iceberg", {"catalog": "sales", "uri": "http://evil", "table": "a.b"}),
        ("iceberg", {"catalog": "http://evil", "table": "a.b"}),
        ("delta", {"LOCATION": "/etc"}),
        ("files", {"path": "/etc", "mode": "overwrite"}),
    ],
)
async def test_options_that_there_are_not_are_refused_with_those_that_there_are(
    http: httpx.AsyncClient, connector: str, options: dict[str, str]
) -> None:
    response = await http.put("/v1/tables/a", json={"connector": connector, "options": options})
    assert response.status_code == 422
    assert "do=" in response.json()["detail"]


async def test_a_pipeline_says_of_which_it_is_that_a_topics_columns_came(http: httpx.AsyncClient) -> None:
    body = {"connector": "topic", "columns": [{"name": "a", "type": "bigint"}], "options": {"pipeline": "copies"}}
    assert (await http.put("/v1/tables/a", json=body)).status_code == 200
    assert (await http.get("/v1/tables/a")).json()["options"] == {"pipeline": "copies"}
    assert (await http.put("/v1/tables/b", json={**body, "connector": "console"})).status_code == 422


async def test_a_views_columns_have_types_and_nothing_else(http: httpx.AsyncClient) -> None:
    columns = [{"name": "a", "type": "INT) || reflect('a', 'b') || ("}]
    response = await http.put("/v1/pipelines/v", json={**REVENUE, "kind": "view", "columns": columns})
    assert response.status_code == 422


@pytest.mark.parametrize("kind", ["INT, b STRING", "INT DEFAULT reflect('a', 'b')", "INT) || uuid() || (", "", "'x'"])
async def test_a_columns_type_is_one_type(http: httpx.AsyncClient, kind: str) -> None:
    body = {"connector": "topic", "columns": [{"name": "a", "type": kind}]}
    assert (await http.put("/v1/tables/a", json=body)).status_code == 422


@pytest.mark.parametrize(
    "kind",
    [
        "STRUCT<default: STRING, `a,b`: ARRAY<INT>>",
        "DECIMAL(9, 2)",
        "INTERVAL DAY TO SECOND",
        "string",
        "struct<a-b:int>",
    ],
)
async def test_a_type_of_many_parts_is_one_type(http: httpx.AsyncClient, kind: str) -> None:
    body = {"connector": "topic", "columns": [{"name": "a", "type": kind}]}
    assert (await http.put("/v1/tables/a", json=body)).status_code == 200


# --- pipelines


async def test_a_pipeline_is_created_looked_at_and_deleted(http: httpx.AsyncClient) -> None:
    response = await put(http, starting="latest")
    assert response["outcome"] == "created"
    result = response["pipeline"]
    assert {name: result[name] for name in REVENUE} == REVENUE
    assert (result["revision"], result["generation"], result["starting"], result["wish"]) == (1, 1, "latest", "run")
    assert (result["owner"], result["status"]["phase"]) == (None, "waiting")
    assert (await http.get("/v1/pipelines/revenue")).json() == result
    assert (await http.get("/v1/pipelines")).json() == {"pipelines": [result]}
    assert (await http.delete("/v1/pipelines/revenue")).status_code == 204
    assert (await http.delete("/v1/pipelines/revenue")).status_code == 404
    assert (await http.get("/v1/pipelines/revenue")).status_code == 404


async def test_the_same_definition_again_changes_nothing(http: httpx.AsyncClient) -> None:
    first = await put(http)
    assert await put(http) == {**first, "outcome": "unchanged"}
    unseen = await put(http, shape=None, columns=None)  # nobody has looked at it this time
    assert (unseen["outcome"], unseen["pipeline"]["shape"]) == ("unchanged", REVENUE["shape"])


async def test_the_versions_of_a_definition_are_listed_with_who_applied_them(make_world: MakeWorld) -> None:
    world = await make_world(pipelines=PipelineSettings(max_versions=2))
    async with serving(await world.start()) as http:
        await put(http)
        await http.post("/v1/pipelines/revenue/pause")
        await put(http, options={"trigger": "2 seconds"})
        await put(http, text=REVENUE["text"] + " WHERE id > 1")
        versions = (await http.get("/v1/pipelines/revenue/versions")).json()["versions"]
        assert [each["revision"] for each in versions] == [3, 2]
        newest = {name: versions[0][name] for name in ("kind", "text", "options", "target", "key", "applied_by")}
        assert newest == {
            **{name: REVENUE[name] for name in ("kind", "options", "target", "key")},
            "text": REVENUE["text"] + " WHERE id > 1",
            "applied_by": "User:ANONYMOUS",
        }
        assert versions[1]["options"] == {"trigger": "2 seconds"}
        assert (await http.get("/v1/pipelines/none/versions")).status_code == 404


async def test_a_change_keeps_its_place_or_is_refused_or_begins_anew(http: httpx.AsyncClient) -> None:
    first = (await put(http))["pipeline"]
    changed = (await put(http, text="CREATE PIPELINE other"))["pipeline"]
    assert (changed["revision"], changed["generation"], changed["query_id"]) == (2, 1, first["query_id"])
    other = {"streams": ["clicks"], "state": [], "target": "totals"}
    refused = await http.put("/v1/pipelines/revenue", json={**REVENUE, "text": "third", "shape": other})
    assert refused.status_code == 409
    assert refused.json()["title"] == "PlaceLost"
    assert "it reads other streams; was=orders is=clicks" in refused.json()["detail"]
    assert "do=apply it with a new start, such as --from" in refused.json()["detail"]
    anew = (await put(http, text="third", shape=other, fresh=True, starting="earliest"))["pipeline"]
    assert (anew["revision"], anew["generation"], anew["starting"]) == (3, 2, "earliest")
    assert anew["query_id"] != first["query_id"]


async def test_pause_resume_and_restart(http: httpx.AsyncClient) -> None:
    first = (await put(http))["pipeline"]
    assert (await http.post("/v1/pipelines/revenue/pause")).json()["status"]["phase"] == "paused"
    assert (await http.post("/v1/pipelines/revenue/pause")).json()["wish"] == "pause"
    assert (await http.post("/v1/pipelines/revenue/resume")).json()["wish"] == "run"
    same = (await http.post("/v1/pipelines/revenue/restart", json={"from": None})).json()
    assert (same["revision"], same["generation"], same["query_id"]) == (2, 1, first["query_id"])
    for place in ("earliest", "2026-01-31T12:00:00Z", '{"orders": {"0": 12}}'):
        same = (await http.post("/v1/pipelines/revenue/restart", json={"from": place})).json()
        assert same["starting"] == place
    assert (same["revision"], same["generation"]) == (5, 4)
    assert (await http.post("/v1/pipelines/revenue/restart", json={"from": "yesterday"})).status_code == 422
    assert (await http.post("/v1/pipelines/none/restart", json={})).status_code == 404
    assert (await http.post("/v1/pipelines/none/pause")).status_code == 404


# --- supervisors


async def test_a_supervisor_runs_what_it_is_assigned_and_reports_the_status(http: httpx.AsyncClient) -> None:
    await put(http)
    assigned = (await beat(http))["revenue"]
    assert assigned["pipeline"]["text"] == REVENUE["text"]
    status = {"phase": "running", "revision": 1, "batch_id": 3, "lag_records": 12, "input_rate": 1.5}
    line = {"at_ms": 5, "level": "info", "text": "batch 3\0"}
    running = {"name": "revenue", "epoch": assigned["epoch"], "status": status, "events": [line]}
    assert list(await beat(http, "anna", running)) == ["revenue"]
    response = (await http.get("/v1/pipelines/revenue")).json()
    assert {name: response["status"][name] for name in status} == status
    assert response["owner"]["supervisor"] == "anna"
    assert response["owner"]["epoch"] == assigned["epoch"]
    events = await http.get("/v1/pipelines/revenue/events", params={"limit": 10})
    assert events.json() == {"events": [{**line, "text": "batch 3 "}]}
    assert (await http.get("/v1/pipelines/none/events")).status_code == 404
    [supervisor] = (await http.get("/v1/supervisors")).json()["supervisors"]
    assert (supervisor["id"], supervisor["slots"], supervisor["pipelines"]) == ("anna", 4, ["revenue"])
    assert (await http.delete("/v1/supervisors/anna")).status_code == 204
    assert (await http.get("/v1/supervisors")).json() == {"supervisors": [], "allow_python": False}
    assert (await http.get("/v1/pipelines/revenue")).json()["status"]["phase"] == "waiting"


async def test_a_failed_pipeline_that_is_restarted_is_given_with_another_revision(http: httpx.AsyncClient) -> None:
    await put(http)
    assigned = (await beat(http))["revenue"]
    failed = {"name": "revenue", "epoch": assigned["epoch"], "status": {"phase": "failed", "revision": 1, "error": "x"}}
    again = (await beat(http, "anna", failed))["revenue"]  # it stays with its owner
    assert again["pipeline"]["status"]["error"] == "x"
    await http.post("/v1/pipelines/revenue/restart", json={"from": None})
    result = (await beat(http, "anna", failed))["revenue"]
    assert (result["epoch"], result["pipeline"]["revision"]) == (assigned["epoch"], 2)
    assert result["pipeline"]["status"]["error"] is None


async def test_a_dead_supervisors_pipelines_go_to_another(http: httpx.AsyncClient, world: World) -> None:
    await put(http)
    before = (await beat(http, "anna"))["revenue"]["epoch"]
    assert await beat(http, "bert") == {}
    await world.clock.advance(15.0)
    assert (await beat(http, "bert"))["revenue"]["epoch"] > before


async def test_a_pipeline_that_is_made_again_has_its_lineage_and_a_later_epoch(http: httpx.AsyncClient) -> None:
    """Targets compare epochs of one lineage: a runner of the pipeline that was dropped is refused by them."""
    await put(http)
    await put(http, "other")
    before = await beat(http, "anna")
    assert before["revenue"]["lineage"] != before["other"]["lineage"]
    assert (await http.delete("/v1/pipelines/revenue")).status_code == 204
    await put(http)
    after = (await beat(http, "anna", {"name": "other", "epoch": before["other"]["epoch"]}))["revenue"]
    assert after["lineage"] == before["revenue"]["lineage"]
    assert after["epoch"] > before["revenue"]["epoch"]


async def test_a_heartbeat_names_a_pipeline_once(http: httpx.AsyncClient) -> None:
    twice = {"name": "revenue", "epoch": 1}
    response = await http.post("/v1/supervisors/a/heartbeat", json={"host": "h", "slots": 1, "running": [twice, twice]})
    assert response.status_code == 422


async def test_what_supervisors_say_here_is_on_the_metrics_page(broker: Broker, http: httpx.AsyncClient) -> None:
    await put(http)
    assigned = (await beat(http))["revenue"]
    status = {"phase": "backing off", "lag_records": 12, "restarts": 3, "late_rows": 5}
    await beat(http, "anna", {"name": "revenue", "epoch": assigned["epoch"], "status": status})
    registry = CollectorRegistry()
    registry.register(BrokerMetrics(broker))
    page = generate_latest(registry).decode()
    assert 'streamhouse_pipeline_phase{phase="backing off",pipeline="revenue"} 1.0' in page
    assert 'streamhouse_pipeline_lag_records{pipeline="revenue"} 12.0' in page
    assert 'streamhouse_pipeline_late_rows{pipeline="revenue"} 5.0' in page
    assert (await http.get("/v1/pipelines/revenue")).json()["status"]["late_rows"] == 5
    assert 'streamhouse_pipeline_batch_ms{pipeline="revenue"}' not in page
    await http.delete("/v1/supervisors/anna")
    assert 'pipeline="revenue"' not in generate_latest(registry).decode()
