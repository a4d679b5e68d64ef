"""Changes in one store are heard in another, and listening goes on by itself whatever happens to its connection."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from streamhouse.model.cluster import Change, ChangeKind
from streamhouse.stores.metadata.postgres import PostgresMetadataStore
from streamhouse.stores.metadata.postgres.connection import PostgresSettings
from streamhouse.stores.metadata.postgres.notifications import change_of, payload_of
from tests.contracts.metadata_changes import EVERYTHING, SESSIONS, Ear, leases, listening, topics
from tests.contracts.metadata_scene import ALICE, BOB, ORDERS, lead, new_session, part, topic
from tests.stores.postgres.conftest import start_postgres
from tests.support.postgres import RealPostgres
from tests.support.proxies.tunnel import Tunnel

pytestmark = pytest.mark.postgres

BRIEF = PostgresSettings(timeout_s=0.5, connect_timeout_s=0.4, listen_check_s=0.1, listen_again_max_s=0.2)
CONNECTIONS = "SELECT pid FROM pg_stat_activity WHERE query ~ '^LISTEN|pg_is_in_recovery' AND datname = 'facts'"


def hears(store: PostgresMetadataStore) -> bool:
    return store.is_listening


@pytest.fixture(scope="module")
def server() -> Iterator[RealPostgres]:
    """A server that these tests may kill."""
    with start_postgres() as server:
        yield server


@pytest.fixture
async def stores(server: RealPostgres) -> AsyncIterator[list[PostgresMetadataStore]]:
    """Two agents' stores on one database."""
    admin = await asyncpg.connect(server.dsn())
    await admin.execute("DROP DATABASE IF EXISTS facts WITH (FORCE)")
    await admin.execute("CREATE DATABASE facts TEMPLATE template0")
    await admin.close()
    stores = [await PostgresMetadataStore(server.dsn("facts"), BRIEF).open() for _ in range(2)]
    yield stores
    for store in stores:
        await store.aclose()


async def test_a_change_in_one_store_is_heard_in_the_other(stores: list[PostgresMetadataStore]) -> None:
    here, there = stores
    ear = await listening(there)
    await here.create_topic(topic())
    await here.open_session(new_session(ALICE))
    await lead(here, ALICE, part(0), part(1))
    await here.end_session(ALICE)
    assert [await ear.next() for _ in range(5)] == [topics(), SESSIONS, leases(), SESSIONS, leases()]


async def test_nobody_listens_before_someone_subscribes_and_one_connection_is_enough(
    server: RealPostgres, stores: list[PostgresMetadataStore]
) -> None:
    admin = await asyncpg.connect(server.dsn())
    assert not hears(stores[0])
    assert await admin.fetch(CONNECTIONS) == []
    ears = [await listening(stores[0]) for _ in range(5)]
    await stores[1].create_topic(topic())
    for ear in ears:
        assert await ear.next() == topics()
    assert len(await admin.fetch(CONNECTIONS)) == 1
    await admin.close()


async def test_a_connection_that_is_cut_is_made_again_and_what_was_missed_is_everything(
    server: RealPostgres, stores: list[PostgresMetadataStore]
) -> None:
    ear = await listening(stores[0])
    admin = await asyncpg.connect(server.dsn())
    [pid] = [row["pid"] for row in await admin.fetch(CONNECTIONS)]
    await admin.execute("SELECT pg_terminate_backend($1)", pid)
    assert await ear.next() == EVERYTHING
    assert await ear.next() == EVERYTHING
    assert hears(stores[0])
    await stores[1].create_topic(topic())
    assert await ear.next() == topics()
    await admin.close()


async def test_a_network_that_swallows_everything_is_noticed_and_survived(
    server: RealPostgres, stores: list[PostgresMetadataStore]
) -> None:
    async with Tunnel(server.port) as tunnel:
        dsn = server.dsn("facts").replace(f":{server.port}", f":{tunnel.port}")
        far = await PostgresMetadataStore(dsn, BRIEF).open()
        ear = await listening(far)
        tunnel.swallow()
        assert await ear.next() == EVERYTHING
        assert not hears(far)
        await stores[0].create_topic(topic())  # nobody will ever tell
        tunnel.heal()
        assert await ear.next() == EVERYTHING
        assert hears(far)
        await stores[0].open_session(new_session(ALICE))
        assert await ear.next() == SESSIONS
        await far.aclose()
        assert not hears(far)


async def test_listening_goes_on_after_restarts_of_the_server(
    server: RealPostgres, stores: list[PostgresMetadataStore]
) -> None:
    ear = await listening(stores[0])
    for _ in range(2):
        await asyncio.to_thread(server.kill)
        assert await ear.next() == EVERYTHING
        assert not hears(stores[0])
        await asyncio.to_thread(server.start)
        assert await ear.next() == EVERYTHING
        assert hears(stores[0])
    other = await PostgresMetadataStore(server.dsn("facts")).open()
    await other.create_topic(topic())
    assert await ear.next() == topics()
    await other.aclose()


async def test_a_server_that_is_away_at_the_first_subscription_is_listened_to_later(
    server: RealPostgres, stores: list[PostgresMetadataStore]
) -> None:
    await asyncio.to_thread(server.kill)
    ear = Ear(stores[0])
    assert not hears(stores[0])
    await asyncio.to_thread(server.start)
    assert await ear.next() == EVERYTHING
    assert hears(stores[0])


async def test_listening_moves_to_the_standby_that_was_promoted() -> None:
    primary = start_postgres()
    with primary:
        standby = primary.standby()
        await asyncio.to_thread(standby.__enter__)
        try:
            url = primary.dsn().replace(primary.address, f"{primary.address},{standby.address}")
            store = await PostgresMetadataStore(url, BRIEF).open()
            ear = await listening(store)
            await asyncio.to_thread(primary.kill)
            assert await ear.next() == EVERYTHING
            await asyncio.to_thread(standby.promote)
            assert await ear.next() == EVERYTHING
            other = await PostgresMetadataStore(standby.dsn(), BRIEF).open()
            await other.open_session(new_session(BOB))
            assert await ear.next() == SESSIONS
            await other.aclose()
            await store.aclose()
        finally:
            await asyncio.to_thread(standby.__exit__)


async def test_a_closed_store_listens_no_more_and_never_again(
    server: RealPostgres, stores: list[PostgresMetadataStore]
) -> None:
    await listening(stores[0])
    await stores[0].aclose()
    assert not hears(stores[0])
    stores[0].subscribe(lambda change: None)()
    admin = await asyncpg.connect(server.dsn())
    async with asyncio.timeout(10):
        while await admin.fetch(CONNECTIONS):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await admin.close()
    assert not hears(stores[0])


@pytest.mark.parametrize("change", [Change(kind, topic_id) for kind in ChangeKind for topic_id in (None, ORDERS)])
def test_a_change_is_sent_as_it_is_heard(change: Change) -> None:
    assert change_of(payload_of(change)) == change


@pytest.mark.parametrize("payload", ["", "quotas", "topics x", "topics 1 2"])
def test_what_is_not_understood_may_mean_anything(payload: str) -> None:
    assert change_of(payload) == EVERYTHING
