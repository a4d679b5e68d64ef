"""Opening a database: migrations, and what whoever starts an agent is told when it can't be used."""

import asyncio
from urllib.parse import urlsplit

import asyncpg
import pytest

from streamhouse.clock import SystemClock
from streamhouse.config import MetadataSettings
from streamhouse.errors import Misconfigured
from streamhouse.stores.metadata.open import open_metadata_store
from streamhouse.stores.metadata.postgres import PostgresMetadataStore, migrations
from streamhouse.stores.metadata.postgres.connection import ENGINE, bind, parse_url, postgres_statements
from streamhouse.stores.metadata.postgres.migrations import check_server
from streamhouse.stores.metadata.sqlite.database import Database, SqliteSettings
from streamhouse.stores.metadata.statements import Migration, load_migrations
from tests.contracts.metadata_producing import begin, end
from tests.contracts.metadata_scene import part, topic
from tests.support.postgres import Databases, database_of

pytestmark = pytest.mark.postgres

PASSWORD = "open-sesame"
NEXT = len(load_migrations(ENGINE)) + 1


def at(dsn: str, *, user: str = "streamhouse", database: str | None = None, port: int | None = None) -> str:
    parts = urlsplit(dsn)
    return f"postgresql://{user}@{parts.hostname}:{port or parts.port}/{database or database_of(dsn)}"


async def refused(dsn: str) -> str:
    with pytest.raises(Misconfigured) as refusal:
        await PostgresMetadataStore(dsn).open()
    assert PASSWORD not in str(refusal.value)
    return str(refusal.value)


async def test_what_was_written_is_there_after_the_store_is_opened_again(empty_database: str) -> None:
    for _ in range(2):
        store = await open_metadata_store(empty_database, clock=SystemClock(), settings=MetadataSettings())
        await store.create_topic(topic())
        assert list(await store.topics()) == [topic()]
        await store.aclose()


async def test_agents_that_open_one_new_database_at_once_all_succeed(empty_database: str) -> None:
    stores = await asyncio.gather(*(PostgresMetadataStore(empty_database).open() for _ in range(4)))
    await stores[0].create_topic(topic())
    assert list(await stores[3].topics()) == [topic()]
    for store in stores:
        await store.aclose()


async def test_a_database_of_a_newer_release_is_refused_with_advice(databases: Databases, empty_database: str) -> None:
    await (await PostgresMetadataStore(empty_database).open()).aclose()
    await databases.run("INSERT INTO schema_version VALUES (999, 'from_the_future', 0)", dsn=empty_database)
    text = await refused(empty_database)
    assert "newer release; schema=999" in text
    assert "do=run that release or a later one" in text


async def test_an_older_schema_that_this_user_may_not_change_is_refused_with_advice(
    databases: Databases, empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await PostgresMetadataStore(empty_database).open()).aclose()
    await databases.run(
        "DROP ROLE IF EXISTS reader",
        "CREATE ROLE reader LOGIN",
        "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader",
        dsn=empty_database,
    )
    known = (*load_migrations(ENGINE), Migration(version=NEXT, name="next", sql="ALTER TABLE topics ADD COLUMN x TEXT"))
    monkeypatch.setattr(migrations, "load_migrations", lambda engine: known)
    text = await refused(at(empty_database, user="reader"))
    assert f"of an older release, and this user may not change its tables; schema={NEXT - 1} needed={NEXT}" in text
    assert "do=start one agent as the tables' owner" in text
    await databases.run("DROP OWNED BY reader", dsn=empty_database)
    await (await PostgresMetadataStore(empty_database).open()).aclose()


