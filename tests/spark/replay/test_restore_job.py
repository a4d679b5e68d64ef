"""Files and tables of a lake go into a topic: records as they were, rows as JSON, once whatever happens."""

import datetime as dt
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from streamhouse.client.loop_thread import LoopThread
from streamhouse.client.sync import SyncClient
from streamhouse.client.types import NewSchema
from streamhouse.errors import Misconfigured
from streamhouse.spark.replay import restore_job
from streamhouse.spark.replay.restore_job import RestoreSpec, step_pieces
from streamhouse.spark.replay.resumable_job import ReplayResult
from tests.spark.replay.kafka import fill, named, records_of
from tests.support.agent import LiveAgent

pytestmark = pytest.mark.spark

Restore = Callable[..., ReplayResult]
NOON = dt.datetime(2026, 11, 15, 12, tzinfo=dt.UTC)
NOON_MS = round(NOON.timestamp() * 1000)


@pytest.fixture
def restore(spark: SparkSession, agent: LiveAgent) -> Iterator[Restore]:
    loop = LoopThread()

    def run(
        source: object, topic: str, *, job_id: str | None = None, step_bytes: int = 1 << 30, **request: object
    ) -> ReplayResult:
        expected = RestoreSpec(source=str(source), topic=topic, **request)  # type: ignore[arg-type]
        return restore_job.run(
            expected, agents=agent.http, start=lambda: spark, loop=loop, job_id=job_id, step_bytes=step_bytes
        )

    yield run
    loop.close()


def orders(*numbers: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "name": pa.array([f"name {number}" if number % 2 else None for number in numbers], pa.large_string()),
            "at": pa.array([NOON + dt.timedelta(seconds=number) for number in numbers], pa.timestamp("us", "UTC")),
        }
    )


def rows_in(agent: LiveAgent, topic: str, partitions: int = 1) -> list[tuple[Any, ...]]:
    """Key, value as JSON, and time, by id."""
    results = [record for each in records_of(agent, topic, partitions).values() for record in each]
    reported: list[tuple[Any, ...]] = []
    for key, value, (_, at_ms), _ in cast("list[Any]", results):
        reported.append((key, json.loads(value), at_ms))
    return sorted(reported, key=lambda row: int(row[1]["id"]))


def test_a_topic_that_was_saved_comes_back_as_it_was(
    spark: SparkSession, agent: LiveAgent, client: SyncClient, restore: Restore, tmp_path: Path
) -> None:
    source, target = named("saved"), named("restored")
    fill(agent, client, source, count=90)
    frame = spark.read.format("streamhouse").option("agents", agent.http).option("topic", source)
    frame.option("includeHeaders", "true").load().write.parquet(str(tmp_path / "backup"))
    done = restore(tmp_path / "backup", target)
    assert done.records == 90
    assert records_of(agent, target, 3) == records_of(agent, source, 3)


def test_rows_become_json_with_the_key_and_the_time_that_were_requested(
    agent: LiveAgent, restore: Restore, tmp_path: Path
) -> None:
    pq.write_table(orders(1, 2, 3), tmp_path / "orders.parquet")
    restore(
        tmp_path / "orders.parquet", topic := named("rows"), key="id", timestamp="at", where="id <> 2", partitions=1
    )
    assert rows_in(agent, topic) == [
        (b"1", {"id": 1, "name": "name 1", "at": "2026-11-15T12:00:01.000Z"}, NOON_MS + 1000),
        (b"3", {"id": 3, "name": "name 3", "at": "2026-11-15T12:00:03.000Z"}, NOON_MS + 3000),
    ]


def test_folders_of_files_are_read_in_the_order_of_their_names_and_partitions_are_columns(
    agent: LiveAgent, restore: Restore, tmp_path: Path
) -> None:
    for number in range(3):
        folder = tmp_path / f"day={number}"
        folder.mkdir()
        pq.write_table(orders(2 * number, 2 * number + 1), folder / "part.parquet")
    (tmp_path / "_temporary").mkdir()
    pq.write_table(orders(99), tmp_path / "_temporary" / "x.parquet")
    restore(tmp_path, topic := named("days"), partitions=1, key="id")
    values = [json.loads(record[1].decode()) for record in records_of(agent, topic, 1)[0]]  # type: ignore[attr-defined]
    assert [(value["id"], value["day"]) for value in values] == [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2)]


