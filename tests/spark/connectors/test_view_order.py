"""Of several rows of a key a view has the one that was made of the newest record, however records are read."""

import itertools
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from streamhouse.client.sync import SyncClient
from streamhouse.model.table import Column, Connector, Table
from streamhouse.spark.connectors import ReadContext, materialized_view
from streamhouse.spark.connectors.materialized_view import RefreshResult, needs_versions, write_full_refresh
from streamhouse.spark.pipelines.query_builder import PipelineBuilder, refresh_clock
from streamhouse.spark.pipelines.runner_protocol import pipeline_job
from streamhouse.spark.query.catalog import Catalog
from streamhouse.spark.query.resolver import resolve
from tests.spark.connectors import test_view
from tests.spark.connectors.test_view import Kept
from tests.spark.query.fakes import FakeBackend
from tests.support.agent import LiveAgent
from tests.support.depth import scaled

pytestmark = pytest.mark.spark

keep, keeper, http = test_view.keep, test_view.keeper, test_view.http
TIME_MS = 1_790_000_000_000
NAMES = itertools.count()
COLUMNS = (Column(name="id", type="BIGINT"), Column(name="n", type="BIGINT"))


@dataclass(frozen=True, slots=True)
class Produced:
    """A record as it stands in the log."""

    partition: int
    offset: int | None
    timestamp_ms: int
    key: str | None
    value: dict[str, Any] | None


@dataclass(slots=True)
class Topic:
    client: SyncClient
    name: str
    records: list[Produced] = field(default_factory=list)

    def put(self, partition: int, timestamp_ms: int, value: dict[str, Any] | None, *, key: str | None = None) -> None:
        text = None if value is None else json.dumps(value)
        with self.client.producer(self.name) as producer:
            delivery = producer.enqueue(text, key=key, partition=partition, timestamp_ms=TIME_MS + timestamp_ms)
        self.records.append(Produced(partition, delivery.result().offset, timestamp_ms, key, value))

    def put_at_random(self, seed: int, number: int, *, parity: int = 0) -> None:
        """Eight keys in three partitions, times in no order, some of them twice; all are even, or odd."""
        chance = random.Random(seed)
        sent = []
        with self.client.producer(self.name) as producer:
            for n in range(number):
                id_, at, partition = chance.randrange(8), 2 * chance.randrange(100) + parity, chance.randrange(3)
                value, key = {"id": id_, "n": 1000 * seed + n}, f"k{id_}"
                delivery = producer.enqueue(json.dumps(value), key=key, partition=partition, timestamp_ms=TIME_MS + at)
                sent.append((delivery, partition, at, key, value))
        self.records += [
            Produced(partition, delivery.result().offset, at, key, value)
            for delivery, partition, at, key, value in sent
        ]


def newest(*topics: Topic) -> dict[int, int]:
    """For each id the `n` of the newest record: by time, then partition and offset."""
    results: dict[int, tuple[Any, int]] = {}
    for each in (record for topic in topics for record in topic.records if record.value is not None):
        order = (each.timestamp_ms, each.partition, each.offset)
        assert each.value is not None
        known = results.get(each.value["id"])
        if known is None or order > known[0]:
            results[each.value["id"]] = (order, each.value["n"])
    return {key: n for key, (_, n) in results.items()}


