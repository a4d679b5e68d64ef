"""A server that dies, restarts, fails over or falls silent: callers are told in time, and the store goes on."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from streamhouse.errors import Internal, Misconfigured, Unavailable
from streamhouse.stores.metadata.engine import Transaction
from streamhouse.stores.metadata.postgres import PostgresMetadataStore
from streamhouse.stores.metadata.postgres.connection import PostgresSettings
from streamhouse.stores.metadata.postgres.errors import translate
from tests.contracts.metadata_scene import ALICE, BOB, commit_of, lead, new_session, part, run_of, spans, topic
from tests.stores.postgres.conftest import start_postgres
from tests.support.postgres import RealPostgres
from tests.support.proxies.tunnel import Tunnel

pytestmark = pytest.mark.postgres

BRIEF = PostgresSettings(timeout_s=0.5, connect_timeout_s=0.4)


@pytest.fixture(scope="module")
def server() -> Iterator[RealPostgres]:
    """A server that these tests may kill."""
    with start_postgres() as server:
        yield server


@pytest.fixture
async def store(server: RealPostgres) -> AsyncIterator[PostgresMetadataStore]:
    admin = await asyncpg.connect(server.dsn())
    await admin.execute("DROP DATABASE IF EXISTS facts WITH (FORCE)")
    await admin.execute("CREATE DATABASE facts TEMPLATE template0")
    await admin.close()
    store = await PostgresMetadataStore(server.dsn("facts")).open()
    await store.create_topic(topic())
    await store.open_session(new_session(ALICE))
    yield store
    await store.aclose()


async def go_on(store: PostgresMetadataStore) -> None:
    """Calls succeed again, at the latest once every broken connection was met."""
    for _ in range(BRIEF.max_connections + 1):
        try:
            await store.topics()
        except Unavailable:
            continue
        return
    await store.topics()


async def test_calls_under_way_when_the_server_is_killed_are_unavailable_and_can_be_repeated(
    server: RealPostgres, store: PostgresMetadataStore
) -> None:
    [state] = await lead(store, ALICE, part(0))
    under_way = asyncio.Event()

    async def wait_for_ever(tx: Transaction) -> None:
        await tx.rows(tx.sql.find_session, {"session_id": ALICE})
        under_way.set()
        await tx.rows("SELECT pg_sleep(60)")

    call = asyncio.create_task(store._engine.write(wait_for_ever))
    await under_way.wait()
    await asyncio.to_thread(server.kill)
    with pytest.raises(Unavailable):
        await call
    commit = commit_of("k", run_of(state, 0, 5, "k"))
    with pytest.raises(Unavailable):
        await store.commit_segments(ALICE, [commit])
    assert store.failures_in_a_row == 2
    await asyncio.to_thread(server.start)
    await go_on(store)
    assert store.failures_in_a_row == 0
    await store.commit_segments(ALICE, [commit])
    await store.commit_segments(ALICE, [commit])
    assert await spans(store, part(0)) == [(0, 5)]


async def test_commits_that_were_answered_survive_kills_and_none_happens_twice(
    server: RealPostgres, store: PostgresMetadataStore
) -> None:
    [state] = await lead(store, ALICE, part(0))
    stop = asyncio.Event()
    acknowledged = 0

    async def write() -> None:
        nonlocal acknowledged
        while not stop.is_set():
            commit = commit_of(f"{acknowledged}", run_of(state, acknowledged, acknowledged + 1, ""))
            try:
                await store.commit_segments(ALICE, [commit])
            except Unavailable:
                await asyncio.sleep(0.01)
                continue
            acknowledged += 1

    writer = asyncio.create_task(write())
    for _ in range(3):
        before = acknowledged
        await asyncio.to_thread(server.restart)
        while acknowledged < before + 20:
            assert not writer.done()
            await asyncio.sleep(0.01)
    stop.set()
    await writer
    assert len(await spans(store, part(0))) == min(acknowledged, 1000)
    (last,) = await store.last_runs([part(0)])
    assert last.end == acknowledged


async def test_a_network_that_swallows_everything_holds_nobody_beyond_the_deadline(
    server: RealPostgres, store: PostgresMetadataStore
) -> None:
    async with Tunnel(server.port) as tunnel:
        dsn = server.dsn("facts").replace(f":{server.port}", f":{tunnel.port}")
        far = await PostgresMetadataStore(dsn, BRIEF).open()
        await far.topics()
        tunnel.swallow()
        async with asyncio.timeout(60):
            for _ in range(3):  # a connection that falls silent, and new ones that are never answered
                with pytest.raises(Unavailable):
                    await far.topics()
            with pytest.raises(Unavailable):
                await far.create_topic(topic())
            calls = await asyncio.gather(*(far.now_ms() for _ in range(30)), return_exceptions=True)
        assert {type(call) for call in calls} == {Unavailable}
        assert far.failures_in_a_row == 34
        tunnel.heal()
        await go_on(far)
        tunnel.swallow()
        async with asyncio.timeout(60):
            await far.aclose()
        with pytest.raises(Misconfigured, match="does not answer"):
            await PostgresMetadataStore(dsn, BRIEF).open()


async def test_a_client_that_stops_inside_a_transaction_does_not_keep_its_rows(
    server: RealPostgres, store: PostgresMetadataStore
) -> None:
    """As a process does that is paused or cut off: the server ends its transaction, and others go on."""
    [state] = await lead(store, ALICE, part(0))
    async with Tunnel(server.port) as tunnel:
        dsn = server.dsn("facts").replace(f":{server.port}", f":{tunnel.port}")
        far = await PostgresMetadataStore(dsn, BRIEF).open()

        async def hold(tx: Transaction) -> None:
            await tx.change("UPDATE partitions SET size_bytes = 1", {})
            tunnel.swallow()
            await tx.rows("SELECT 1")

        with pytest.raises(Unavailable):
            await far._database.write(hold)
        await store.commit_segments(ALICE, [commit_of("k", run_of(state, 0, 5, "k"))])
        await far.aclose()


async def test_a_pool_whose_connections_are_all_busy_refuses_in_time_and_recovers(
    server: RealPostgres, store: PostgresMetadataStore
) -> None:
    settings = PostgresSettings(timeout_s=0.5, max_connections=2, max_waiting_calls=8)
    small = await PostgresMetadataStore(server.dsn("facts"), settings).open()
    locker = await asyncpg.connect(server.dsn("facts"))
    async with locker.transaction():
        await locker.execute("LOCK TABLE topics")
        calls = await asyncio.gather(*(small.topics() for _ in range(12)), return_exceptions=True)
    assert {type(call) for call in calls} == {Unavailable}
    assert sum("too many calls wait" in str(call) for call in calls) == 4
    assert list(await small.topics()) == [topic()]
    await locker.close()
    await small.aclose()


async def test_a_server_without_a_connection_left_is_unavailable_and_passes(
    server: RealPostgres, store: PostgresMetadataStore
) -> None:
    admin = await asyncpg.connect(server.dsn())
    await admin.execute("ALTER DATABASE facts CONNECTION LIMIT 0")
    await admin.execute("CREATE ROLE plain LOGIN")
    plain = server.dsn("facts").replace("streamhouse@", "plain@")
    with pytest.raises(Misconfigured, match="no connection left"):
        await PostgresMetadataStore(plain).open()
    await admin.execute("ALTER DATABASE facts CONNECTION LIMIT -1")
    await admin.execute("DROP ROLE plain")
    await admin.close()


async def test_calls_after_closing_are_unavailable_and_closing_twice_is_no_error(store: PostgresMetadataStore) -> None:
    await store.aclose()
    await store.aclose()
    with pytest.raises(Unavailable):
        await store.topics()


async def test_a_read_only_server_is_unavailable_and_passes(store: PostgresMetadataStore) -> None:
    async def read_only(tx: Transaction) -> None:
        await tx.rows("SET TRANSACTION READ ONLY")
        await tx.change(tx.sql.name_cluster, {"cluster_id": "x"})

    with pytest.raises(Unavailable, match="25006"):
        await store._database.write(read_only)
    assert await store.cluster_id("x") == "x"


async def test_a_cluster_fails_over_to_the_standby_that_was_promoted() -> None:
    primary = await asyncio.to_thread(start_postgres().__enter__)
    standby = primary.standby()
    try:
        await asyncio.to_thread(standby.__enter__)
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen(0)  # a host that takes connections and says nothing
            hosts = f"127.0.0.1:{silent.getsockname()[1]},{standby.address},{primary.address}"
            patient = PostgresSettings(timeout_s=20, connect_timeout_s=1)
            store = await PostgresMetadataStore(primary.dsn().replace(primary.address, hosts), patient).open()
            await store.create_topic(topic())
            await store.open_session(new_session(ALICE))
            [state] = await lead(store, ALICE, part(0))
            await store.commit_segments(ALICE, [commit_of("k", run_of(state, 0, 5, "k"))])
            await _caught_up(primary)
            await asyncio.to_thread(primary.kill)
            with pytest.raises(Unavailable):
                await store.topics()
            await asyncio.to_thread(standby.promote)
            await go_on(store)
            assert await spans(store, part(0)) == [(0, 5)]
            await store.commit_segments(ALICE, [commit_of("l", run_of(state, 5, 7, "l"))])
            await store.open_session(new_session(BOB))
            await store.aclose()
    finally:
        await asyncio.to_thread(standby.__exit__)
        await asyncio.to_thread(primary.__exit__)


async def _caught_up(primary: RealPostgres) -> None:
    """Wait until the standby has everything that the primary has."""
    connection = await asyncpg.connect(primary.dsn())
    async with asyncio.timeout(30):
        behind = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn()"
        while not await connection.fetchval(behind):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await connection.close()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionRefusedError(), Unavailable),
        (TimeoutError(), Unavailable),
        (asyncpg.AdminShutdownError("so it is"), Unavailable),
        (asyncpg.TooManyConnectionsError("so it is"), Unavailable),
        (asyncpg.DeadlockDetectedError("so it is"), Unavailable),
        (asyncpg.DiskFullError("so it is"), Unavailable),
        (asyncpg.TargetServerAttributeNotMatched("so it is"), Unavailable),
        (asyncpg.InternalClientError("the connection broke inside an operation"), Unavailable),
        (asyncpg.UniqueViolationError("so it is"), Internal),
        (asyncpg.UndefinedTableError("so it is"), Internal),
        (asyncpg.DataCorruptedError("so it is"), Internal),
        (asyncpg.InterfaceError("misuse"), Internal),
    ],
)
def test_what_may_pass_is_distinguished_from_damage_and_bugs(error: Exception, kind: type[Exception]) -> None:
    assert type(translate(error)) is kind
