"""Starts while the server restarts: a store that doesn't answer is waited for, a mistake is told at once."""

import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import asyncpg
import pytest

from streamhouse.agent import build_agent
from streamhouse.clock import SystemClock
from streamhouse.config import load_settings
from streamhouse.errors import Misconfigured, NotUpYet, Unavailable
from streamhouse.retry import START_RETRY_MAX_S, retry_start
from streamhouse.stores.metadata.open import open_metadata_store
from streamhouse.stores.metadata.postgres import PostgresMetadataStore, database
from streamhouse.stores.metadata.postgres.connection import Connection, on_connection_lost
from streamhouse.stores.metadata.postgres.errors import explain_start
from streamhouse.stores.metadata.postgres.migrations import prepare_schema
from tests.contracts.clocks import ManualClock, seeded_ids
from tests.stores.postgres.conftest import start_postgres
from tests.support.agent import START_TIMEOUT_S, LiveAgent
from tests.support.postgres import RealPostgres

pytestmark = pytest.mark.postgres

LIMIT_S = 30.0


@pytest.fixture(scope="module")
def server() -> Iterator[RealPostgres]:
    """A server that these tests may kill."""
    with start_postgres() as server:
        yield server


@pytest.fixture
async def facts(server: RealPostgres) -> str:
    await run(server, "DROP DATABASE IF EXISTS facts WITH (FORCE)", "CREATE DATABASE facts TEMPLATE template0")
    return server.dsn("facts")


async def run(server: RealPostgres, *statements: str) -> None:
    admin = await asyncpg.connect(server.dsn())
    for statement in statements:
        await admin.execute(statement)
    await admin.close()


class Then(ManualClock):
    """Does something at the first pause."""

    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__()
        self._act = act

    async def sleep(self, seconds: float) -> None:
        if not self.slept:
            self._act()
        await super().sleep(seconds)


def nothing() -> None:
    """The world stays as it is."""


async def opened(dsn: str, clock: ManualClock) -> None:
    step = partial(open_metadata_store, dsn, clock=SystemClock())
    store = await retry_start(step, clock=clock, ids=seeded_ids(), limit_s=LIMIT_S)
    assert list(await store.topics()) == []
    await store.aclose()


# --- opening


