"""SQLite as a metadata store: the contract, and what is SQLite's own."""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from threading import Event

import pytest

from streamhouse.errors import Internal, Misconfigured, Unavailable
from streamhouse.stores.metadata.base import MetadataStore
from streamhouse.stores.metadata.engine import Listeners
from streamhouse.stores.metadata.open import open_metadata_store
from streamhouse.stores.metadata.rows import offset_list, partition_list
from streamhouse.stores.metadata.sqlite import SqliteMetadataStore
from streamhouse.stores.metadata.sqlite.database import Database, SqliteSettings, Transaction, translate
from streamhouse.stores.metadata.statements import Statements, load_migrations, load_statements
from streamhouse.stores.metadata.transaction_store import OffsetsRequest
from tests.contracts.clocks import ManualClock
from tests.contracts.metadata_changes import EVERYTHING, listening, topics
from tests.contracts.metadata_producing import begin, end
from tests.contracts.metadata_scene import ALICE, ORDERS, lead, new_session, part, publish, spans, topic
from tests.contracts.metadata_store import MetadataStoreContract


class TestSqliteInMemory(MetadataStoreContract):
    @pytest.fixture
    async def store(self, clock: ManualClock) -> AsyncIterator[MetadataStore]:
        store = await SqliteMetadataStore(":memory:", clock=clock).open()
        yield store
        await store.aclose()


@pytest.mark.slow
class TestSqliteFile(MetadataStoreContract):
    """Nightly: the contract is the one above, and what differs in a file has tests of its own below."""

    @pytest.fixture
    async def store(self, clock: ManualClock, tmp_path: Path) -> AsyncIterator[MetadataStore]:
        store = await open_metadata_store(f"sqlite://{tmp_path}/new/metadata.db", clock=clock)
        yield store
        await store.aclose()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def test_only_its_owner_reads_a_database(tmp_path: Path, clock: ManualClock) -> None:
    store = await open_metadata_store(f"sqlite://{tmp_path}/metadata.db", clock=clock)
    await store.create_topic(topic())
    assert {entry.name: entry.stat().st_mode & 0o777 for entry in os.scandir(tmp_path)} == {
        "metadata.db": 0o600,
        "metadata.db-wal": 0o600,
        "metadata.db-shm": 0o600,
    }
    await store.aclose()


async def test_everything_is_there_after_the_store_is_opened_again(tmp_path: Path, clock: ManualClock) -> None:
    url = f"sqlite://{tmp_path}/metadata.db"
    store = await open_metadata_store(url, clock=clock)
    await store.create_topic(topic())
    await store.open_session(new_session(ALICE))
    [state] = await lead(store, ALICE, part(0))
    await publish(store, ALICE, state, 10)
    ids = await store.allocate_producer_ids(5)
    await store.aclose()

    store = await open_metadata_store(url, clock=clock)
    assert list(await store.topics()) == [topic()]
    assert [s.epoch for s in await store.held_by(ALICE)] == [state.epoch]
    assert await spans(store, part(0)) == [(0, 10)]
    assert await store.allocate_producer_ids(1) == ids + 5
    await store.aclose()


async def test_commits_are_synced_and_foreign_keys_hold(tmp_path: Path, clock: ManualClock) -> None:
    database = Database(f"{tmp_path}/m.db", clock=clock, settings=SqliteSettings())
    await database.open()
    values = {
        name: await database.read(lambda tx, name=name: tx.rows(f"PRAGMA {name}")[0][0])  # type: ignore[misc]
        for name in ("journal_mode", "synchronous", "foreign_keys")
    }
    await database.aclose()
    assert values == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


async def test_a_database_of_a_newer_release_is_refused_with_advice(tmp_path: Path, clock: ManualClock) -> None:
    url = f"sqlite://{tmp_path}/metadata.db"
    await (await open_metadata_store(url, clock=clock)).aclose()
    with sqlite3.connect(tmp_path / "metadata.db") as connection:
        connection.execute("INSERT INTO schema_version VALUES (999, 'from_the_future', 0)")
    connection.close()
    with pytest.raises(Misconfigured, match=r"newer release; schema=999 supported=\d+ do="):
        await open_metadata_store(url, clock=clock)


async def test_two_agents_that_open_one_new_database_at_once_both_succeed(tmp_path: Path, clock: ManualClock) -> None:
    url = f"sqlite://{tmp_path}/metadata.db"
    stores = await asyncio.gather(*(open_metadata_store(url, clock=clock) for _ in range(4)))
    await stores[0].create_topic(topic())
    assert list(await stores[3].topics()) == [topic()]
    for store in stores:
        await store.aclose()


