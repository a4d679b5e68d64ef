"""Pipelines on a real Spark, as a user sees them: applied, running, failing, paused, changed, restarted, stopped."""

import shutil
from collections.abc import Iterator

import pytest

from streamhouse.client.sync import SyncClient
from tests.live import LiveAgent
from tests.spark.pipelines.live import LiveSupervisor, Pipelines, owner_of, until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

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


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAgent]:
    if shutil.which("java") is None:
        pytest.skip("no Java here")
    with LiveAgent(tmp_path_factory.mktemp("agent") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def supervisor(agent: LiveAgent, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSupervisor]:
    with LiveSupervisor(agent, tmp_path_factory.mktemp("supervisor"), "first") as running:
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
    told = pipelines.apply(TABLES + COPIES + BROKEN)
    assert told.splitlines() == ["created table orders", "created pipeline copies", "created pipeline broken"]
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


def test_what_cannot_be_decoded_goes_to_the_dead_letters_with_the_reason(pipelines: Pipelines) -> None:
    until(lambda: len(list(pipelines.client.consume("copies.dead-letters", until="end"))) > 0, "a dead letter")
    (letter,) = pipelines.client.consume("copies.dead-letters", until="end")
    assert letter.text() == "this is no JSON"
    headers = {name: value.decode() for name, value in letter.headers if value is not None}
    assert headers.keys() == {"sh.pipeline", "sh.topic", "sh.partition", "sh.offset", "sh.error"}
    assert (headers["sh.pipeline"], headers["sh.topic"]) == ("copies", "orders")
    until(lambda: pipelines.of("copies")["status"]["dead_letters"] == 1, "it is counted")


def test_figures_tell_how_it_runs(pipelines: Pipelines) -> None:
    until(lambda: pipelines.of("copies")["status"]["lag_records"] == 0, "there is no lag")
    status = pipelines.of("copies")["status"]
    assert status["rows_in"] == 5
    assert status["batch_ms"] > 0
    assert "copies" in pipelines.run("list")


def test_the_target_is_a_table_with_the_outputs_columns(pipelines: Pipelines, agent: LiveAgent) -> None:
    from streamhouse.spark.sql.catalogue import Catalogue

    found = Catalogue(agent.http).find("copies")
    assert found is not None
    assert [(column.name, column.type) for column in found.columns or ()] == [("id", "bigint"), ("twice", "bigint")]


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
    assert "checkpoint was gone" in pipelines.run("logs", "copies")


def test_a_supervisor_that_is_told_to_stop_releases_everything(
    pipelines: Pipelines, agent: LiveAgent, supervisor: LiveSupervisor
) -> None:
    assert owner_of(agent, "names") is not None
    assert supervisor.stop() == 0
    assert owner_of(agent, "names") is None
    assert pipelines.phase("names") == "waiting"
    supervisor.start()  # it is ended by its fixture