@pytest.fixture
def topic(keeper: LiveAgent) -> Iterator[Callable[[], Topic]]:
    with SyncClient(keeper.http) as client:

        def create() -> Topic:
            name = f"ordered_{next(NAMES)}"
            client.topics.create(name, partitions=3, config={"retention.ms": -1})
            return Topic(client, name)

        yield create


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A view of a query over topics, run as a supervisor runs it."""

    spark: SparkSession
    kept: Kept
    text: str
    topics: tuple[Topic, ...]

    def frame(self, *, limit: int | None = None) -> DataFrame:
        tables = [
            Table(name=each.name, connector=Connector.TOPIC, columns=COLUMNS, options={"format": "json"})
            for each in self.topics
        ]
        agents = self.kept.writing.agents
        catalog = Catalog(agents, backend=FakeBackend(*tables))
        reading = ReadContext(agents=agents, max_records_per_trigger=limit, with_versions=True)
        return resolve(self.spark, self.text, catalog, reading).frame

    def run(self, *, limit: int | None = None) -> dict[Any, Any]:
        self.kept.run(self.frame(limit=limit))
        return {row.id: row.n for row in self.kept.rows()}


@pytest.fixture
def bench(spark: SparkSession, keep: Callable[..., Kept]) -> Callable[..., Bench]:
    def made(text: str, *topics: Topic, key: tuple[str, ...] = ("id",)) -> Bench:
        names = {f"t{number}": each.name for number, each in enumerate(topics)}
        return Bench(spark=spark, kept=keep(key=key), text=text.format(**names), topics=topics)

    return made


LAST = "SELECT id, n FROM STREAM({t0})"


def test_the_newest_record_of_each_key_stays_in_a_batch_and_across_batches(
    topic: Callable[[], Topic], bench: Callable[..., Bench]
) -> None:
    orders = topic()
    made = bench(LAST, orders)
    orders.put_at_random(1, 120)
    assert made.run() == newest(orders)  # a backlog of three partitions, in one micro-batch
    orders.put_at_random(2, scaled(quick=8, nightly=40))
    assert made.run(limit=5) == newest(orders)  # from the checkpoint, in many
    orders.put(1, -500, {"id": 3, "n": -1})  # a partition that lags behind
    orders.put(2, 900, {"id": 4, "n": -2})
    orders.put(0, 900, {"id": 4, "n": -3})  # at the same time, in another partition
    assert made.run() == newest(orders)
    for committed in Path(made.kept.writing.checkpoint, "commits").iterdir():  # as if killed before the first commit
        committed.unlink()
    assert made.run() == newest(orders)


def test_a_batch_that_failed_between_its_parts_is_told_again(
    topic: Callable[[], Topic], bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = topic()
    made = bench(LAST, orders)
    orders.put_at_random(3, 60)
    monkeypatch.setattr(materialized_view, "PART_ROWS", 1)
    with monkeypatch.context() as broken:
        ask, request = materialized_view._send, itertools.count()

        def third_fails(*args: Any) -> Any:
            if next(request) == 2:
                raise RuntimeError("killed between two parts")
            return ask(*args)

        broken.setattr(materialized_view, "_send", third_fails)
        with pytest.raises(StreamingQueryException, match="killed between two parts"):
            made.run()
    assert made.run() == newest(orders)


BETWEEN = (
    "WITH t AS (SELECT id, n FROM STREAM({t0}) WHERE n >= 0) SELECT n, id FROM t",
    "SELECT o.id, o.n FROM STREAM({t0}) AS o JOIN (SELECT id FROM range(8)) USING (id)",
    "SELECT id, n FROM (SELECT * FROM STREAM({t0})) WHERE id IS NOT NULL",
    "SELECT id, e.n FROM (SELECT id, explode(array(n)) AS n FROM STREAM({t0})) AS e",
    "SELECT id, n FROM STREAM({t0}) UNION ALL SELECT id, n FROM STREAM({t0}) WHERE id > 3",
    "SELECT o.id, x.n FROM STREAM({t0}) AS o, LATERAL (SELECT o.n + 0 AS n) AS x",
    "SELECT o.id, x.n FROM STREAM({t0}) AS o, LATERAL explode(array(o.n)) AS x(n)",
    "SELECT id, n FROM STREAM({t0}) UNPIVOT (n FOR name IN (n))",
    "SELECT /*+ REBALANCE */ id, n FROM STREAM({t0})",
)


@pytest.mark.parametrize("text", scaled(quick=(BETWEEN[1], *BETWEEN[4:8]), nightly=BETWEEN))
def test_it_holds_whatever_stands_between_the_stream_and_the_result(
    topic: Callable[[], Topic], bench: Callable[..., Bench], text: str
) -> None:
    orders = topic()
    made = bench(text, orders)
    orders.put_at_random(4, 60)
    made.run()
    orders.put_at_random(5, 20)
    assert made.run() == newest(orders)


def test_rows_of_two_streams_are_in_the_order_of_their_times(
    topic: Callable[[], Topic], bench: Callable[..., Bench]
) -> None:
    one, two = topic(), topic()
    made = bench("SELECT id, n FROM STREAM({t0}) UNION ALL SELECT id, n FROM STREAM({t1})", one, two)
    for seed in (6, 7):
        one.put_at_random(seed, 30)
        two.put_at_random(10 * seed, 30, parity=1)
        assert made.run() == newest(one, two)


def test_a_row_of_a_join_is_as_new_as_the_newest_of_its_records(
    topic: Callable[[], Topic], bench: Callable[..., Bench]
) -> None:
    left, right = topic(), topic()
    made = bench(
        "SELECT l.id, 100 * l.n + r.n AS n FROM STREAM({t0}) AS l JOIN STREAM({t1}) AS r ON l.id = r.id", left, right
    )
    left.put(0, 10, {"id": 1, "n": 1})
    right.put(0, 20, {"id": 1, "n": 2})
    assert made.run() == {1: 102}
    left.put(1, 5, {"id": 1, "n": 3})  # older: with the same record of the other side, which decides
    assert made.run() == {1: 102}
    right.put(1, 30, {"id": 1, "n": 4})
    assert made.run() == {1: 104}


def test_in_the_partition_that_the_key_decides_offsets_say_what_is_newer(
    topic: Callable[[], Topic], bench: Callable[..., Bench]
) -> None:
    orders = topic()
    made = bench("SELECT _key AS id, n FROM STREAM({t0})", orders)
    orders.put(0, 50, {"id": 1, "n": 1}, key="a")
    orders.put(0, 20, {"id": 1, "n": 2}, key="a")  # later in the log, though its time is earlier
    orders.put(1, 10, {"id": 2, "n": 3}, key="b")
    assert made.run() == {"a": 2, "b": 3}
    orders.put(0, 10, {"id": 1, "n": 4}, key="a")
    orders.put(2, 15, {"id": 2, "n": 5}, key="b")  # the topic has more partitions now: by time
    orders.put(2, 5, {"id": 1, "n": 6}, key="a")
    orders.put(0, 90, {"id": 3, "n": 7})  # no key decides nothing
    orders.put(0, 80, {"id": 3, "n": 8})
    assert made.run() == {"a": 4, "b": 5, None: 7}


def newest_in_partitions(topic: Topic) -> dict[str | None, int]:
    """For each key the `n` of its last record in the partition that has the latest time of the key."""
    logs: dict[tuple[str | None, int], list[Produced]] = {}
    for each in sorted(topic.records, key=lambda record: (record.partition, record.offset)):
        logs.setdefault((each.key, each.partition), []).append(each)
    results: dict[str | None, tuple[Any, int]] = {}
    for (key, partition), records in logs.items():
        order = (max(each.timestamp_ms for each in records), partition)
        value = records[-1].value
        assert value is not None
        if key not in results or order > results[key][0]:
            results[key] = (order, value["n"])
    return {key: n for key, (_, n) in results.items()}


def test_a_key_that_producers_put_into_several_partitions_has_one_newest_record_however_they_are_read(
    spark: SparkSession, topic: Callable[[], Topic], bench: Callable[..., Bench]
) -> None:
    orders = topic()
    text = "SELECT _key AS id, n FROM STREAM({t0})"
    in_many = bench(text, orders)
    for seed in range(13, 16):
        orders.put_at_random(seed, 60)
        assert in_many.run(limit=7) == newest_in_partitions(orders)
    assert bench(text, orders).run() == newest_in_partitions(orders)  # at once
    table = bench("SELECT _key AS id, n FROM {t0}", orders)
    refresh = write_full_refresh(
        refresh_clock(spark), table.kept.table, table.kept.writing, lambda: RefreshResult(frame=table.frame())
    )
    assert refresh.trigger(once=True).start().awaitTermination(120)
    assert {row.id: row.n for row in table.kept.rows()} == newest_in_partitions(orders)


OF_ONE_RECORD = (
    "SELECT id, e.n FROM (SELECT id, explode(array(n, 7, -n, 1000 * n)) AS n FROM STREAM({t0})) AS e",
    "SELECT id, n FROM STREAM({t0}) UNION ALL SELECT id, -n FROM STREAM({t0})",
    "SELECT o.id, o.n * m AS n FROM STREAM({t0}) AS o JOIN (SELECT id AS m, 1 AS one FROM range(20)) ON o.id >= one",
)


@pytest.mark.parametrize("text", scaled(quick=OF_ONE_RECORD[1:2], nightly=OF_ONE_RECORD))
def test_of_rows_that_one_record_makes_the_same_one_stays_however_they_are_read(
    topic: Callable[[], Topic], bench: Callable[..., Bench], text: str
) -> None:
    orders = topic()
    in_many = bench(text, orders)
    for seed in (17, 18):
        orders.put_at_random(seed, 20)
        in_many.run(limit=3)
    assert in_many.run() == bench(text, orders).run()  # at once


def test_rows_of_topics_are_newer_than_those_of_files_of_which_the_last_one_stays(
    spark: SparkSession, keep: Callable[..., Kept], topic: Callable[[], Topic], tmp_path: Path
) -> None:
    orders, kept, folder = topic(), keep(key=("id",)), tmp_path / "filed"
    folder.mkdir()
    filed = Table(
        name="filed", connector=Connector.FILES, columns=COLUMNS, options={"path": str(folder), "format": "json"}
    )
    known = Table(name=orders.name, connector=Connector.TOPIC, columns=COLUMNS, options={"format": "json"})
    agents = kept.writing.agents
    text = f"SELECT id, n FROM STREAM({orders.name}) UNION ALL SELECT id, n FROM STREAM(filed)"

    def run() -> dict[int, int]:
        reading = ReadContext(agents=agents, with_versions=True)
        kept.run(resolve(spark, text, Catalog(agents, backend=FakeBackend(filed, known)), reading).frame)
        return {row.id: row.n for row in kept.rows()}

    (folder / "0.json").write_text('{"id": 1, "n": 10}\n{"id": 2, "n": 20}\n')
    assert run() == {1: 10, 2: 20}
    orders.put(0, 5, {"id": 1, "n": 11})
    (folder / "1.json").write_text('{"id": 1, "n": 12}\n{"id": 2, "n": 19}\n')
    assert run() == {1: 11, 2: 19}


def test_a_view_without_streams_has_the_newest_row_of_each_key(
    spark: SparkSession, topic: Callable[[], Topic], bench: Callable[..., Bench]
) -> None:
    orders = topic()
    made = bench("SELECT id, n FROM {t0}", orders)
    orders.put_at_random(8, 60)
    kept = made.kept

    def compute() -> None:
        writer = write_full_refresh(
            refresh_clock(spark), kept.table, kept.writing, lambda: RefreshResult(frame=made.frame())
        )
        assert writer.trigger(once=True).start().awaitTermination(120)

    compute()
    assert {row.id: row.n for row in kept.rows()} == newest(orders)


def test_rows_of_a_whole_result_that_nothing_distinguishes_are_refused(
    spark: SparkSession, topic: Callable[[], Topic], bench: Callable[..., Bench]
) -> None:
    orders = topic()
    counts = "SELECT id, count(*) AS c FROM {t0} GROUP BY id"
    made = bench(f"SELECT id, n FROM ({counts}) JOIN (SELECT 1 AS id, explode(array(1, 2)) AS n) USING (id)", orders)
    orders.put(0, 1, {"id": 1, "n": 1})
    orders.put(0, 2, {"id": 1, "n": 2})
    kept = made.kept
    writer = write_full_refresh(
        refresh_clock(spark), kept.table, kept.writing, lambda: RefreshResult(frame=made.frame())
    )
    with pytest.raises(StreamingQueryException, match=r"several rows of the result have one key.*key=\[1\] rows=2"):
        writer.trigger(once=True).start().awaitTermination(120)


def test_records_without_a_value_are_rows_of_nulls_and_null_is_a_key(
    topic: Callable[[], Topic], bench: Callable[..., Bench]
) -> None:
    orders = topic()
    made = bench("SELECT id, n, _deleted FROM STREAM({t0})", orders)
    orders.put(0, 10, {"id": None, "n": 1})
    orders.put(1, 20, None, key="k1")
    orders.put(2, 5, {"id": None, "n": 2})
    orders.put(2, 6, {"id": 7, "n": 3})
    assert made.run() == {None: None, 7: 3}
    without = bench("SELECT id, n FROM STREAM({t0}) WHERE NOT _deleted", orders)
    assert without.run() == {None: 1, 7: 3}


@pytest.mark.parametrize("text", BETWEEN)
def test_versions_are_read_whatever_stands_between_the_stream_and_the_result(
    topic: Callable[[], Topic], bench: Callable[..., Bench], text: str
) -> None:
    assert needs_versions(bench(text, topic()).frame(), ("id",))


def test_versions_are_only_read_where_they_decide(topic: Callable[[], Topic], bench: Callable[..., Bench]) -> None:
    orders = topic()
    assert needs_versions(bench(LAST, orders).frame(), ("id",))
    assert not needs_versions(bench("SELECT id, count(*) AS n FROM STREAM({t0}) GROUP BY id", orders).frame(), ("id",))


def test_a_supervisors_view_has_versions(
    spark: SparkSession, keeper: LiveAgent, http: httpx.Client, topic: Callable[[], Topic], tmp_path: Path
) -> None:
    orders = topic()
    orders.put_at_random(9, 60)
    name = f"latest-{orders.name}"
    text = f"CREATE MATERIALIZED VIEW `{name}` KEY (id) AS SELECT id, n FROM STREAM({orders.name})"
    body = {"kind": "view", "text": text, "key": ["id"], "options": {"trigger": "available now"}}
    http.put(f"/v1/pipelines/{name}", json=body).raise_for_status()
    response = http.post("/v1/supervisors/me/heartbeat", json={"host": "here", "slots": 100, "running": []}).json()
    [mine] = [each for each in response["assigned"] if each["pipeline"]["name"] == name]
    builder = PipelineBuilder(spark, agents=keeper.http, checkpoints=str(tmp_path))

    def run() -> dict[int, int]:
        assert builder.build(pipeline_job(mine["pipeline"], epoch=mine["epoch"])).main.awaitTermination(120)
        rows = http.get(f"/v1/views/{name}/rows", params={"limit": 100}).json()["rows"]
        return {row["id"]: row["n"] for row in rows}

    assert run() == newest(orders)
    orders.put(0, -1, {"id": 1, "n": 0})
    assert run() == newest(orders)


KEYS = (
    "CAST(id AS TINYINT)",
    "CAST(id AS DOUBLE)",
    "CAST(id AS DECIMAL(30, 4))",
    "CAST(id AS STRING)",
    "CAST(CAST(id AS STRING) AS BINARY)",
    "id > 3",
    "date_add(DATE '2026-01-01', CAST(id AS INT))",
    "timestamp_millis(id)",
    "CAST(timestamp_millis(id) AS TIMESTAMP_NTZ)",
    "array(id, NULL)",
    "struct(id, CAST(NULL AS INT) AS nothing)",
    "IF(id = 3, NULL, id)",
)


def test_keys_of_every_type_keep_their_newest_row(topic: Callable[[], Topic], bench: Callable[..., Bench]) -> None:
    orders = topic()
    orders.put_at_random(11, 40)
    columns = ", ".join(f"{expression} AS k{number}" for number, expression in enumerate(KEYS))
    made = bench(f"SELECT {columns}, n, id FROM STREAM({{t0}})", orders, key=tuple(f"k{n}" for n in range(len(KEYS))))
    assert made.run() == newest(orders)
    orders.put_at_random(12, 40)
    assert made.run() == newest(orders)