def test_a_delta_table_is_restored_as_it_was_at_a_version(agent: LiveAgent, restore: Restore, tmp_path: Path) -> None:
    table = str(tmp_path / "delta")
    write_deltalake(table, orders(1, 2), partition_by=["id"])
    write_deltalake(table, orders(3), mode="append")
    restore(table, topic := named("delta"), key="id", timestamp="at", partitions=1, job_id=(job := named("job")))
    write_deltalake(table, orders(4), mode="append")
    assert [row[1]["id"] for row in rows_in(agent, topic)] == [1, 2, 3]
    assert restore(table, topic, key="id", timestamp="at", partitions=1, job_id=job).records == 0
    assert len(rows_in(agent, topic)) == 3


def test_an_iceberg_table_is_restored_without_what_was_deleted(
    agent: LiveAgent, restore: Restore, tmp_path: Path
) -> None:
    catalog = SqlCatalog("local", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.orders", schema=orders().schema)
    table.append(orders(1, 2, 3))
    table.append(orders(4))
    table.delete("id = 2")
    restore(tmp_path / "warehouse" / "shop" / "orders", topic := named("ice"), key="id", partitions=1)
    assert [row[1]["id"] for row in rows_in(agent, topic)] == [1, 3, 4]


def test_the_same_job_again_writes_nothing_and_other_files_are_reported(
    agent: LiveAgent, restore: Restore, tmp_path: Path
) -> None:
    for number in range(4):
        pq.write_table(orders(number), tmp_path / f"{number}.parquet")
    topic, job = named("again"), named("job")
    first = restore(tmp_path, topic, key="id", partitions=1, job_id=job, step_bytes=1)
    assert (first.records, first.steps) == (4, 4)
    assert restore(tmp_path, topic, key="id", partitions=1, job_id=job, step_bytes=1).records == 0
    assert len(rows_in(agent, topic)) == 4
    pq.write_table(orders(5), tmp_path / "5.parquet")
    with pytest.raises(Misconfigured, match="others than when the job began"):
        restore(tmp_path, topic, key="id", partitions=1, job_id=job, step_bytes=1)


def test_rows_are_written_with_a_schema_of_the_registry(
    agent: LiveAgent, client: SyncClient, restore: Restore, tmp_path: Path
) -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}]
    schema = json.dumps({"type": "record", "name": "Order", "fields": fields})
    registered = client.schemas.register(subject := named("subject"), NewSchema(text=schema))
    pq.write_table(orders(1, 2).select(["id", "name"]), tmp_path / "orders.parquet")
    restore(tmp_path, topic := named("avro"), key="id", partitions=1, subject=subject)
    values = [record[1] for record in records_of(agent, topic, 1)[0]]
    prefix = b"\x00" + registered.id.to_bytes(4, "big")
    assert values == [prefix + b"\x02\x02\x0cname 1", prefix + b"\x04\x00"]
    with pytest.raises(Misconfigured, match="no schema is registered"):
        restore(tmp_path, topic, key="id", subject="nobodys")


@pytest.mark.parametrize(
    "mistake", [{"where": "nonsense > 3"}, {"key": "id +"}, {"timestamp": "nonsense"}, {"subject": "nobodys"}]
)
def test_a_restore_that_can_not_be_made_leaves_no_topic(
    client: SyncClient, restore: Restore, tmp_path: Path, mistake: dict[str, str]
) -> None:
    pq.write_table(orders(1, 2), tmp_path / "a.parquet")
    topic = named("mistaken")
    with pytest.raises(Misconfigured):
        restore(tmp_path, topic, **mistake)
    assert topic not in [each.name for each in client.topics.list()]


def test_a_place_without_files_is_reported(restore: Restore, tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="no Parquet file there"):
        restore(tmp_path, named("none"))


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_steps_have_each_piece_once(steps: int) -> None:
    sizes = [5, 1, 1, 100, 0, 7, 30]
    assert [piece for step in range(steps) for piece in step_pieces(sizes, step, steps)] == list(range(7))
