"""Applying a changed file: what changes the result is refused with the choice, what doesn't goes on."""

import asyncio
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import SparkSession

from streamhouse.client.http import Http
from streamhouse.client.sync import SyncClient
from streamhouse.spark.agents.definition_applier import DefinitionApplier, Outcome, Validated, read_files, validated
from streamhouse.spark.query.catalog import Catalog
from streamhouse.spark.query.validation import validate
from streamhouse.spark.worker.query_executor import checked_view
from tests.support.agent import LiveAgent

pytestmark = pytest.mark.spark

TABLE = "CREATE TABLE orders (id BIGINT, amount BIGINT, country STRING) WITH (connector = 'topic');\n"
VIEW = "CREATE MATERIALIZED VIEW v KEY (id) AS SELECT id, amount FROM STREAM(orders) WHERE amount > 0;"
SUMS = "CREATE PIPELINE s AS INSERT INTO sums SELECT country, sum(amount) AS t FROM STREAM(orders) GROUP BY country;"
COPY = "CREATE PIPELINE c AS INSERT INTO copies SELECT id, amount FROM STREAM(orders) WHERE amount > 0;"
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAgent]:
    with LiveAgent(tmp_path_factory.mktemp("agent") / "data") as running, SyncClient(running.http) as client:
        client.topics.create("orders", partitions=1)
        yield running


class Files:
    def __init__(self, spark: SparkSession, agent: LiveAgent, folder: Path) -> None:
        self._spark, self._agent, self._folder = spark, agent, folder

    def apply(self, text: str, *, begin: str | None = None) -> dict[str, Outcome]:
        file = self._folder / f"{next(NUMBERS)}.sql"
        file.write_text(TABLE + text)
        return {outcome.name: outcome for outcome in asyncio.run(self._applied(file, begin))}

    async def _applied(self, path: Path, begin: str | None) -> list[Outcome]:
        files, problems = read_files([path])
        files, wrong = await validated(files, self._validate)
        assert (problems, wrong) == ([], [])
        async with Http(self._agent.http, timeout_s=30) as http:
            applier = DefinitionApplier(http, begin=begin)
            return [await applier.apply(change) for file in files for change in file.changes]

    async def _validate(self, text: str, python: Sequence[Mapping[str, Any]]) -> Validated:
        assert not python
        return [checked_view(each) for each in validate(self._spark, Catalog(self._agent.http), text)], {}

    def run(self, *names: str) -> None:
        """As if a supervisor had done a micro-batch of each."""
        with httpx.Client(base_url=f"http://{self._agent.http}", trust_env=False, timeout=30) as http:

            def beat(running: list[dict[str, Any]]) -> dict[str, int]:
                body = {"host": "here", "slots": 100, "running": running}
                response = http.post("/v1/supervisors/one/heartbeat", json=body).raise_for_status()
                return {each["pipeline"]["name"]: each["epoch"] for each in response.json()["assigned"]}

            epochs = beat([])
            beat([{"name": name, "epoch": epochs[name], "status": {"batch_id": 0}} for name in names])

    def generation(self, name: str) -> int:
        with SyncClient(self._agent.http) as client:
            return client.pipelines.get(name).generation


@pytest.fixture(scope="module")
def files(spark: SparkSession, agent: LiveAgent, tmp_path_factory: pytest.TempPathFactory) -> Files:
    made = Files(spark, agent, tmp_path_factory.mktemp("files"))
    made.apply("\n".join((VIEW, SUMS, COPY)))
    made.run("v", "s", "c")
    return made


def test_the_same_in_another_order_with_comments_and_other_names_goes_on(files: Files) -> None:
    same = files.apply("\n".join((COPY, SUMS, VIEW)))
    assert {same[name].outcome for name in ("v", "s", "c")} == {"unchanged"}
    renamed = VIEW.replace(
        "SELECT id, amount FROM STREAM(orders)", "/* all */ SELECT o.id, o.amount FROM STREAM(orders) o"
    )
    assert files.apply(renamed)["v"].outcome == "changed"
    assert files.apply(VIEW.replace(" KEY", " WITH (trigger = '5 seconds') KEY"))["v"].outcome == "changed"
    assert files.generation("v") == 1


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("v", VIEW.replace("> 0", "> 6"), "it is another query; was=Filter (amount > cast(0 as bigint))"),
        ("v", VIEW.replace("id, amount FROM", "id, amount * 2 AS amount FROM"), "it is another query"),
        ("s", SUMS.replace("GROUP", "WHERE amount > 6 GROUP"), "it is another query"),
    ],
)
def test_what_changes_the_result_is_refused_with_the_choice(files: Files, name: str, text: str, why: str) -> None:
    refused = files.apply(text)[name]
    assert refused.outcome == "refused"
    assert why in refused.why
    assert "do=apply it with a new start, such as --from earliest" in refused.why
    before = files.generation(name)
    assert files.apply(text, begin="earliest")[name].outcome == "changed"
    assert files.generation(name) == before + 1
    files.run(name)


def test_a_pipeline_without_state_goes_on(files: Files) -> None:
    assert files.apply(COPY.replace("> 0", "> 6"))["c"].outcome == "changed"
    assert files.generation("c") == 1


def test_a_view_that_never_ran_is_changed_without_a_word(files: Files) -> None:
    text = VIEW.replace("VIEW v", "VIEW unborn")
    files.apply(text)
    assert files.apply(text.replace("> 0", "> 6"))["unborn"].outcome == "changed"
    assert files.generation("unborn") == 2