async def test_a_file_that_is_no_database_is_refused_with_advice(tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / "metadata.db").write_bytes(b"this is not a database, it only lies where one should be" * 50)
    with pytest.raises(Misconfigured, match="can't be opened"):
        await open_metadata_store(f"sqlite://{tmp_path}/metadata.db", clock=clock)


async def test_a_folder_that_can_not_be_made_is_refused_with_advice(tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Misconfigured, match="do="):
        await open_metadata_store(f"sqlite://{tmp_path}/file/metadata.db", clock=clock)


def older_database(path: Path, version: int, *rows: str) -> str:
    """A database as it was when this was the newest version, with these rows."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE schema_version (version INTEGER PRIMARY KEY, name TEXT, applied_at_ms INTEGER)")
        for migration in load_migrations()[:version]:
            database.executescript(migration.sql)
            database.execute("INSERT INTO schema_version VALUES (?, ?, 0)", (migration.version, migration.name))
        for row in rows:
            database.execute(row)
        database.commit()
    return f"sqlite://{path}"


async def test_a_database_from_before_sizes_learns_them_from_its_runs(tmp_path: Path, clock: ManualClock) -> None:
    url = older_database(
        tmp_path / "metadata.db",
        2,
        f"INSERT INTO topics VALUES ('{ORDERS}', 'orders', 2, '{{}}', 0)",
        f"INSERT INTO partitions (topic_id, partition, epoch, flushed_end) VALUES ('{ORDERS}', 0, 1, 20)",
        "INSERT INTO segment_objects VALUES (1, 'k', 4096, 0)",
        f"INSERT INTO runs VALUES ('{ORDERS}', 0, 0, 10, 0, 1, 1, 0, 1000, 0, 0, 10, 0, 0)",
        f"INSERT INTO runs VALUES ('{ORDERS}', 0, 10, 20, 0, 1, 1, 0, 1000, 0, 0, 10, 0, 0)",
    )
    store = await open_metadata_store(url, clock=clock)
    assert await store.sizes([ORDERS]) == {part(0): 2000}
    await store.aclose()


async def test_sessions_from_before_their_ends_were_noted_ended_when_they_would_have_expired(
    tmp_path: Path, clock: ManualClock
) -> None:
    columns = "session_id, node_id, kafka_host, kafka_port, http_host, http_port, state, started_at_ms, expires_at_ms"
    now_ms = clock.now_ms()
    url = older_database(
        tmp_path / "metadata.db",
        5,
        f"INSERT INTO sessions ({columns}) VALUES ('old', 1, 'h', 1, 'h', 1, 'ended', 0, {now_ms})",
        f"INSERT INTO sessions ({columns}) VALUES ('new', 1, 'h', 1, 'h', 1, 'ended', 0, {now_ms + 1})",
        f"INSERT INTO sessions ({columns}) VALUES ('live', 1, 'h', 1, 'h', 1, 'live', 0, {now_ms})",
    )
    store = await open_metadata_store(url, clock=clock)
    clock.advance(ms=1000)
    assert await store.forget_sessions(older_than_ms=1000, limit=10) == 1
    assert await store.forget_sessions(older_than_ms=999, limit=10) == 1
    assert [each.session_id for each in (await store.membership()).sessions] == ["live"]
    await store.aclose()


async def test_a_database_from_before_transactions_has_room_for_them(tmp_path: Path, clock: ManualClock) -> None:
    url = older_database(
        tmp_path / "metadata.db",
        9,
        f"INSERT INTO topics VALUES ('{ORDERS}', 'orders', 1, '{{}}', 0)",
        f"INSERT INTO partitions (topic_id, partition, epoch) VALUES ('{ORDERS}', 0, 1)",
        f"INSERT INTO committed_offsets VALUES ('g', '{ORDERS}', 0, 5, 0, '', 0, NULL)",
    )
    store = await open_metadata_store(url, clock=clock)
    assert await store.schema_version() == len(load_migrations())
    call = await begin(store, "t", part(0))
    assert (await end(store, call)).partitions == (part(0),)
    [kept] = await store.committed_offsets([OffsetsRequest("g", None)])
    assert kept.committed.offset == 5
    await store.aclose()


async def test_a_growth_that_breaks_half_way_never_happened(clock: ManualClock) -> None:
    store = await SqliteMetadataStore(":memory:", clock=clock).open()
    await store.create_topic(topic())
    in_the_way = "INSERT INTO partitions (topic_id, partition, epoch) VALUES (:topic_id, 4, 0)"
    await store._database.write(lambda tx: tx.change(in_the_way, {"topic_id": str(ORDERS)}))
    with pytest.raises(Internal):
        await store.add_partitions(ORDERS, from_count=3, to_count=6)
    assert [each.partitions for each in await store.topics()] == [3]
    assert [state.partition.partition for state in await store.partitions([ORDERS])] == [0, 1, 2, 4]
    await store._database.write(lambda tx: tx.change("DELETE FROM partitions WHERE partition = 4", {}))
    assert (await store.add_partitions(ORDERS, from_count=3, to_count=6)).partitions == 6
    await store.aclose()


@pytest.mark.parametrize(
    "url", ["", "mysql://host/db", "sqlite://host/path", "sqlite:", "sqlite:///", "sqlite:a/b", "/plain/path"]
)
async def test_other_urls_are_refused_naming_the_supported_ones(url: str, clock: ManualClock) -> None:
    with pytest.raises(Misconfigured, match="sqlite:///absolute/path"):
        await open_metadata_store(url, clock=clock)


async def test_memory_urls_open_and_slashes_do_not_matter(tmp_path: Path, clock: ManualClock) -> None:
    await (await open_metadata_store("sqlite::memory:", clock=clock)).aclose()
    await (await open_metadata_store(f"sqlite:///{tmp_path}/with%20space.db", clock=clock)).aclose()
    assert (tmp_path / "with space.db").exists()


async def test_a_lock_held_by_another_process_is_unavailable_and_passes(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "metadata.db"
    store = await SqliteMetadataStore(str(path), clock=clock, settings=SqliteSettings(timeout_s=1.0)).open()
    rival = sqlite3.connect(path, isolation_level=None)
    rival.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable):
        await store.create_topic(topic())
    assert store.failures_in_a_row == 1
    rival.execute("ROLLBACK")
    rival.close()
    await store.create_topic(topic())
    assert store.failures_in_a_row == 0
    assert list(await store.topics()) == [topic()]
    await store.aclose()


async def test_a_call_that_waits_past_its_deadline_does_not_happen(clock: ManualClock) -> None:
    release = Event()
    with ThreadPoolExecutor(max_workers=1) as executor:
        settings = SqliteSettings(timeout_s=0.05)
        store = await SqliteMetadataStore(":memory:", clock=clock, settings=settings, executor=executor).open()
        blocked = executor.submit(release.wait)
        with pytest.raises(Unavailable, match="timed out"):
            await store.create_topic(topic())
        release.set()
        blocked.result()
        assert list(await store.topics()) == []
        await store.aclose()


async def test_a_statement_that_runs_past_its_deadline_is_broken_off(tmp_path: Path) -> None:
    class RacingClock(ManualClock):
        def monotonic(self) -> float:
            self.advance(ms=100)
            return super().monotonic()

    clock = RacingClock()
    database = Database(f"{tmp_path}/m.db", clock=clock, settings=SqliteSettings(timeout_s=60))
    await database.open()
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n"
    with pytest.raises(Unavailable, match="INTERRUPT"):
        await database.read(lambda tx: tx.rows(endless))
    assert await database.read(lambda tx: tx.rows("SELECT 1")[0][0]) == 1
    await database.aclose()


async def test_more_waiting_calls_than_the_limit_are_refused(clock: ManualClock) -> None:
    settings = SqliteSettings(max_waiting_calls=4)
    store = await SqliteMetadataStore(":memory:", clock=clock, settings=settings).open()
    results = await asyncio.gather(*(store.topics() for _ in range(6)), return_exceptions=True)
    assert [isinstance(result, Unavailable) for result in results] == [False] * 4 + [True] * 2
    assert list(await store.topics()) == []
    await store.aclose()


async def test_a_full_database_is_unavailable_and_nothing_half_done(clock: ManualClock) -> None:
    database = Database(":memory:", clock=clock, settings=SqliteSettings())
    await database.open()

    def fill(tx: Transaction) -> None:
        tx.rows("PRAGMA max_page_count = 1")
        tx.change("INSERT INTO counters VALUES ('x', 1)", {})
        tx.change_each("INSERT INTO doomed_objects VALUES (:key, 0, 0)", ({"key": f"{n:0900}"} for n in range(1000)))

    with pytest.raises(Unavailable, match="SQLITE_FULL"):
        await database.write(fill)
    assert await database.read(lambda tx: tx.rows("SELECT COUNT(*) FROM counters WHERE name = 'x'")[0][0]) == 0
    await database.aclose()


async def test_after_a_failed_fsync_nothing_more_is_accepted(clock: ManualClock) -> None:
    database = Database(":memory:", clock=clock, settings=SqliteSettings())
    await database.open()

    def fail(tx: Transaction) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
        error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
        raise error

    with pytest.raises(Unavailable, match="IOERR_FSYNC"):
        await database.write(fail)
    with pytest.raises(Unavailable, match="restart"):
        await database.read(lambda tx: tx.rows("SELECT 1"))
    await database.aclose()


async def test_calls_after_closing_are_unavailable_and_closing_twice_is_no_error(clock: ManualClock) -> None:
    store = await SqliteMetadataStore(":memory:", clock=clock).open()
    await store.aclose()
    await store.aclose()
    with pytest.raises(Unavailable):
        await store.topics()


async def test_what_was_committed_is_reported_even_if_its_caller_has_given_up(clock: ManualClock) -> None:
    store = await SqliteMetadataStore(":memory:", clock=clock).open()
    ear, under_way, go_on = await listening(store), Event(), Event()

    def change(tx: Transaction) -> None:
        under_way.set()
        go_on.wait()
        tx.changes[EVERYTHING] = None

    call = asyncio.create_task(store._database.write(change))
    await asyncio.to_thread(under_way.wait)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    go_on.set()
    assert await ear.next() == EVERYTHING
    await store.aclose()


async def test_stores_that_share_listeners_hear_each_other(clock: ManualClock, tmp_path: Path) -> None:
    listeners = Listeners()
    stores = [
        await SqliteMetadataStore(f"{tmp_path}/shared.db", clock=clock, listeners=listeners).open() for _ in range(2)
    ]
    ear = await listening(stores[0])
    await stores[1].create_topic(topic())
    assert await ear.next() == topics()
    for store in stores:
        await store.aclose()


async def test_damage_is_not_mistaken_for_something_that_passes() -> None:
    error = sqlite3.DatabaseError("database disk image is malformed")
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    assert isinstance(translate(error), Internal)
    assert isinstance(translate(sqlite3.ProgrammingError("misuse")), Internal)


async def test_every_table_and_column_is_documented(clock: ManualClock) -> None:
    page = (Path(__file__).parents[2] / "docs/formats/metadata-schema.md").read_text()
    sections = {piece.split("`")[0]: piece for piece in page.split("\n## `")[1:]}
    database = Database(":memory:", clock=clock, settings=SqliteSettings())
    await database.open()
    columns = await database.read(
        lambda tx: tx.rows(
            "SELECT m.name AS tab, c.name AS col FROM sqlite_schema AS m, pragma_table_info(m.name) AS c "
            "WHERE m.type = 'table'"
        )
    )
    await database.aclose()
    assert {row["tab"] for row in columns} == set(sections)
    assert [row["col"] for row in columns if f"`{row['col']}`" not in sections[row["tab"]]] == []


MAY_SCAN = {
    "list_topics": "lists all topics",
    "abandoned_sessions": "a row for each partition of an agent whose disk is away; asked by people only",
    "list_broker_settings": "lists what was changed: a row for each agent at most",
    "list_sessions": "lists all unended sessions, by a partial index",
    "list_departed_sessions": "looks at all unended sessions, by a partial index, and at those that ended lately",
    "lowest_free_node_id": "looks at all unended sessions, by a partial index",
    "find_identity": "reads single rows by their keys",
    "newest_objects": "the last rows by number, up to a limit",
    "known_objects": "must name every object",
    "count_runs": "counts up to a limit",
    "list_schema_contexts": "lists all contexts",
    "count_schema_subjects": "counts all subjects, when there is a new one",
    "list_schema_subjects": "lists subjects by what their names begin with, page by page",
    "list_schema_versions": "lists versions by what their subjects' names begin with, page by page",
    "list_tables": "lists all definitions",
    "count_tables": "counts all definitions, when there is a new one",
    "list_pipelines": "lists all pipelines",
    "count_pipelines": "counts all pipelines, when there is a new one",
    "list_supervisors": "a row for each supervisor",
    "forget_supervisors": "a row for each supervisor",
    "list_views": "lists all views",
    "list_workers": "a row for each SQL worker",
    "forget_workers": "a row for each SQL worker",
    "insert_partitions": "counts up",
    "forget_old_group_lags": "a row for each group, seldom",
    "list_acls": "lists all rules, which agents keep in memory",
    "count_acls": "counts all rules, when there is a new one",
    "list_users": "lists all users",
    "count_users": "counts all users, when there is a new one",
    "list_keys": "lists all keys",
    "count_keys": "counts all keys, when there is a new one",
    "list_role_members": "lists all roles, which agents keep in memory",
    "list_quotas": "lists all quotas, which agents keep in memory",
    "count_quotas": "counts all quotas, when one is set",
    "list_quota_usage": "a row for each agent",
    "forget_quota_usage": "a row for each agent",
    "list_delegation_tokens": "lists all tokens",
    "count_delegation_tokens": "counts all tokens, when there is a new one",
    "delete_delegation_tokens_of": "looks at all tokens, when a user is deleted",
    "run_at_time": "counts the steps of its bisection",
    "epoch_end": "counts the steps of its bisection",
}


@pytest.mark.parametrize("name", [field.name for field in fields(Statements)])
async def test_no_statement_walks_a_whole_table(name: str, clock: ManualClock) -> None:
    sql = getattr(load_statements(), name)
    database = Database(":memory:", clock=clock, settings=SqliteSettings())
    await database.open()
    params = dict.fromkeys(_parameters(sql), "[]")
    plan = [row["detail"] for row in await database.read(lambda tx: tx.rows(f"EXPLAIN QUERY PLAN {sql}", params))]
    await database.aclose()
    scans = [step for step in plan if step.startswith("SCAN") and "VIRTUAL TABLE" not in step]
    assert name in MAY_SCAN or not scans, plan


@pytest.mark.parametrize("name", ["count_view_rows", "drop_view_rows", "find_view_row"])
async def test_rows_of_views_are_looked_up_by_their_keys(name: str, clock: ManualClock) -> None:
    sql = getattr(load_statements(), name)
    database = Database(":memory:", clock=clock, settings=SqliteSettings())
    await database.open()
    params = dict.fromkeys(_parameters(sql), "[]")
    plan = [row["detail"] for row in await database.read(lambda tx: tx.rows(f"EXPLAIN QUERY PLAN {sql}", params))]
    await database.aclose()
    assert [step for step in plan if "(name=? AND found_by=?)" in step], plan


async def test_finding_runs_takes_few_steps_however_many_there_are(clock: ManualClock) -> None:
    database = Database(":memory:", clock=clock, settings=SqliteSettings())
    await database.open()
    await database.write(lambda tx: _fill_runs(tx, 20_000))
    sql = load_statements()
    params: dict[str, str | int] = {"topic_id": str(ORDERS), "partition": 0, "from_offset": 15_000, "limit": 5}
    params |= {"timestamp_ms": 15_500, "epoch": 7, "partitions": partition_list([part(0)])}
    params |= {"from_offsets": offset_list({part(0): 15_000})}
    quick = (
        sql.runs_from,
        sql.runs_of,
        sql.last_runs,
        sql.run_at_time,
        sql.latest_so_far,
        sql.epoch_end,
        sql.drop_runs_below,
    )
    for statement in (*quick, sql.drop_runs_below):
        steps = 0

        def count() -> int:
            nonlocal steps
            steps += 1
            return 0

        def measure(tx: Transaction, statement: str = statement) -> None:
            tx._connection.set_progress_handler(count, 1)
            tx.rows(statement, params)
            tx._connection.set_progress_handler(None, 0)

        await database.write(measure)
        assert steps < 5000, statement
    await database.aclose()


def _fill_runs(tx: Transaction, count: int) -> None:
    tx.change(
        "INSERT INTO topics VALUES (:topic_id, 'orders', 1, '{}', 0)",
        {"topic_id": str(ORDERS)},
    )
    tx.change(
        "INSERT INTO partitions (topic_id, partition, epoch, log_start, flushed_end) "
        "VALUES (:topic_id, 0, 1, 2, :count)",
        {"topic_id": str(ORDERS), "count": count},
    )
    tx.change("INSERT INTO segment_objects VALUES (1, 'k', 0, 0)", {})
    tx.change_each(
        "INSERT INTO runs VALUES (:topic_id, 0, :n, :n + 1, 0, 1, 1, 0, 0, 0, 0, 0, :n, :n, NULL, NULL, NULL, NULL)",
        ({"topic_id": str(ORDERS), "n": n} for n in range(count)),
    )


def _parameters(sql: str) -> list[str]:
    return [word.strip(",);(").removeprefix(":") for word in sql.replace("(", " ( ").split() if word.startswith(":")]
