"""A query whose streams have other columns now ends before a micro-batch is written without them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from pyspark.sql import SparkSession

from streamhouse.errors import Unavailable
from streamhouse.model.table import Column, Connector, Table
from streamhouse.spark.pipelines.pipeline_tables import ColumnWatcher, check_known, grown_catalog
from streamhouse.spark.query.catalog import EMPTY_TOPIC, Catalog, OverlayCatalog
from streamhouse.spark.query.resolver import TableRef

pytestmark = pytest.mark.spark

ORDERS = Table(name="orders", connector=Connector.TOPIC)


@dataclass
class MadeUpDoor:
    """Agents that say what a test says."""

    registered: tuple[Column, ...] | None = None
    records: list[bytes | None] = field(default_factory=list)

    def tables(self) -> Sequence[Table]:
        return [ORDERS]

    def fields(self, topic: str) -> tuple[Column, ...] | None:
        return self.registered

    def sample(self, topic: str) -> list[bytes | None]:
        return self.records


def columns(text: str) -> tuple[Column, ...]:
    return tuple(Column(name=name, type=kind) for name, kind in (each.split() for each in text.split(",")))


def growing(backend: MadeUpDoor) -> ColumnWatcher:
    bound = Catalog("", backend=backend)
    table = bound.find("orders")
    assert table is not None
    read = TableRef(name="orders", table=table, is_stream=True, origin=bound.origin("orders"))
    return ColumnWatcher(bound, Catalog("", backend=backend), [read])


def test_another_registered_schema_ends_the_query(spark: SparkSession) -> None:
    backend = MadeUpDoor(registered=columns("id bigint"))
    before_batch = growing(backend)
    before_batch.check()
    backend.registered = columns("id bigint,country string")
    growing(backend).check()
    before_batch._checked_at_s = None
    with pytest.raises(Unavailable, match="other columns now"):
        before_batch.check()


def test_records_with_a_new_field_end_it_and_records_without_an_old_one_do_not(spark: SparkSession) -> None:
    backend = MadeUpDoor(records=[b'{"id": 1, "country": "de"}'])
    before_batch = growing(backend)
    seen: list[list[bytes | None]] = [
        [b'{"id": 2}'],
        [b'{"id": 2, "country": null}'],
        [b'{"id": "text", "country": "de"}'],
    ]
    for records in seen:
        backend.records, before_batch._checked_at_s = records, None
        before_batch.check()
    backend.records, before_batch._checked_at_s = [b'{"id": 2, "vip": true}'], None
    with pytest.raises(Unavailable, match="stream=orders"):
        before_batch.check()


def test_what_was_inferred_only_ever_grows(spark: SparkSession) -> None:
    anew = Catalog("", backend=MadeUpDoor(records=[b'{"id": 1.5, "place": {"city": "x", "zip": 1}, "vip": true}']))
    known = OverlayCatalog(anew)
    kept = columns("id BIGINT,country STRING,place STRUCT<city:STRING>")
    known.add(Table(name="orders", connector=Connector.TOPIC, columns=kept, options={"format": "json"}))
    result = grown_catalog(known, anew, known.kept).find("orders")
    assert result is not None
    assert [(each.name, each.type) for each in result.columns or ()] == [
        ("id", "bigint"),
        ("country", "string"),
        ("place", "struct<city:string,zip:bigint>"),
        ("vip", "boolean"),
    ]


def test_a_topic_without_records_is_waited_for() -> None:
    with pytest.raises(Unavailable, match="before there are records"):
        check_known([TableRef(name="orders", table=ORDERS, is_stream=True, origin=EMPTY_TOPIC)])
