"""Lake tables as statements, and back again."""

from dataclasses import replace
from typing import Any

import pytest

from streamhouse.sql.lake_tables import OTHER_QUERY, LakeTableSpec, differences, statements_of, stored_table
from streamhouse.sql.parser import parse
from streamhouse.sql.statements import CreatePipeline, CreateTable

TABLE = LakeTableSpec(name="lake", topic="orders", connector="iceberg", location="/lake/orders")
KEYED = replace(TABLE, mode="upsert", key=("id", "country"), options={"partition_by": "day(ts), country"})


def kept(table: LakeTableSpec) -> LakeTableSpec:
    """As agents return it."""
    definition, writer = parse(statements_of(table))
    assert isinstance(definition, CreateTable)
    assert isinstance(writer, CreatePipeline)
    body: dict[str, Any] = {"options": dict(writer.options), "key": list(table.key), "text": writer.text}
    made = definition.table
    return stored_table({"name": made.name, "connector": made.connector.value, "options": dict(made.options)}, body)


@pytest.mark.parametrize(
    "table",
    [
        TABLE,
        KEYED,
        replace(TABLE, topic="or.ders-2"),
        replace(TABLE, location="s3://b/it's"),
        replace(TABLE, name="a.b"),
    ],
)
def test_a_table_doesnt_differ_from_itself(table: LakeTableSpec) -> None:
    assert differences(kept(table), table) == []
    assert kept(table).topic == table.topic


@pytest.mark.parametrize(
    ("wanted", "what"),
    [
        (replace(KEYED, connector="delta"), "format"),
        (replace(KEYED, mode="append"), "mode"),
        (replace(KEYED, key=("country", "id")), "key"),
        (replace(KEYED, options={}), "partition_by"),
        (replace(KEYED, location="/lake/other"), "location"),
        (replace(KEYED, topic="clicks"), "topic"),
    ],
)
def test_what_is_for_good_differs_by_its_name(wanted: LakeTableSpec, what: str) -> None:
    assert [each.what for each in differences(kept(KEYED), wanted)] == [what]


def test_other_words_for_the_same_are_no_difference() -> None:
    there = replace(KEYED, location="file:///lake/orders/", options={"partition_by": "days(ts),`country`"})
    changed = replace(KEYED, commit_interval="5s", dead_letters="odd", options={**KEYED.options, "file_size": "1MiB"})
    assert differences(kept(there), KEYED) == []
    assert differences(kept(KEYED), changed) == []


def test_a_table_that_nobody_writes_has_neither_topic_nor_key_to_differ_in() -> None:
    alone = stored_table({"name": "lake", "connector": "iceberg", "options": {"location": "/lake/orders"}}, None)
    assert differences(alone, replace(TABLE, topic="clicks")) == []


@pytest.mark.parametrize("text", ["SELECT id FROM STREAM(`orders`)", "SELECT * FROM STREAM(`orders`) WHERE id > 1"])
def test_a_pipeline_that_someone_wrote_is_not_taken_for_a_topic(text: str) -> None:
    body = {"text": f"CREATE PIPELINE lake AS INSERT INTO lake {text}", "options": {}, "key": []}
    assert stored_table({"name": "lake", "connector": "iceberg"}, body).topic == OTHER_QUERY


def test_a_table_of_before_that_had_rows_of_nulls_is_still_the_same_table() -> None:
    body = {"text": "CREATE PIPELINE lake AS INSERT INTO lake SELECT * FROM STREAM(`orders`)", "options": {}, "key": []}
    there = stored_table({"name": "lake", "connector": "iceberg", "options": {"location": "/lake/orders"}}, body)
    assert differences(there, TABLE) == []
