"""Catalog: which tables there are, and where their columns come from."""

from streamhouse.model.table import Column, Connector, Table
from streamhouse.spark.query.catalog import COLUMNS_TTL_S, TABLES_TTL_S, Catalog, OverlayCatalog, metadata_columns_of
from tests.spark.query.fakes import FakeBackend, columns, topic


class HandClock:
    def __init__(self) -> None:
        self.at_s = 0.0

    def monotonic(self) -> float:
        return self.at_s

    def now_ms(self) -> int:
        return 0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing sleeps here")


def catalog(backend: FakeBackend, clock: HandClock | None = None) -> Catalog:
    return Catalog("nowhere:1", backend=backend, clock=clock or HandClock())


def test_declared_columns_need_no_request() -> None:
    backend = FakeBackend(topic("orders", id="BIGINT"))
    known = catalog(backend)
    result = known.find("orders")
    assert result is not None
    assert (result.columns, result.options, known.origin("orders")) == (
        columns(id="BIGINT"),
        {"format": "json"},
        "declared",
    )
    assert backend.requests == ["tables"]


def test_a_registered_schema_goes_before_what_records_look_like() -> None:
    backend = FakeBackend(topic("orders"), samples={"orders": [b'{"a": 1}']})
    backend.registered["orders"] = columns(id="bigint")
    known = catalog(backend)
    result = known.find("orders")
    assert result is not None
    assert (result.columns, result.options["format"]) == (columns(id="bigint"), "registry")
    assert known.origin("orders") == "registered"


def test_a_new_version_of_a_schema_is_seen_at_once_by_those_who_ask_anew() -> None:
    backend = FakeBackend(topic("orders"), topic("known", id="BIGINT"), samples={"orders": [b'{"a": 1}']})
    known = catalog(backend)

    def columns_of(name: str, *, anew: bool) -> tuple[Column, ...] | None:
        table = known.find(name, anew=anew)
        assert table is not None
        return table.columns

    assert columns_of("orders", anew=True) == columns(a="BIGINT")
    for version in (columns(id="bigint"), columns(id="bigint", country="string")):
        backend.registered["orders"] = version
        assert columns_of("orders", anew=False) != version
        assert columns_of("orders", anew=True) == version
        assert columns_of("orders", anew=False) == version
    assert known.origin("orders") == "registered"
    backend.requests.clear()
    assert columns_of("orders", anew=True) == columns(id="bigint", country="string")
    assert columns_of("known", anew=True) == columns(id="BIGINT")
    assert backend.requests == ["fields of orders"]


def test_json_records_have_inferred_columns() -> None:
    known = catalog(FakeBackend(topic("orders"), samples={"orders": [b'{"a": 1}', b'{"b": "x"}', None]}))
    result = known.find("orders")
    assert result is not None
    assert (result.columns, result.options["format"]) == (columns(a="BIGINT", b="STRING"), "json")
    assert known.origin("orders") == "inferred from 2 JSON records"


def test_other_records_are_one_column() -> None:
    known = catalog(FakeBackend(topic("lines"), topic("blobs"), samples={"lines": [b"a"], "blobs": [b"\xff"]}))
    lines, blobs = known.find("lines"), known.find("blobs")
    assert lines is not None
    assert blobs is not None
    assert (lines.columns, lines.options["format"]) == (columns(value="STRING"), "raw")
    assert blobs.columns == columns(value="BINARY")


def test_a_format_that_is_declared_is_not_asked_about() -> None:
    backend = FakeBackend(topic("orders", "json"), samples={"orders": [b'{"a": 1}']})
    backend.registered["orders"] = columns(id="bigint")
    result = catalog(backend).find("orders")
    assert result is not None
    assert result.columns == columns(a="BIGINT")


def test_a_table_of_another_topic_asks_about_that_one() -> None:
    table = Table(name="orders", connector=Connector.TOPIC, options={"topic": "shop.orders"})
    result = catalog(FakeBackend(table, samples={"shop.orders": [b'{"a": 1}']})).find("orders")
    assert result is not None
    assert result.columns == columns(a="BIGINT")


def test_a_name_is_found_in_any_case_where_one_is_meant() -> None:
    known = catalog(FakeBackend(topic("Orders", id="INT"), topic("a", id="INT"), topic("A", x="INT")))
    result, exact = known.find("ORDERS"), known.find("A")
    assert result is not None
    assert result.name == "Orders"
    assert exact is not None
    assert exact.columns == columns(x="INT")


def test_an_unknown_name_is_nothing_and_has_neighbours() -> None:
    known = catalog(FakeBackend(topic("orders"), topic("users")))
    assert known.find("order") is None
    assert known.suggestions("ordres") == ("orders",)


def test_responses_are_kept_for_a_while() -> None:
    clock, backend = HandClock(), FakeBackend(topic("orders"), samples={"orders": [b'{"a": 1}']})
    known = catalog(backend, clock)
    for _ in range(3):
        known.find("orders")
    assert backend.requests == ["tables", "fields of orders", "sample of orders"]
    clock.at_s = TABLES_TTL_S
    known.find("orders")
    assert backend.requests[3:] == ["tables"]
    clock.at_s = COLUMNS_TTL_S
    known.find("orders")
    assert backend.requests[4:] == ["tables", "fields of orders", "sample of orders"]


def test_a_table_that_is_new_is_found_at_once() -> None:
    backend = FakeBackend()
    known = catalog(backend)
    assert known.find("orders") is None
    backend.known.append(topic("orders", id="INT"))
    assert known.find("orders") is not None


def test_a_changed_definition_is_seen() -> None:
    backend, clock = FakeBackend(topic("orders", id="INT")), HandClock()
    known = catalog(backend, clock)
    known.find("orders")
    backend.known[:] = [topic("orders", id="BIGINT")]
    known.invalidate()
    result = known.find("orders")
    assert result is not None
    assert result.columns == columns(id="BIGINT")


def test_an_extended_catalogue_knows_more_and_leaves_the_other_as_it_is() -> None:
    known = catalog(FakeBackend(topic("orders", id="INT")))
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
    backend = FakeBackend(topic("orders"))
    known = catalog(backend)
    before = known.find("orders")
    backend.known[:] = [topic("orders", id="BIGINT")]
    known.refresh()
    after = known.find("orders")
    assert before is not None
    assert after is not None
    assert (before.columns, after.columns) == (columns(value="STRING"), columns(id="BIGINT"))