async def test_a_server_that_is_down_is_waited_for_and_the_log_says_so(
    server: RealPostgres, facts: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.kill()
    clock = Then(server.start)
    with caplog.at_level(logging.WARNING):
        await opened(facts, clock)
    [result] = caplog.records
    assert result.getMessage() == "a store doesn't answer, the start waits"
    assert "no server answers" in vars(result)["why"]
    assert len(clock.slept) == 1


async def test_a_server_that_restarts_between_two_statements_of_the_start_is_tried_again(
    server: RealPostgres, facts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []

    async def restarted_before(connection: Connection, where: str) -> None:
        tries.append(where)
        if len(tries) == 1:
            server.restart()
        await prepare_schema(connection, where)

    monkeypatch.setattr(database, "prepare_schema", restarted_before)
    await opened(facts, Then(nothing))
    assert len(tries) == 2


async def test_a_connection_that_is_known_to_be_closed_is_lost_and_not_used_wrongly(facts: str) -> None:
    connection: Connection = await asyncpg.connect(facts)
    with pytest.raises(asyncpg.InterfaceError), on_connection_lost(connection):
        async with connection.transaction():
            await connection.transaction().rollback()
    connection.terminate()
    with pytest.raises(ConnectionResetError, match="the server closed the connection"), on_connection_lost(connection):
        await connection.fetch("SELECT 1")


async def test_a_server_that_never_comes_is_given_up_with_its_words_and_the_setting(
    server: RealPostgres, facts: str
) -> None:
    server.kill()
    clock = Then(nothing)
    try:
        with pytest.raises(
            NotUpYet, match=r"no server answers; .* do=check host and port .* waited_s=30 setting="
        ) as result:
            await opened(facts, clock)
    finally:
        server.start()
    assert str(result.value).endswith("setting=metadata.start_wait_s")
    assert LIMIT_S <= sum(clock.slept) <= LIMIT_S + START_RETRY_MAX_S


async def test_a_wrong_password_and_a_wrong_schema_end_a_start_at_once(server: RealPostgres, facts: str) -> None:
    await run(server, "DROP ROLE IF EXISTS guarded", "CREATE ROLE guarded LOGIN PASSWORD 'right'")
    clock = Then(nothing)
    with pytest.raises(Misconfigured, match="the user or the password is wrong") as result:
        await opened(facts.replace("streamhouse@", "guarded:wrong@"), clock)
    assert not isinstance(result.value, NotUpYet)
    await opened(facts, clock)
    connection = await asyncpg.connect(facts)
    await connection.execute("INSERT INTO schema_version VALUES (999, 'from_the_future', 0)")
    await connection.close()
    with pytest.raises(Misconfigured, match="newer release; schema=999"):
        await opened(facts, clock)
    assert clock.slept == []


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionRefusedError(), NotUpYet),
        (TimeoutError(), NotUpYet),
        (asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation"), NotUpYet),
        (asyncpg.CannotConnectNowError("the database system is starting up"), NotUpYet),
        (asyncpg.AdminShutdownError("terminating connection"), NotUpYet),
        (asyncpg.TargetServerAttributeNotMatched("none is a primary"), NotUpYet),
        (asyncpg.InvalidPasswordError("no"), Misconfigured),
        (asyncpg.InvalidAuthorizationSpecificationError("no"), Misconfigured),
        (asyncpg.InvalidCatalogNameError("no"), Misconfigured),
        (asyncpg.InsufficientPrivilegeError("no"), Misconfigured),
        (ssl.SSLCertVerificationError("no"), Misconfigured),
        (asyncpg.ClientConfigurationError("no"), Misconfigured),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_only_what_may_pass_is_worth_another_try(error: Exception, kind: type[Misconfigured]) -> None:
    assert type(explain_start(error, "here")) is kind


async def test_a_step_that_keeps_failing_with_an_open_store_is_given_up_with_words() -> None:
    async def never() -> None:
        raise Unavailable("metadata store can't serve now; code=57P01")

    with pytest.raises(
        Unavailable, match=r"the agent can't start; waited_s=2 setting=metadata.start_wait_s why=.*57P01"
    ):
        await retry_start(never, clock=ManualClock(), ids=seeded_ids(), limit_s=2.0)


# --- whole agents


@pytest.mark.parametrize("call", ["cluster_id", "open_session", "membership"])
async def test_an_agent_starts_although_the_server_restarts_just_then(
    server: RealPostgres, facts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    plain, calls = getattr(PostgresMetadataStore, call), []
    comes_back = threading.Timer(0.3, server.start)

    async def restarted_before(store: PostgresMetadataStore, *given: object) -> object:
        calls.append(call)
        if len(calls) == 1:
            server.kill()
            comes_back.start()
        return await plain(store, *given)

    monkeypatch.setattr(PostgresMetadataStore, call, restarted_before)
    flags = {"kafka.listen": "127.0.0.1:0", "http.listen": "127.0.0.1:0", "grpc.listen": "", "metadata.url": facts}
    async with build_agent(load_settings({**flags, "agent.data": str(tmp_path)}, {})) as agent:
        assert agent.broker.not_ready() is None
        agent.stop()
        await agent.serve()
    comes_back.join()
    assert len(calls) > 1


def test_a_process_that_starts_before_its_server_waits_for_it(server: RealPostgres, tmp_path: Path) -> None:
    agent = LiveAgent(tmp_path / "data", "--metadata", server.dsn(), "--store", f"file://{tmp_path}/bucket")

    def start_server_once_it_waits() -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while "the start waits" not in agent.output and time.monotonic() < deadline:
            time.sleep(0.02)
        server.start()

    server.kill()
    starter = threading.Thread(target=start_server_once_it_waits)
    starter.start()
    with agent:
        starter.join()
        assert agent.stop() == 0
