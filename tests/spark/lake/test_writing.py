"""Micro-batches become commits that DuckDB, Polars, PyIceberg and Spark read alike, each row once."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamhouse.errors import Misconfigured, Rejected, Unavailable
from streamhouse.model.table import Connector
from streamhouse.spark.lake import connector as writing
from streamhouse.spark.lake.table import Progress
from tests.spark.lake.conftest import QUERY_ID, Engines, Make

pytestmark = pytest.mark.spark

LAKES = (Connector.ICEBERG, Connector.DELTA)
ORDERS = "id BIGINT, amount INT, country STRING"
CHANGES = f"{ORDERS}, _key STRING, _partition INT, _offset BIGINT, _deleted BOOLEAN"


def change(offset: int, id_: int, amount: int, country: str = "de") -> tuple[Any, ...]:
    return (id_, amount, country, str(id_), 0, offset, False)


def end(offset: int, key: str) -> tuple[Any, ...]:
    return (None, None, None, key, 0, offset, True)


@pytest.mark.parametrize("connector", LAKES)
def test_inserts_updates_deletes_and_other_columns_are_the_same_to_every_engine(
    make: Make, engines: Engines, connector: Connector
) -> None:
    table = make(connector, "id")
    table.write(
        0, CHANGES, *[change(each, each, 10) for each in range(4)], change(4, 0, 11), end(5, "3"), change(6, 9, 1)
    )
    assert set(engines.sums(table).values()) == {(4, 32, 4)}
    table.write(1, CHANGES, change(7, 1, 20), end(8, "2"), end(9, '{"id": 9}'), change(10, 3, 5), end(11, "77"))
    assert set(engines.sums(table).values()) == {(3, 36, 3)}
    wider = CHANGES.replace("amount INT", "amount BIGINT, vip BOOLEAN")
    table.write(2, wider, (1, 1 << 40, True, None, "1", 0, 12, False))
    assert set(engines.sums(table).values()) == {(3, 11 + 5 + (1 << 40), 2)}
    assert sorted((row.id, row.vip) for row in table.read().collect()) == [(0, None), (1, True), (3, None)]
    assert engines.duckdb(table, "count(vip)") == [1]


def test_a_micro_batch_that_comes_again_is_there_once(
    make: Make, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between data and commit, between commit and checkpoint, and with another writer in between."""
    for connector in Connector.ICEBERG, Connector.DELTA, Connector.PARQUET:
        table = make(connector)
        rows = [(each, 1, "de") for each in range(10)]
        with monkeypatch.context() as patch:
            patch.setattr(type(table.lake), "commit", _killed)
            with pytest.raises(KeyboardInterrupt):
                table.write(0, ORDERS, *rows)
        table.restart()
        table.write(0, ORDERS, *rows)
        table.restart()
        table.write(0, ORDERS, *rows)
        assert set(engines.sums(table).values()) == {(10, 10, 10)}, connector
        assert table.lake.last_batch(QUERY_ID) == 0


def _killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("connector", LAKES)
def test_of_two_writers_of_one_micro_batch_one_is_refused(make: Make, engines: Engines, connector: Connector) -> None:
    first, second = make(connector), make(connector)
    first.write(0, ORDERS, (1, 1, "de"))
    progress = Progress(query_id=QUERY_ID, batch_id=1)
    for each in first, second:
        assert each.lake.last_batch(QUERY_ID) == 0  # both see that it is theirs to write
    first.lake.commit((), (), progress)
    with pytest.raises(Unavailable):
        second.lake.commit((), (), progress)
    assert second.lake.last_batch(QUERY_ID) == 1


@pytest.mark.parametrize(
    ("connector", "partition_by"),
    [
        (Connector.ICEBERG, "day(ts), bucket(2, id), truncate(1, country)"),
        (Connector.DELTA, "day(ts), country"),
        (Connector.PARQUET, "day(ts), country"),
    ],
)
def test_rows_are_parted_by_transforms(make: Make, engines: Engines, connector: Connector, partition_by: str) -> None:
    table = make(connector, partition_by=partition_by)
    columns = "id BIGINT, amount INT, country STRING, ts STRING"
    rows = [(each, each, "d e" if each % 2 else None, f"2026-11-{15 + each % 2}T23:30:00Z") for each in range(8)]
    frame = table.spark.createDataFrame(rows, columns).selectExpr("id", "amount", "country", "CAST(ts AS TIMESTAMP) ts")
    table.step.write(frame, 0)
    assert set(engines.sums(table).values()) == {(8, 28, 4)}
    scan = engines.duck.execute(
        "SELECT count(*), sum(id) FROM "
        + {
            Connector.ICEBERG: "iceberg_scan('{}')",
            Connector.DELTA: "delta_scan('{}')",
            Connector.PARQUET: "read_parquet('{}/**/*.parquet', hive_partitioning = true)",
        }[connector].format(table.location)
        + " WHERE country = 'd e' AND ts >= TIMESTAMPTZ '2026-11-16 00:00:00+00'"
    )
    assert scan.fetchone() == (4, 16)
    assert sorted((row.id, row.country) for row in table.read().collect()) == [(each[0], each[2]) for each in rows]


