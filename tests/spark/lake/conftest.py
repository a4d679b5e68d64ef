"""Lake tables written micro-batch by micro-batch, and the engines that read them."""

import importlib
import json
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
import polars
import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import DataFrame, SparkSession

from streamhouse.model.table import Connector, Table
from streamhouse.spark.connectors import ReadContext, WriteContext, find
from streamhouse.spark.lake.connector import LakeBatchWriter
from streamhouse.spark.lake.table import LakeTable
from streamhouse.spark.lake.table_options import lake_options, open_table
from streamhouse.spark.pipelines.query_builder import PipelineBuilder
from streamhouse.spark.pipelines.runner_protocol import PipelineJob, pipeline_job
from tests.support.agent import LiveAgent

QUERY_ID = "11111111-2222-3333-4444-555555555555"
NEXT_QUERY_ID = "66666666-7777-8888-9999-000000000000"
SCANS = {
    Connector.ICEBERG: "iceberg_scan('{}')",
    Connector.DELTA: "delta_scan('{}')",
    Connector.PARQUET: "read_parquet('{}/**/*.parquet', union_by_name = true, hive_partitioning = true)",
}


@pytest.fixture(scope="session")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    """With the extensions that were installed with everything else: nothing is downloaded."""
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"})
    for name in ("avro", "iceberg", "delta"):
        package = Path(str(importlib.import_module(f"duckdb_extension_{name}").__file__)).parent
        (extension,) = package.glob("extensions/*/*.duckdb_extension")
        connection.execute(f"LOAD '{extension}'")
    yield connection
    connection.close()


@dataclass
class Written:
    """A table that is written by a query, and may be written anew by the same one, as after a kill."""

    spark: SparkSession
    table: Table
    checkpoint: str
    epoch: int = 1
    query_id: str = QUERY_ID
    lake: LakeTable = field(init=False)
    step: LakeBatchWriter = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    @property
    def location(self) -> str:
        return self.table.options["location"]

    def restart(self) -> None:
        options = lake_options(self.table)
        self.lake = open_table(options)
        self.step = LakeBatchWriter(lake=self.lake, options=options, writing=self.writing())

    def writing(self) -> WriteContext:
        return WriteContext(
            agents="127.0.0.1:1",
            pipeline="p",
            epoch=self.epoch,
            query_id=self.query_id,
            checkpoint=self.checkpoint,
            lineage="p@1",
        )

    def take_over(self, columns: str) -> "Written":
        """What another owner of the pipeline does before its first micro-batch."""
        other = replace(self, epoch=self.epoch + 1)
        other.step.take_over(self.spark.createDataFrame([], columns))
        return other

    def begin_anew(self, columns: str) -> "Written":
        """What the owner of the pipeline's next generation does, which has another query."""
        return replace(self, query_id=NEXT_QUERY_ID).take_over(columns)

    def write(self, batch_id: int, columns: str, *rows: tuple[Any, ...]) -> None:
        self.step.write(self.spark.createDataFrame(list(rows), columns), batch_id)

    def read(self) -> DataFrame:
        return find(self.table.connector).read(self.spark, self.table, ReadContext(agents="127.0.0.1:1"))


Make = Callable[..., Written]


@pytest.fixture
def make(spark: SparkSession, tmp_path: Path) -> Make:
    def made(connector: Connector, *key: str, location: str = "", **options: str) -> Written:
        place = location or str(tmp_path / "lake" / connector.value)
        given = {"location": place, "mode": "upsert" if key else "append", **options}
        table = Table(name="orders", connector=connector, key=key, options=given)
        return Written(spark, table, str(tmp_path / "checkpoint"))

    return made


@dataclass(frozen=True)
class Engines:
    """What each engine says to the same question."""

    duck: duckdb.DuckDBPyConnection

    def duckdb(self, written: Written, question: str) -> list[Any]:
        scan = SCANS[written.table.connector].format(written.location)
        return list(self.duck.execute(f"SELECT {question} FROM {scan}").fetchone() or ())

    def polars(self, written: Written) -> polars.LazyFrame:
        if written.table.connector is Connector.ICEBERG:
            return polars.scan_iceberg(StaticTable.from_metadata(written.location))
        if written.table.connector is Connector.DELTA:
            return polars.scan_delta(written.location)
        return polars.scan_parquet(f"{written.location}/**/*.parquet", missing_columns="insert", hive_partitioning=True)

    def sums(self, written: Written) -> dict[str, tuple[int, int, int]]:
        """Rows, the sum of `amount`, and how many have a `country`, by engine."""
        frame = self.polars(written)
        result = frame.select(
            polars.len().alias("rows"), polars.col("amount").sum(), polars.col("country").count()
        ).collect()
        said = {
            "duckdb": tuple(self.duckdb(written, "count(*), coalesce(sum(amount), 0), count(country)")),
            "polars": result.row(0),
            "spark": tuple(
                written.read().selectExpr("count(*)", "coalesce(sum(amount), 0)", "count(country)").first() or ()
            ),
        }
        if written.table.connector is Connector.ICEBERG:
            rows = StaticTable.from_metadata(written.location).scan().to_arrow().to_pylist()
            said["pyiceberg"] = (
                len(rows),
                sum(row["amount"] for row in rows),
                sum(row["country"] is not None for row in rows),
            )
        return {engine: tuple(int(each) for each in entry) for engine, entry in said.items()}  # type: ignore[misc]


@pytest.fixture
def engines(duck: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch) -> Engines:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    return Engines(duck)


# --- pipelines of an agent


@pytest.fixture
def own_agent(tmp_path: Path) -> Iterator[LiveAgent]:
    """Whoever takes a pipeline has it for as long as a test runs."""
    settings = ("--set", "pipelines.ttl_s=1h", "--set", f"tables.files_under={tmp_path}")
    with LiveAgent(tmp_path / "data", *settings) as running:
        yield running


def job(agent: LiveAgent, name: str, **given: str) -> PipelineJob:
    """The pipeline, taken as a supervisor takes it: agents place what its owner writes."""
    reported = _told(agent, f"pipelines/{name}")
    running = [] if reported["owner"] is None else [{"name": name, "epoch": reported["owner"]["epoch"]}]
    beat = _told(agent, "supervisors/test/heartbeat", {"host": "test", "slots": 4, "running": running})
    [mine] = [each for each in beat["assigned"] if each["pipeline"]["name"] == name]
    result = pipeline_job(mine["pipeline"], epoch=mine["epoch"], lineage=mine["lineage"])
    return replace(result, given={**result.given, "trigger": "available now", **given})


def _told(agent: LiveAgent, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://{agent.http}/v1/{path}", data=data, headers={"content-type": "application/json"}
    )
    with urllib.request.urlopen(request) as response:
        return json.load(response)


def run(builder: PipelineBuilder, each: PipelineJob) -> None:
    """Until everything that is there is in the table, or among its dead letters."""
    built = builder.build(each)
    for query in (built.main, *built.others):
        query.awaitTermination()
