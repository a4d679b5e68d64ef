"""Catalog: which tables there are, and where their columns come from."""

from streamhouse.model.table import Column, Connector, Table
from streamhouse.spark.query.catalog import COLUMNS_TTL_S, TABLES_TTL_S, Catalog, OverlayCatalog, metadata_columns_of
from tests.spark.sql.fakes import FakeDoor, columns, topic


class HandClock:
    def __init__(self) -> None:
        self.at_s = 0.0

    def monotonic(self) -> float:
        return self.at_s

    def now_ms(self) -> int:
        return 0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing sleeps here")


def catalog(door: FakeDoor, clock: HandClock | None = None) -> Catalog:
    return Catalog("nowhere:1", backend=door, clock=clock or HandClock())


def test_declared_columns_ask_nobody() -> None:
    door = FakeDoor(topic("orders", id="BIGINT"))
    known = catalog(door)
    found = known.find("orders")
    assert found is not None
    assert (found.columns, found.options, known.origin("orders")) == (
        columns(id="BIGINT"),
        {"format": "json"},
        "declared",
    )
    assert door.asked == ["tables"]


def test_a_registered_schema_goes_before_what_records_look_like() -> None:
    door = FakeDoor(topic("orders"), samples={"orders": [b'{"a": 1}']})
    door.registered["orders"] = columns(id="bigint")
    known = catalog(door)
    found = known.find("orders")
    assert found is not None
    assert (found.columns, found.options["format"]) == (columns(id="bigint"), "registry")
    assert known.origin("orders") == "registered"


def test_a_new_version_of_a_schema_is_seen_at_once_by_those_who_ask_anew() -> None:
    door = FakeDoor(topic("orders"), topic("known", id="BIGINT"), samples={"orders": [b'{"a": 1}']})
    known = catalog(door)

    def found(name: str, *, anew: bool) -> tuple[Column, ...] | None:
        table = known.find(name, anew=anew)
        assert table is not None
        return table.columns

    assert found("orders", anew=True) == columns(a="BIGINT")
    for version in (columns(id="bigint"), columns(id="bigint", country="string")):
        door.registered["orders"] = version
        assert found("orders", anew=False) != version
        assert found("orders", anew=True) == version
        assert found("orders", anew=False) == version
    assert known.origin("orders") == "registered"
    door.asked.clear()
    assert found("orders", anew=True) == columns(id="bigint", country="string")
    assert found("known", anew=True) == columns(id="BIGINT")
    assert door.asked == ["fields of orders"]


def test_json_records_have_inferred_columns() -> None:
    known = catalog(FakeDoor(topic("orders"), samples={"orders": [b'{"a": 1}', b'{"b": "x"}', None]}))
    found = known.find("orders")
    assert found is not None
    assert (found.columns, found.options["format"]) == (columns(a="BIGINT", b="STRING"), "json")
    assert known.origin("orders") == "inferred from 2 JSON records"


def test_other_records_are_one_column() -> None:
    known = catalog(FakeDoor(topic("lines"), topic("blobs"), samples={"lines": [b"a"], "blobs": [b"\xff"]}))
    lines, blobs = known.find("lines"), known.find("blobs")
    assert lines is not None
    assert blobs is not None
    assert (lines.columns, lines.options["format"]) == (columns(value="STRING"), "raw")
    assert blobs.columns == columns(value="BINARY")


def test_a_format_that_is_declared_is_not_asked_about() -> None:
    door = FakeDoor(topic("orders", "json"), samples={"orders": [b'{"a": 1}']})
    door.registered["orders"] = columns(id="bigint")
    found = catalog(door).find("orders")
    assert found is not None
    assert found.columns == columns(a="BIGINT")


def test_a_table_of_another_topic_asks_about_that_one() -> None:
    table = Table(name="orders", connector=Connector.TOPIC, options={"topic": "shop.orders"})
    found = catalog(FakeDoor(table, samples={"shop.orders": [b'{"a": 1}']})).find("orders")
    assert found is not None
    assert found.columns == columns(a="BIGINT")


def test_a_name_is_found_in_any_case_where_one_is_meant() -> None:
    known = catalog(FakeDoor(topic("Orders", id="INT"), topic("a", id="INT"), topic("A", x="INT")))
    found, exact = known.find("ORDERS"), known.find("A")
    assert found is not None
    assert found.name == "Orders"
    assert exact is not None
    assert exact.columns == columns(x="INT")


def test_an_unknown_name_is_nothing_and_has_neighbours() -> None:
    known = catalog(FakeDoor(topic("orders"), topic("users")))
    assert known.find("order") is None
    assert known.suggestions("ordres") == ("orders",)


def test_answers_are_kept_for_a_while() -> None:
    clock, door = HandClock(), FakeDoor(topic("orders"), samples={"orders": [b'{"a": 1}']})
    known = catalog(door, clock)
    for _ in range(3):
        known.find("orders")
    assert door.asked == ["tables", "fields of orders", "sample of orders"]
    clock.at_s = TABLES_TTL_S
    known.find("orders")
    assert door.asked[3:] == ["tables"]
    clock.at_s = COLUMNS_TTL_S
    known.find("orders")
    assert door.asked[4:] == ["tables", "fields of orders", "sample of orders"]


def test_a_table_that_is_new_is_found_at_once() -> None:
    door = FakeDoor()
    known = catalog(door)
    assert known.find("orders") is None
    door.known.append(topic("orders", id="INT"))
    assert known.find("orders") is not None


def test_a_changed_definition_is_seen() -> None:
    door, clock = FakeDoor(topic("orders", id="INT")), HandClock()
    known = catalog(door, clock)
    known.find("orders")
    door.known[:] = [topic("orders", id="BIGINT")]
    known.invalidate()
    found = known.find("orders")
    assert found is not None
    assert found.columns == columns(id="BIGINT")


def test_an_extended_catalogue_knows_more_and_leaves_the_other_as_it_is() -> None:
    known = catalog(FakeDoor(topic("orders", id="INT")))
    extended = OverlayCatalog(known)
    extended.add(topic("users", name="STRING"))
    assert extended.find("users") is not None
    assert extended.find("orders") is not None
    assert known.find("users") is None


def test_records_have_columns_about_them_unless_they_have_such_themselves() -> None:
    table = topic("orders", "registry", _key="BIGINT", id="INT")
    assert [column.name for column in metadata_columns_of(table)] == [
        "_topic",
        "_partition",
        "_offset",
        "_timestamp",
        "_headers",
        "_deleted",
    ]
    raw = Table(name="t", connector=Connector.TOPIC, options={"key_format": "raw"})
    assert metadata_columns_of(raw)[0] == Column(name="_key", type="BINARY")


def test_a_topic_that_was_declared_a_moment_ago_has_its_columns_after_a_refresh() -> None:
    door = FakeDoor(topic("orders"))
    known = catalog(door)
    before = known.find("orders")
    door.known[:] = [topic("orders", id="BIGINT")]
    known.refresh()
    after = known.find("orders")
    assert before is not None
    assert after is not None
    assert (before.columns, after.columns) == (columns(value="STRING"), columns(id="BIGINT"))
