"""Settings of topics against what agents keep: which lake tables are made, changed, ended, refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamhouse.sql.definitions import changes_of
from streamhouse.sql.lake_reconciliation import ReconcilePlan, StoredDefinitions, reconcile
from streamhouse.sql.lake_tables import LakeTableSpec, statements_of


def topic(name: str = "orders", /, **settings: str) -> dict[str, Any]:
    named = {f"table.{setting.replace('_', '.')}": value for setting, value in settings.items()}
    return {"name": name, "settings": {"retention.ms": "1000", **named}}


def kept(
    *tables: LakeTableSpec, topics: tuple[str, ...] = ("orders",), but: tuple[dict[str, Any], ...] = ()
) -> StoredDefinitions:
    """What agents keep once these tables were made; `but` are definitions of others."""
    changes = [change for table in tables for change in changes_of(Path("t.sql"), statements_of(table))]
    result: dict[str, dict[str, Any]] = {"table": {}, "pipeline": {}}
    for change in changes:
        result[change.what][change.name] = {"name": change.name, **(change.body or {})}
    named = [{"name": each, "connector": "topic"} for each in topics]
    return StoredDefinitions(
        tables={**{each["name"]: each for each in (*named, *but)}, **result["table"]}, pipelines=result["pipeline"]
    )


LAKE = LakeTableSpec(
    name="orders_lake",
    topic="orders",
    connector="iceberg",
    location="/lake/orders_lake",
    commit_interval="60000ms",
    settings_of="orders",
)
BY_HAND = replace(LAKE, settings_of="")


def refusal(decision: ReconcilePlan) -> str:
    assert (decision.make, decision.unwanted, decision.drop) == ((), frozenset(), ())
    (why,) = decision.refused.values()
    return why


def test_topics_that_ask_for_nothing_are_left_alone() -> None:
    decision = reconcile([topic(), topic("clicks", format="none", mode="upsert")], kept(BY_HAND))
    assert decision == ReconcilePlan(required={}, refused={})


def test_a_topic_that_requests_a_table_gets_one() -> None:
    decision = reconcile([topic(format="iceberg")], kept())
    assert decision.make == (replace(LAKE, location=""),)
    assert decision.refused == {}


def test_a_table_that_is_as_it_is_requested_is_left_alone() -> None:
    for settings in ({}, {"location": "/lake/orders_lake"}, {"commit_interval_ms": "60000", "name": "orders_lake"}):
        assert reconcile([topic(format="iceberg", **settings)], kept(LAKE)).make == ()
    keyed = replace(LAKE, mode="upsert", key=("a", "b"), options={"partition_by": "day(ts)"})
    request = topic(format="iceberg", mode="upsert", key="a,b", partition_by="day(ts)")
    assert reconcile([request], kept(keyed)).make == ()


def test_another_commit_interval_changes_the_table() -> None:
    (changed,) = reconcile([topic(format="iceberg", commit_interval_ms="5000")], kept(LAKE)).make
    assert changed.commit_interval == "5000ms"


def test_a_table_whose_pipeline_someone_deleted_gets_it_again() -> None:
    without = replace_pipelines(kept(LAKE))
    assert [each.name for each in reconcile([topic(format="iceberg")], without).make] == ["orders_lake"]


def replace_pipelines(of: StoredDefinitions) -> StoredDefinitions:
    return StoredDefinitions(tables=of.tables, pipelines={})


@pytest.mark.parametrize(
    ("settings", "reported"),
    [
        ({"format": "delta"}, "format is iceberg, not delta"),
        ({"format": "iceberg", "mode": "upsert", "key": "id"}, "mode is append, not upsert"),
        ({"format": "iceberg", "partition_by": "day(ts)"}, "partition_by is none, not day(ts)"),
        ({"format": "iceberg", "location": "/elsewhere"}, "location is /lake/orders_lake, not /elsewhere"),
    ],
)
def test_what_would_be_another_table_is_refused_with_what_differs(settings: dict[str, str], reported: str) -> None:
    why = refusal(reconcile([topic(**settings)], kept(LAKE)))
    assert reported in why
    assert "do=set them back" in why


def test_a_table_that_someone_made_is_neither_taken_over_nor_ended() -> None:
    assert "made by a command or in SQL" in refusal(reconcile([topic(format="iceberg")], kept(BY_HAND)))
    assert reconcile([topic()], kept(BY_HAND), unwanted_before=frozenset({"orders_lake"})).drop == ()
    assert reconcile([], kept(BY_HAND, topics=()), unwanted_before=frozenset({"orders_lake"})).drop == ()


def test_a_name_that_means_something_else_is_refused() -> None:
    files = {"name": "orders_lake", "connector": "files"}
    assert "set table.name of orders" in refusal(reconcile([topic(format="iceberg")], kept(but=(files,))))
    decision = reconcile([topic(format="iceberg")], kept(topics=("orders", "orders_lake")))
    assert "the name is taken" in refusal(decision)


def test_of_two_topics_that_want_one_name_the_first_has_it() -> None:
    of_dots = replace(LAKE, name="a_b_lake", topic="a.b", settings_of="a.b")
    requests = [topic("a.b", format="iceberg"), topic("a-b", format="iceberg")]
    decision = reconcile(requests, kept(of_dots, topics=("a.b", "a-b")))
    assert decision.make == ()
    assert "made by the settings of a.b" in decision.refused["a-b"]
    assert "a.b" not in decision.refused


# --- the end


@pytest.mark.parametrize("topics", [[], [topic()], [topic(format="none")]])
def test_a_table_that_a_setting_made_ends_when_it_isnt_requested_twice_in_a_row(topics: list[dict[str, Any]]) -> None:
    first = reconcile(topics, kept(LAKE, topics=tuple(each["name"] for each in topics)))
    assert (first.unwanted, first.drop) == (frozenset({"orders_lake"}), ())
    second = reconcile(topics, kept(LAKE), unwanted_before=first.unwanted)
    assert second.drop == ("orders_lake",)


def test_a_setting_that_was_only_heard_of_late_ends_nothing() -> None:
    decision = reconcile([topic(format="iceberg")], kept(LAKE), unwanted_before=frozenset({"orders_lake"}))
    assert (decision.unwanted, decision.drop) == (frozenset(), ())


def test_a_refused_change_ends_nothing() -> None:
    decision = reconcile([topic(format="delta")], kept(LAKE), unwanted_before=frozenset({"orders_lake"}))
    assert decision.drop == ()
    assert decision.refused
    odd = reconcile([topic(format="hudi")], kept(LAKE), unwanted_before=frozenset({"orders_lake"}))
    assert (odd.drop, odd.unwanted) == ((), frozenset())
    assert "hudi" in odd.refused["orders"]


def test_with_another_name_the_old_table_ends_before_the_new_one_begins() -> None:
    request, at = [topic(format="iceberg", name="orders_now")], kept(LAKE)
    first = reconcile(request, at)
    assert (first.make, first.unwanted) == ((), frozenset({"orders_lake"}))
    assert reconcile(request, at, unwanted_before=first.unwanted).drop == ("orders_lake",)
    assert [each.name for each in reconcile(request, kept()).make] == ["orders_now"]
