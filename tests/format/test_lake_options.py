"""Words of lake tables: partitions, sizes and durations, and the statements that flags become."""

import pytest

from streamhouse.model.table import Partition, parse_partitions
from streamhouse.sql.lake_tables import LakeTableSpec, statements_of
from streamhouse.sql.options import parse_duration_ms, parse_file_size
from streamhouse.sql.parser import parse
from streamhouse.sql.statements import CreatePipeline, CreateTable


def test_partitions_are_columns_and_transforms_of_them() -> None:
    assert parse_partitions("day(ts), bucket(16, id), truncate(name, 4), `the country`") == (
        Partition(column="ts", transform="day"),
        Partition(column="id", transform="bucket", width=16),
        Partition(column="name", transform="truncate", width=4),
        Partition(column="the country"),
    )
    assert [each.name for each in parse_partitions("days(ts), country")] == ["ts_day", "country"]
    assert [str(each) for each in parse_partitions("BUCKET(4,id),hour( ts )")] == ["bucket(4, id)", "hour(ts)"]


@pytest.mark.parametrize("text", ["", "week(ts)", "day(3, ts)", "bucket(id)", "bucket(0, id)", "a, a", "day(ts"])
def test_partitions_that_cant_be_say_what_can(text: str) -> None:
    with pytest.raises(ValueError, match=r"day\(ts\)"):
        parse_partitions(text)


def test_sizes_and_durations() -> None:
    assert (parse_file_size("128MiB"), parse_file_size("1.5 gb"), parse_file_size("65536")) == (
        2**27,
        1_500_000_000,
        65536,
    )
    assert [parse_duration_ms(each) for each in ("500ms", "30s", "1m", "2 hours", "7d", "1w")] == [
        *(500, 30_000, 60_000, 7_200_000, 604_800_000, 604_800_000)
    ]
    for check, text in (
        (parse_file_size, "1KiB"),
        (parse_file_size, "big"),
        (parse_duration_ms, "7"),
        (parse_duration_ms, "soon"),
    ):
        with pytest.raises(ValueError, match="like"):
            check(text)


def test_names_and_places_with_odd_signs_survive_being_statements() -> None:
    table = LakeTableSpec(
        name="my-orders.v2", topic="a.b-c", connector="delta", location="/it's", mode="upsert", key=("id",)
    )
    definition, pipeline = parse(statements_of(table))
    assert isinstance(definition, CreateTable)
    assert isinstance(pipeline, CreatePipeline)
    assert definition.name == pipeline.name == pipeline.target == "my-orders.v2"
    assert definition.table.options == {"location": "/it's", "mode": "upsert"}
    assert pipeline.options == {"trigger": "60000 milliseconds", "key": "id"}
    assert pipeline.select.endswith("FROM STREAM(`a.b-c`)")