async def test_a_database_from_before_transactions_has_room_for_them(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(migrations, "load_migrations", lambda engine: load_migrations(ENGINE)[:7])
        store = await PostgresMetadataStore(empty_database).open()
        await store.create_topic(topic())
        await store.aclose()
    store = await PostgresMetadataStore(empty_database).open()
    assert await store.schema_version() == len(load_migrations(ENGINE))
    call = await begin(store, "t", part(0))
    assert (await end(store, call)).partitions == (part(0),)
    await store.aclose()


async def test_a_migration_that_fails_leaves_everything_as_it_was(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = (*load_migrations(ENGINE), Migration(version=NEXT, name="broken", sql="SELECT 1 / 0"))
    with monkeypatch.context() as broken:
        broken.setattr(migrations, "load_migrations", lambda engine: known)
        assert "division by zero" in await refused(empty_database)
    connection = await asyncpg.connect(empty_database)
    assert await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0
    await connection.close()


async def test_a_user_without_rights_is_told_what_to_grant(databases: Databases, empty_database: str) -> None:
    await databases.run("DROP ROLE IF EXISTS guest", "CREATE ROLE guest LOGIN")
    await databases.run("REVOKE CREATE ON SCHEMA public FROM PUBLIC", dsn=empty_database)
    text = await refused(at(empty_database, user="guest"))
    assert "this user may not create tables" in text
    assert "do=GRANT CREATE ON SCHEMA" in text


async def test_a_wrong_password_is_named_and_not_repeated(databases: Databases) -> None:
    await databases.run("DROP ROLE IF EXISTS guarded", "CREATE ROLE guarded LOGIN PASSWORD 'something-else'")
    text = await refused(at(databases.named("postgres"), user=f"guarded:{PASSWORD}"))
    assert "the user or the password is wrong" in text
    assert "do=check the user and the password" in text


async def test_a_missing_database_is_named(databases: Databases) -> None:
    text = await refused(at(databases.named("nowhere")))
    assert "there is no such database" in text
    assert "/nowhere" in text


async def test_a_port_where_nobody_listens_is_named(databases: Databases) -> None:
    text = await refused(at(databases.named("postgres"), user=f"x:{PASSWORD}", port=1))
    assert "no server answers; where=127.0.0.1:1/postgres" in text
    assert "do=check host and port" in text


async def test_an_option_that_nobody_knows_is_named(databases: Databases) -> None:
    assert "no_such_option" in await refused(databases.named("postgres") + "?no_such_option=1")


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ann:{PASSWORD}@db:5432",
        f"postgresql://ann:{PASSWORD}#1@db:5432/facts",
        f"postgresql://ann:{PASSWORD}/1@db:5432/facts",
        f"postgresql://ann:x@db:{PASSWORD}/facts?sslmode={PASSWORD}",
    ],
)
async def test_a_url_that_makes_no_sense_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(Misconfigured) as refusal:
        await open_metadata_store(url, clock=SystemClock(), settings=MetadataSettings(connect_timeout_s=0.5))
    assert "do=" in str(refusal.value)
    assert PASSWORD not in str(refusal.value).replace(f"where=db:{PASSWORD}", "")


def test_servers_that_are_too_old_or_speak_another_encoding_are_refused() -> None:
    check_server(130000, "UTF8", "here")
    with pytest.raises(Misconfigured, match="too old; version=12 needed=13"):
        check_server(120015, "UTF8", "here")
    with pytest.raises(Misconfigured, match="encoding=SQL_ASCII"):
        check_server(150000, "SQL_ASCII", "here")


def test_every_host_of_a_url_is_tried_for_one_that_takes_writes() -> None:
    url = parse_url("postgres://ann:pw@one:1,two:2/facts?sslmode=require")
    assert url.hosts == tuple(
        f"postgresql://ann:pw@{host}/facts?sslmode=require&target_session_attrs=read-write"
        for host in ("one:1", "two:2")
    )
    assert url.where == "one:1,two:2/facts"
    assert "pw" not in repr(url)
    [only] = parse_url("postgresql:///facts?host=/run/postgresql&target_session_attrs=any").hosts
    assert only == "postgresql:///facts?host=/run/postgresql&target_session_attrs=any"


def test_parameters_are_numbered_once_and_casts_are_left_alone() -> None:
    bound = bind("SELECT :b::text, :a, :b FROM json_each(:c) AS wanted;")
    assert bound.text == "SELECT $1::text, $2, $1 FROM jsonb_array_elements(CAST($3 AS jsonb)) AS wanted (value)"
    assert bound.names == ("b", "a", "c")
    assert "json_each" not in bind(postgres_statements().find_partitions).text


async def test_both_engines_have_the_same_tables_and_columns(empty_database: str) -> None:
    await (await PostgresMetadataStore(empty_database).open()).aclose()
    connection = await asyncpg.connect(empty_database)
    here = await connection.fetch(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'"
    )
    await connection.close()
    sqlite = Database(":memory:", clock=SystemClock(), settings=SqliteSettings())
    await sqlite.open()
    there = await sqlite.read(
        lambda tx: tx.rows(
            "SELECT m.name, c.name FROM sqlite_schema AS m, pragma_table_info(m.name) AS c WHERE m.type = 'table'"
        )
    )
    await sqlite.aclose()
    assert {tuple(row) for row in here} == {tuple(row) for row in there}


async def test_commits_wait_for_the_disk_whatever_the_servers_default_is(
    databases: Databases, empty_database: str
) -> None:
    await databases.run(f"ALTER DATABASE {database_of(empty_database)} SET synchronous_commit = off")
    store = await PostgresMetadataStore(empty_database).open()
    connection: asyncpg.Connection = await store._database._connect()
    assert await connection.fetchval("SHOW synchronous_commit") == "on"
    await connection.close()
    await store.aclose()