def test_small_files_are_merged_and_what_nothing_refers_to_is_deleted(
    make: Make, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "SMALL_FILES", 2)
    for connector in LAKES:
        table = make(connector, "id", expire_snapshots="1ms")
        table.step._cleared_at_s = table.step.clock.monotonic()
        for each in range(3):
            table.write(each, CHANGES, change(each, each % 2, each))
        table.write(3, CHANGES, change(3, 7, 0))
        assert table.step.merge_small(table.read(), Progress(query_id=QUERY_ID, batch_id=3)) > 1
        assert table.lake.last_batch(QUERY_ID) == 3
        before = len(list(Path(table.location).rglob("sh-*.parquet")))
        now_ms = table.step.clock.now_ms() + 60_000
        table.lake.expire_snapshots(now_ms, now_ms)
        after = len(list(Path(table.location).rglob("sh-*.parquet")))
        assert after < before, connector
        assert set(engines.sums(table).values()) == {(3, 3, 3)}
        assert len(table.lake.data_files()) == 1


@pytest.mark.parametrize("connector", LAKES)
def test_the_newest_snapshots_are_reported_with_what_the_table_has(make: Make, connector: Connector) -> None:
    """Also by the next owner, before its first commit; at most so many."""
    table, reports = make(connector), list[Any]()
    table.step.writing = replace(table.writing(), on_commit=reports.append)
    for each in range(writing.SNAPSHOTS + 1):
        table.write(each, ORDERS, (each, 1, "de"), (each, 2, "fr"))
        newest = reports[-1][0]
        assert (newest["rows"], newest["size_bytes"]) == (
            2 * (each + 1),
            sum(file.stat().st_size for file in Path(table.location).rglob("sh-*.parquet")),
        )
        assert newest["files"] == len(list(Path(table.location).rglob("sh-*.parquet")))
    assert len(reports[-1]) == writing.SNAPSHOTS
    assert [each["at_ms"] for each in reports[-1]] == sorted((each["at_ms"] for each in reports[-1]), reverse=True)
    assert len({each["version"] for each in reports[-1]}) == writing.SNAPSHOTS
    other = table.take_over(ORDERS)
    assert other.step._snapshots[0].rows == 2 * (writing.SNAPSHOTS + 1)


def test_a_commit_counts_even_if_the_snapshots_cannot_be_read(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(Connector.ICEBERG)
    monkeypatch.setattr(type(table.lake), "snapshots", lambda *_: 1 / 0)
    table.write(0, ORDERS, (1, 1, "de"))
    assert (table.read().count(), table.lake.last_batch(QUERY_ID)) == (1, 0)


def test_files_that_are_all_there_is_of_a_table_are_never_merged(
    make: Make, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "SMALL_FILES", 2)
    table = make(Connector.PARQUET)
    for each in range(3):
        table.restart()  # whoever writes first clears away what is old
        table.write(each, ORDERS, (each, each, "de"))
    assert set(engines.sums(table).values()) == {(3, 3, 3)}


def test_what_cant_be_is_said_and_changes_nothing(make: Make, engines: Engines) -> None:
    table = make(Connector.ICEBERG)
    table.write(0, ORDERS, (1, 1, "de"))
    with pytest.raises(
        Rejected, match=r"a column can't become this; table=orders column=amount is=int requested=string"
    ):
        table.write(1, "id BIGINT, amount STRING, country STRING", (2, "x", "de"))
    assert set(engines.sums(table).values()) == {(1, 1, 1)}
    with pytest.raises(Misconfigured, match="partition_by names no column"):
        make(Connector.DELTA, partition_by="day(at)").write(0, ORDERS, (1, 1, "de"))
    with pytest.raises(Misconfigured, match="the key names no column"):
        make(Connector.DELTA, "nr").write(0, ORDERS, (1, 1, "de"))
    with pytest.raises(Misconfigured, match="rows in Parquet files don't change"):
        make(Connector.PARQUET, "id")
