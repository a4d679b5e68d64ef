"""Attacks on a listener that asks for a login: every API before it, weaker mechanisms, rules that change in a
transaction, certificates that are exchanged while clients connect."""

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from streamhouse.config import Settings
from streamhouse.model.access import Acl, AclFilter, Operation, Principal, ResourceType
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages import REQUESTS
from streamhouse.wire.kafka.messages.end_txn import EndTxnRequest, EndTxnResponse
from streamhouse.wire.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from streamhouse.wire.kafka.sasl.login import BEFORE_LOGIN
from tests.support.certificates import make_authority
from tests.wire.http.test_secure_listeners import running
from tests.wire.kafka.sasl.logins import (
    PASSWORD,
    ScramClient,
    authenticate,
    handshake,
    is_served,
    log_in,
    login_server,
    plain,
    secure,
)
from tests.wire.kafka.talk import Client, Served, a_broker

BOB: Final = Principal("User", "bob")


@pytest.fixture
def security() -> dict[str, object]:
    return {}


@pytest.fixture
def chosen(security: dict[str, object]) -> Settings:
    return secure(**security)


@pytest.fixture
async def served(tmp_path: Path, chosen: Settings) -> AsyncIterator[Served]:
    async with a_broker(tmp_path, chosen) as broker, login_server(broker, chosen) as served:
        await broker.security.users.create("alice", PASSWORD)
        await broker.security.users.create("bob", PASSWORD)
        await broker.create_topic("orders", partitions=1, overrides={})
        yield served


async def nothing(client: Client) -> None:
    """The connection is new."""


async def old_handshake(client: Client) -> None:
    """The next frame is a message of the mechanism, without a header."""
    await handshake(client, "PLAIN", version=0)


async def half_login(client: Client) -> None:
    await handshake(client, "SCRAM-SHA-256")
    await authenticate(client, ScramClient("SCRAM-SHA-256", "alice", PASSWORD).first())


@pytest.mark.parametrize("begin", [nothing, old_handshake, half_login])
async def test_no_api_is_served_before_a_login(served: Served, begin: object) -> None:
    for key, request in sorted(REQUESTS.items()):
        for version in {request.min_version, request.max_version}:
            if key in BEFORE_LOGIN:
                continue
            client = await served.client()
            await begin(client)  # type: ignore[operator]
            header = struct.pack(">hhih", key, version, 7, -1)
            await client.send_raw(struct.pack(">i", len(header) + 40) + header + bytes(40))
            assert await client.is_closed(), request.name  # and nothing was answered
            await client.close()
    assert await served.broker.topic("orders")


@pytest.mark.parametrize("security", [{"sasl_mechanisms": "SCRAM-SHA-512"}])
@pytest.mark.parametrize("weaker", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "scram-sha-512", ""])
async def test_no_other_mechanism_than_those_of_the_settings(served: Served, weaker: str) -> None:
    client = await served.client()
    response = await handshake(client, weaker)
    assert (response.error_code, response.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["SCRAM-SHA-512"])
    assert await client.is_closed()


async def test_a_message_of_a_weaker_mechanism_is_no_login(served: Served) -> None:
    for message in (plain(), b"n,,\x01auth=Bearer x\x01\x01", ScramClient("SCRAM-SHA-256", "alice", "x").first()[3:]):
        client = await served.client()
        await handshake(client, "SCRAM-SHA-512")
        assert (await authenticate(client, message)).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await client.is_closed()


async def test_a_proof_for_the_weaker_hash_is_no_login_by_the_stronger(served: Served) -> None:
    client, weaker = await served.client(), ScramClient("SCRAM-SHA-256", "alice", PASSWORD)
    await handshake(client, "SCRAM-SHA-512")
    challenge = await authenticate(client, weaker.first())
    response = await authenticate(client, weaker.final(challenge.auth_bytes))
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_a_transaction_whose_right_is_taken_away_is_not_committed(served: Served) -> None:
    access = served.broker.security.access
    rule = Acl(resource_type=ResourceType.TRANSACTIONAL_ID, name="t", principal=BOB, operation=Operation.WRITE)
    await access.add_acls([rule])
    client = await served.client()
    await log_in(client, "bob")
    begun = await client.call(
        InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=10_000), InitProducerIdResponse, 2
    )
    assert begun.error_code == ErrorCode.NONE
    await access.delete_acls([AclFilter(principal=BOB)])
    ending = EndTxnRequest(
        transactional_id="t", producer_id=begun.producer_id, producer_epoch=begun.producer_epoch, committed=True
    )
    assert (await client.call(ending, EndTxnResponse, 2)).error_code == (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )
    await access.add_acls([rule])
    assert (await client.call(ending, EndTxnResponse, 2)).error_code != (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )
    assert await is_served(client)


async def test_certificates_are_exchanged_while_clients_connect(tmp_path: Path) -> None:
    settings = {"kafka__protocol": "SASL_SSL", "http__protocol": "SASL_SSL", "security__tls_reload_s": "0.02"}
    async with running(tmp_path, **settings) as agent:
        authority = make_authority(tmp_path, "other")
        (tmp_path / "both.pem").write_bytes((tmp_path / "ca.pem").read_bytes() + (tmp_path / "other.pem").read_bytes())
        context = ssl.create_default_context(cafile=str(tmp_path / "both.pem"))
        seen: set[str] = set()

        async def connect(port: int) -> None:
            for _ in range(40):
                _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
                seen.add(writer.get_extra_info("peercert")["serialNumber"])
                writer.close()

        async def exchange() -> None:
            for _ in range(8):
                authority.issue(tmp_path, "agent")  # the certificate and then its key: for a moment they don't fit
                await asyncio.sleep(0.04)

        async with asyncio.timeout(60):
            await asyncio.gather(
                exchange(), *(connect(port) for port in (agent.ready.kafka.port, agent.ready.http.port))
            )
        assert len(seen) > 2


async def test_a_frame_is_as_long_as_it_says_also_before_a_login(served: Served) -> None:
    for size in (-1, 0, 2**31 - 1, 200_000):
        client = await served.client()
        await client.send_raw(struct.pack(">i", size) + b"x" * 64)
        assert await client.is_closed(), size
    client = await served.client()
    assert (await log_in(client)).error_code == ErrorCode.NONE
