"""Settings of a topic that is to be a lake table: what they ask for, and what can't be."""

import pytest

from streamhouse.errors import InvalidConfig
from streamhouse.model.table import Connector, TableSettings, default_name, table_settings
from streamhouse.model.topic import check_topic_config, parse_topic_config

ICEBERG = {"table.format": "iceberg"}
UPSERT = {"table.mode": "upsert", "table.key": "id"}


def test_a_topic_is_no_table_unless_it_says_so() -> None:
    assert table_settings("orders", {}) is None
    assert table_settings("orders", {"table.format": "none", **UPSERT}) is None
    assert table_settings("orders", {"table.name": "lake", "retention.ms": "1"}) is None


def test_a_format_is_enough() -> None:
    request = table_settings("web.orders-eu", ICEBERG)
    assert request == TableSettings(topic="web.orders-eu", name="web_orders_eu_lake", format=Connector.ICEBERG)


def test_everything_can_be_said() -> None:
    settings = {
        "table.format": "delta",
        "table.name": "orders_now",
        "table.mode": "upsert",
        "table.key": "country, id",
        "table.partition.by": "country, day(ts)",
        "table.location": "s3://lake/orders/",
        "table.commit.interval.ms": "5000",
    }
    check_topic_config(settings, {}, topic="orders")
    assert table_settings("orders", settings) == TableSettings(
        topic="orders",
        name="orders_now",
        format=Connector.DELTA,
        mode="upsert",
        key=("country", "id"),
        partition_by="country, day(ts)",
        location="s3://lake/orders",
        commit_interval_ms=5000,
    )


@pytest.mark.parametrize(
    ("settings", "reported"),
    [
        ({"table.format": "hudi"}, "none, iceberg, delta, parquet"),
        ({**ICEBERG, "table.mode": "merge"}, "append, upsert"),
        ({**ICEBERG, "table.mode": "upsert"}, "table.mode=upsert needs table.key"),
        ({**ICEBERG, "table.key": "id"}, "set table.mode to upsert"),
        ({"table.format": "parquet", **UPSERT}, "set table.format to iceberg or delta"),
        ({"table.format": "delta", "table.partition.by": "bucket(4, id)"}, "only Iceberg has bucket"),
        ({**ICEBERG, "table.partition.by": "week(ts)"}, r"day\(ts\)"),
        ({**ICEBERG, **UPSERT, "table.key": "id,,b"}, "country,city"),
        ({**ICEBERG, "table.name": "a table"}, "must begin with a letter"),
        ({**ICEBERG, "table.name": "orders"}, "choose another"),
        ({**ICEBERG, "table.location": "lake/orders"}, "path from the root"),
        ({**ICEBERG, "table.location": "gs://lake/orders"}, "s3://bucket/prefix"),
        ({**ICEBERG, "table.location": "s3://me:secret@lake/orders"}, "s3://bucket/prefix"),
        ({**ICEBERG, "table.commit.interval.ms": "1"}, "between 100"),
        ({"table.partition.by": "week(ts)"}, "transforms"),
    ],
)
def test_what_cant_be_is_refused_with_what_to_do(settings: dict[str, str], reported: str) -> None:
    with pytest.raises(InvalidConfig, match=reported):
        check_topic_config(settings, {}, topic="orders")


def test_a_topic_whose_name_is_too_long_for_a_table_has_to_name_it() -> None:
    topic = "x" * 249
    with pytest.raises(InvalidConfig, match=r"set table\.name"):
        check_topic_config(ICEBERG, {}, topic=topic)
    check_topic_config({**ICEBERG, "table.name": "x"}, {}, topic=topic)


def test_settings_are_given_one_after_the_other_before_the_format_is() -> None:
    check_topic_config({"table.mode": "upsert"}, {}, topic="orders")
    check_topic_config({"table.key": "id"}, {}, topic="orders")
    check_topic_config({**UPSERT, **ICEBERG}, {}, topic="orders")


def test_a_topic_that_contradicts_itself_can_still_be_read_and_written() -> None:
    parse_topic_config({**ICEBERG, "table.mode": "upsert"})


def test_tables_are_called_as_sql_can_say_it_without_quotes() -> None:
    assert default_name("a.b-c_d") == "a_b_c_d_lake"
