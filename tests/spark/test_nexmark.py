"""Nexmark: what the streams write is what a batch of the same SQL says of the same topics."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from examples.nexmark import generate as generator
from streamhouse.client.sync import SyncClient
from streamhouse.spark.connectors import ReadContext
from streamhouse.spark.pipelines.query_builder import PipelineBuilder
from streamhouse.spark.pipelines.runner_protocol import PipelineJob, pipeline_job
from streamhouse.spark.query.catalog import Catalog
from streamhouse.spark.query.resolver import resolve
from streamhouse.sql.parser import parse
from streamhouse.sql.statements import CreatePipeline, CreateTable, CreateView
from tests.support.agent import LiveAgent

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FOLDER = Path(__file__).parents[2] / "examples/nexmark"
EVENTS, SPACING_MS = 3000, 20.0
STREAM = re.compile(r"STREAM\((\w+)\)")
WATERMARK = re.compile(r" WATERMARK date_time DELAY OF INTERVAL 4 SECONDS")
QUICK = ("q4_final", "q4")
"""The others run nightly; each is bound with every change."""
BELOW = {"nexmark_q4": "nexmark_q4_final", "nexmark_q6": "nexmark_q6_final"}
"""Views of views: computed when what they read is there."""
NAMES = sorted(
    each.name
    for file in FOLDER.glob("q*.sql")
    for each in parse(file.read_text())
    if isinstance(each, CreatePipeline | CreateView)
)


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAgent]:
    """An agent whose leases outlast a slow machine."""
    with LiveAgent(tmp_path_factory.mktemp("nexmark") / "data", "--set", "pipelines.ttl_s=1h") as running:
        yield running


@pytest.fixture(scope="module")
def http(keeper: LiveAgent) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{keeper.http}", trust_env=False, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def produced(keeper: LiveAgent) -> None:
    events = [*generator.events(EVENTS, spacing_ms=SPACING_MS), *generator.closing(EVENTS, spacing_ms=SPACING_MS)]
    with SyncClient(keeper.http) as client:
        for kind, topic in generator.TOPICS.items():
            client.topics.create(topic, partitions=2)
            with client.producer(topic) as producer:
                for event in (event for event in events if event.kind == kind):
                    producer.enqueue(event.row, key=event.key)


@pytest.fixture(scope="module")
def statements(http: httpx.Client) -> Mapping[str, CreatePipeline | CreateView]:
    """The queries, with their tables and definitions told to the agent."""
    results: dict[str, CreatePipeline | CreateView] = {}
    for file in sorted(FOLDER.glob("*.sql")):
        for each in parse(file.read_text()):
            if isinstance(each, CreateTable):
                columns = [{"name": column.name, "type": column.type} for column in each.table.columns or ()]
                http.put(f"/v1/tables/{each.name}", json=_table(each, columns)).raise_for_status()
            elif isinstance(each, CreatePipeline | CreateView):
                results[each.name] = each
                http.put(f"/v1/pipelines/{each.name}", json=_pipeline(each)).raise_for_status()
    return results


def _table(each: CreateTable, columns: list[dict[str, str]]) -> dict[str, Any]:
    table = each.table
    result = {"connector": table.connector.value, "columns": columns, "key": list(table.key)}
    return {**result, "options": dict(table.options), "text": each.text}


def _pipeline(each: CreatePipeline | CreateView) -> dict[str, Any]:
    is_view = isinstance(each, CreateView)
    return {
        "kind": "view" if is_view else "sql",
        "text": each.text,
        "options": {**each.options, "trigger": "available now"},
        "target": each.name if isinstance(each, CreateView) else each.target,
        "key": list(each.key) if isinstance(each, CreateView) else [],
    }


class Runs:
    """Queries that have run to the end of their topics, each when it is asked for first."""

    def __init__(self, builder: PipelineBuilder, jobs: Mapping[str, PipelineJob]) -> None:
        self._builder, self._jobs = builder, jobs
        self._over: set[str] = set()

    def finish(self, name: str) -> None:
        if name in BELOW:
            self.finish(BELOW[name])
        if name not in self._over:
            assert self._builder.build(self._jobs[name]).main.awaitTermination(300)
            self._over.add(name)


@pytest.fixture(scope="module")
def runs(
    spark: SparkSession,
    keeper: LiveAgent,
    http: httpx.Client,
    produced: None,
    statements: Mapping[str, CreatePipeline | CreateView],
    tmp_path_factory: pytest.TempPathFactory,
) -> Runs:
    response = http.post("/v1/supervisors/me/heartbeat", json={"host": "here", "slots": 100, "running": []}).json()
    jobs = {
        each["pipeline"]["name"]: pipeline_job(each["pipeline"], epoch=each["epoch"]) for each in response["assigned"]
    }
    assert jobs.keys() == statements.keys()
    return Runs(
        PipelineBuilder(spark, agents=keeper.http, checkpoints=str(tmp_path_factory.mktemp("checkpoints"))), jobs
    )


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name.removeprefix("nexmark_") in QUICK else [pytest.mark.slow]) for name in NAMES],
)
def test_a_stream_and_a_batch_say_the_same(
    spark: SparkSession,
    keeper: LiveAgent,
    runs: Runs,
    statements: Mapping[str, CreatePipeline | CreateView],
    name: str,
) -> None:
    runs.finish(name)
    ran, reading = Catalog(keeper.http), ReadContext(agents=keeper.http)
    select = statements[name].select
    # Where windows are awaited, that of the closing events stays open.
    far = (generator.BEGIN + timedelta(milliseconds=EVENTS * SPACING_MS) + generator.FAR / 2).isoformat()
    only = f"(SELECT * FROM \\1 WHERE date_time < TIMESTAMP '{far}')" if "WATERMARK" in select else r"\1"
    batch = resolve(spark, STREAM.sub(only, WATERMARK.sub("", select)), ran, reading).frame
    expected = lines(batch)
    assert lines(resolve(spark, f"SELECT {', '.join(batch.columns)} FROM {name}", ran, reading).frame) == expected
    assert expected


def lines(frame: DataFrame) -> Counter[str]:
    rows = frame.select(f.to_json(f.struct("*"), {"ignoreNullFields": "false"})).collect()
    return Counter(row[0] for row in rows)


def test_every_query_of_topics_is_bound(
    spark: SparkSession, keeper: LiveAgent, produced: None, statements: Mapping[str, CreatePipeline | CreateView]
) -> None:
    ran, reading = Catalog(keeper.http), ReadContext(agents=keeper.http)
    for name, statement in statements.items():
        if name in BELOW:  # a view's columns are known when it has run
            continue
        assert resolve(spark, STREAM.sub(r"\1", WATERMARK.sub("", statement.select)), ran, reading).frame.columns, name
