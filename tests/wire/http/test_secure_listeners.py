"""Listeners of an agent: TLS, logins, certificates of clients, and what a listener without a login lets through."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx
import pytest

from streamhouse.agent import Agent, build_agent
from streamhouse.config import load_settings
from streamhouse.model.access import USER, Acl, AclFilter, CredentialRef, Operation, Principal, ResourceType
from streamhouse.wire import authorization
from tests.support.certificates import make_authority
from tests.wire.security import PASSWORD, basic

READS: Final = Acl(
    resource_type=ResourceType.TOPIC, name="orders", principal=Principal(USER, "reader"), operation=Operation.READ
)


@asynccontextmanager
async def running(folder: Path, **changes: str) -> AsyncIterator[Agent]:
    authority = make_authority(folder)
    for name in ("agent", "admin"):
        authority.issue(folder, name)
    (folder / "password").write_text(PASSWORD)
    given: Mapping[str, str] = {
        "agent.data": str(folder / "data"),
        "wal.fsync": "never",
        "kafka.listen": "127.0.0.1:0",
        "http.listen": "127.0.0.1:0",
        "grpc.listen": "",
        "security.authorization": "acls",
        "security.bootstrap_user": "admin",
        "security.bootstrap_password": f"file:{folder / 'password'}",
        "security.tls_certificate": str(folder / "agent.pem"),
        "security.tls_key": str(folder / "agent.key"),
        "security.tls_ca": str(folder / "ca.pem"),
        "security.failed_login_delay_s": "0.05",
        **{name.replace("__", "."): value for name, value in changes.items()},
    }
    async with build_agent(load_settings(given, {})) as agent:
        serving = asyncio.create_task(agent.serve())
        try:
            yield agent
        finally:
            agent.stop()
            await serving


def client_of(agent: Agent, folder: Path, *, scheme: str = "https", certificate: str = "") -> httpx.AsyncClient:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    if certificate:
        context.load_cert_chain(folder / f"{certificate}.pem", folder / f"{certificate}.key")
    url = f"{scheme}://127.0.0.1:{agent.ready.http.port}"
    return httpx.AsyncClient(base_url=url, verify=context, trust_env=False, timeout=20)


async def test_a_login_over_tls(tmp_path: Path) -> None:
    async with running(tmp_path, http__protocol="SASL_SSL") as agent, client_of(agent, tmp_path) as http:
        assert (await http.get("/health/ready")).status_code == 200
        assert (await http.get("/v1/agents")).status_code == 401
        assert (await http.get("/v1/agents", headers=basic("admin", "wrong"))).status_code == 401
        assert (await http.get("/v1/agents", headers=basic("admin"))).status_code == 200
        refused = await http.get("/subjects")
        assert (refused.status_code, refused.json()["error_code"]) == (401, 40101)
        async with client_of(agent, tmp_path, scheme="http") as plain:
            with pytest.raises(httpx.HTTPError):
                await plain.get("/health/ready")


async def test_where_a_client_is_says_its_connection_and_no_header(tmp_path: Path) -> None:
    """Rules for hosts, the delay of wrong logins and the audit log go by it."""
    async with running(tmp_path, http__protocol="SASL_SSL") as agent, client_of(agent, tmp_path) as http:
        spoofed = {"x-forwarded-for": "10.1.2.3", "x-forwarded-proto": "http", "x-real-ip": "10.1.2.3"}
        response = await http.get("/v1/whoami", headers={**basic("admin"), **spoofed, "forwarded": "for=10.1.2.3"})
        assert response.json()["host"] == "127.0.0.1"


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT"])
async def test_an_address_is_the_same_on_a_socket_for_both_kinds(tmp_path: Path, protocol: str) -> None:
    """Or a rule that denies 10.0.0.0/8 something would not hold for ::ffff:10.0.0.1."""
    settings = {"http__protocol": protocol, "http__listen": "[::]:0", "http__advertise": "localhost:8080"}
    scheme = "https" if protocol == "SASL_SSL" else "http"
    async with running(tmp_path, **settings) as agent, client_of(agent, tmp_path, scheme=scheme) as http:
        response = await http.get("/v1/whoami", headers=basic("admin"))
        assert response.json()["host"] == "127.0.0.1"


async def test_a_client_is_who_its_certificate_names(tmp_path: Path) -> None:
    settings = {
        "http__protocol": "SSL",
        "security__tls_client_auth": "requested",
        "security__tls_principal_rules": "RULE:^.*CN=([a-z]+).*$/$1/,DEFAULT",
    }
    async with running(tmp_path, **settings) as agent:
        # The bootstrap user is a super user, and this certificate's name is its name.
        async with client_of(agent, tmp_path, certificate="admin") as admin:
            assert (await admin.get("/v1/agents")).status_code == 200
        async with client_of(agent, tmp_path) as nobody:
            assert (await nobody.get("/v1/agents")).status_code == 403


async def test_a_stream_ends_when_the_right_to_read_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorization, "CHECK_S", 0.05)
    async with running(tmp_path, http__protocol="SASL_SSL") as agent, client_of(agent, tmp_path) as http:
        await agent.broker.create_topic("orders", partitions=1, overrides={})
        reading = {**await _reader(agent), "accept": "application/x-ndjson"}
        async with asyncio.timeout(10), http.stream("GET", "/v1/topics/orders/records", headers=reading) as response:
            assert response.status_code == 200
            lines = response.aiter_lines()
            await agent.broker.security.access.delete_acls([AclFilter(principal=READS.principal)])
            assert "not authorised" in await anext(lines)
            assert [line async for line in lines] == []


async def test_a_stream_ends_when_its_user_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorization, "CHECK_S", 0.05)
    async with running(tmp_path, http__protocol="SASL_SSL") as agent, client_of(agent, tmp_path) as http:
        await agent.broker.create_topic("orders", partitions=1, overrides={})
        reading = {**await _reader(agent), "accept": "application/x-ndjson"}
        async with asyncio.timeout(10), http.stream("GET", "/v1/topics/orders/records", headers=reading) as response:
            await agent.broker.security.users.delete("reader")
            assert "NotAuthenticated" in await anext(response.aiter_lines())


async def test_a_stream_ends_whose_user_is_deleted_while_it_logs_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authorization, "CHECK_S", 0.05)
    async with running(tmp_path, http__protocol="SASL_SSL") as agent, client_of(agent, tmp_path) as http:
        await agent.broker.create_topic("orders", partitions=1, overrides={})
        reading = {**await _reader(agent), "accept": "application/x-ndjson"}
        users = agent.broker.security.users
        check = users.check_password

        async def deleted_meanwhile(name: str, password: str) -> CredentialRef:
            shown = await check(name, password)
            await users.delete(name)
            return shown

        monkeypatch.setattr(users, "check_password", deleted_meanwhile)
        async with asyncio.timeout(10), http.stream("GET", "/v1/topics/orders/records", headers=reading) as response:
            assert "NotAuthenticated" in await anext(response.aiter_lines())


async def test_a_long_poll_ends_when_the_right_to_read_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorization, "CHECK_S", 0.05)
    async with running(tmp_path, http__protocol="SASL_SSL") as agent, client_of(agent, tmp_path) as http:
        await agent.broker.create_topic("orders", partitions=1, overrides={})
        reading = await _reader(agent)
        path = "/v1/topics/orders/partitions/0/records?offset=0&wait_ms=9000"
        polling = asyncio.create_task(http.get(path, headers=reading))
        await asyncio.sleep(0.3)
        await agent.broker.security.access.delete_acls([AclFilter(principal=READS.principal)])
        async with asyncio.timeout(5):
            assert (await polling).status_code == 403


async def _reader(agent: Agent) -> Mapping[str, str]:
    """A user who may read orders, and how it logs in."""
    security = agent.broker.security
    await security.users.create("reader", PASSWORD)
    await security.access.add_acls([READS])
    return basic("reader")
