"""Logging in on the wire: what is served before, in which order, for how long, and what attackers see."""

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamhouse.config import KafkaSettings, Settings
from streamhouse.model.access import Acl, AclFilter, Operation, Principal, ResourceType
from streamhouse.model.quota import QuotaEntity
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from streamhouse.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from streamhouse.wire.kafka.messages.fetch import FetchResponse
from streamhouse.wire.kafka.messages.metadata import MetadataRequest
from streamhouse.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from streamhouse.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from streamhouse.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest
from tests.wire.kafka.members import LeapingClock
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
from tests.wire.kafka.talk import (
    Client,
    Served,
    a_batch,
    a_broker,
    a_server,
    fetch_request,
    produce,
    quick_settings,
    request_bytes,
)
from tests.wire.kafka.test_incremental_alter_configs import BROKER, SET, alter, resource

MECHANISMS = ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER"]


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
        yield served


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_scram(served: Served, mechanism: str) -> None:
    client, scram = await served.client(), ScramClient(mechanism, "alice", PASSWORD)
    assert (await handshake(client, mechanism)).mechanisms == MECHANISMS
    challenge = await authenticate(client, scram.first())
    response = await authenticate(client, scram.final(challenge.auth_bytes))
    assert (response.error_code, response.auth_bytes) == (ErrorCode.NONE, scram.expected)
    assert await is_served(client)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_an_unknown_user_is_challenged_like_a_wrong_password(served: Served, mechanism: str) -> None:
    results = []
    for user in ("alice", "nobody"):
        client, scram = await served.client(), ScramClient(mechanism, user, "wrong")
        await handshake(client, mechanism)
        challenge = await authenticate(client, scram.first())
        assert challenge.error_code == ErrorCode.NONE
        response = await authenticate(client, scram.final(challenge.auth_bytes))
        results.append((response.error_code, response.error_message, response.auth_bytes))
        assert await client.is_closed()
    assert results[0] == results[1]
    assert results[0][0] == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_a_replayed_scram_exchange_fails(served: Served) -> None:
    client, scram = await served.client(), ScramClient("SCRAM-SHA-256", "alice", PASSWORD)
    await handshake(client, "SCRAM-SHA-256")
    final = scram.final((await authenticate(client, scram.first())).auth_bytes)
    assert (await authenticate(client, final)).error_code == ErrorCode.NONE
    other = await served.client()
    await handshake(other, "SCRAM-SHA-256")
    await authenticate(other, scram.first())
    assert (await authenticate(other, final)).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_plain_takes_the_passwords_of_scram_users(served: Served) -> None:
    client = await served.client()
    assert (await log_in(client)).error_code == ErrorCode.NONE
    assert await is_served(client)


@pytest.mark.parametrize("user", ["alice", "nobody", "ålice", "a" * 5000])
async def test_a_wrong_password_ends_the_connection(served: Served, user: str) -> None:
    client = await served.client()
    await handshake(client, "PLAIN")
    response = await authenticate(client, plain(user, "wrong"))
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "wrong" in (response.error_message or "")
    assert user not in (response.error_message or "")
    assert await client.is_closed()


async def test_api_keys_and_refused_tokens(served: Served) -> None:
    users = served.broker.security.users
    _, key = await users.create_key(Principal("User", "alice"), ttl_s=100)
    client = await served.client()
    await handshake(client, "OAUTHBEARER")
    response = await authenticate(client, f"n,,\x01auth=Bearer {key}\x01\x01".encode())
    assert response.error_code == ErrorCode.NONE
    assert 0 < response.session_lifetime_ms <= 100_000
    assert await is_served(client)
    other = await served.client()
    await handshake(other, "OAUTHBEARER")
    refused = await authenticate(other, b"n,,\x01auth=Bearer nonsense\x01\x01")
    assert (refused.error_code, refused.auth_bytes) == (ErrorCode.NONE, b'{"status": "invalid_token"}')
    assert (await authenticate(other, b"\x01")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert await other.is_closed()


async def test_before_a_login_only_logging_in_is_served(served: Served) -> None:
    client = await served.client()
    assert (await client.call(ApiVersionsRequest(), ApiVersionsResponse, 0)).error_code == ErrorCode.NONE
    await client.send(MetadataRequest(topics=[]), 9)
    assert await client.is_closed()


async def test_a_request_in_the_middle_of_a_login_is_not_served(served: Served) -> None:
    client = await served.client()
    await handshake(client, "SCRAM-SHA-256")
    await authenticate(client, ScramClient("SCRAM-SHA-256", "alice", PASSWORD).first())
    await client.send(MetadataRequest(topics=[]), 9)
    assert await client.is_closed()


async def test_messages_in_the_wrong_order_end_the_connection(served: Served) -> None:
    client = await served.client()
    assert (await authenticate(client, plain())).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert await client.is_closed()
    client = await served.client()
    await handshake(client, "PLAIN")
    assert (await handshake(client, "PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert await client.is_closed()


async def test_an_unknown_mechanism_is_refused_with_those_that_there_are(served: Served) -> None:
    client = await served.client()
    response = await handshake(client, "GSSAPI")
    assert (response.error_code, response.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, MECHANISMS)
    assert await client.is_closed()


async def test_messages_without_headers_after_an_old_handshake(served: Served) -> None:
    client = await served.client()
    await handshake(client, "PLAIN", version=0)
    await client.send_raw(struct.pack(">i", len(plain())) + plain())
    assert await client.receive_raw() == b""
    assert await is_served(client)
    other = await served.client()
    await handshake(other, "PLAIN", version=0)
    await other.send_raw(struct.pack(">i", 3) + b"\x00a\x00")
    assert await other.is_closed()


async def test_large_frames_are_refused_before_a_login_and_taken_after_it(served: Served) -> None:
    limit = served.broker.settings.security.login_request_bytes
    client = await served.client()
    await client.send_raw(struct.pack(">i", limit + 1))
    assert await client.is_closed()
    client = await served.client()
    await log_in(client)
    await client.send_raw(request_bytes(MetadataRequest(topics=[]), 9, 3))
    await client.receive_raw()
    await client.send_raw(struct.pack(">i", limit + 1))
    assert await is_open(client)


async def is_open(client: Client) -> bool:
    try:
        async with asyncio.timeout(0.1):
            await client.reader.read(1)
        return False
    except TimeoutError:
        return True


@pytest.mark.parametrize("security", [{"login_timeout_s": 0.2}])
async def test_a_client_that_does_not_log_in_is_closed(served: Served) -> None:
    silent, half, talking = await served.client(), await served.client(), await served.client()
    await half.send_raw(b"\x00\x00\x00\x10\x00")
    await handshake(talking, "SCRAM-SHA-256")
    assert await silent.is_closed()
    assert await half.is_closed()
    assert await talking.is_closed()
    assert served.counted("streamhouse_kafka_closed_total", why="login_timeout") == 3


async def test_a_session_ends_unless_the_client_logs_in_again(tmp_path: Path) -> None:
    chosen, clock = secure(max_reauth_s=60.0), LeapingClock()
    async with a_broker(tmp_path, chosen) as broker, login_server(broker, chosen, clock) as served:
        await broker.security.users.create("alice", PASSWORD)
        client, other = await served.client(), await served.client()
        response = await log_in(client)
        assert 0 < response.session_lifetime_ms <= 60_000
        await log_in(other)
        clock.leap(40)
        assert (await log_in(client)).error_code == ErrorCode.NONE
        clock.leap(40)
        assert await is_served(client)
        await other.send(MetadataRequest(topics=[]), 9)
        assert await other.is_closed()


async def test_the_principal_and_the_mechanism_never_change(served: Served) -> None:
    client = await served.client()
    await log_in(client)
    assert (await log_in(client, "bob")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert await client.is_closed()
    client = await served.client()
    await log_in(client)
    assert (await handshake(client, "SCRAM-SHA-256")).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert await client.is_closed()


@pytest.mark.parametrize("security", [{"failed_login_delay_s": 0.2}])
async def test_failed_logins_of_one_address_wait_for_each_other(served: Served) -> None:
    clients = [await served.client() for _ in range(3)]
    for client in clients:
        await handshake(client, "PLAIN")
    began = asyncio.get_running_loop().time()
    await asyncio.gather(*(authenticate(client, plain("alice", "wrong")) for client in clients))
    assert asyncio.get_running_loop().time() - began >= 0.59


async def test_where_nobody_logs_in_a_login_is_refused_and_the_connection_goes_on(tmp_path: Path) -> None:
    chosen = quick_settings(KafkaSettings())
    async with a_broker(tmp_path, chosen) as broker, a_server(broker, chosen) as served:
        client = await served.client()
        assert (await handshake(client, "PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await authenticate(client, plain())).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await is_served(client)


PIECES = st.sampled_from(
    [
        request_bytes(ApiVersionsRequest(), 0),
        request_bytes(SaslHandshakeRequest(mechanism="PLAIN"), 1),
        request_bytes(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 0),
        request_bytes(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1),
        request_bytes(SaslAuthenticateRequest(auth_bytes=plain(password="no")), 2),
        request_bytes(SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=x"), 1),
        request_bytes(SaslAuthenticateRequest(auth_bytes=b"\x01"), 0),
        request_bytes(MetadataRequest(topics=[]), 9),
        struct.pack(">i", 8) + b"n,,n=a,r",
        struct.pack(">ihhi", 100, 36, 2, 7),
    ]
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(PIECES | st.binary(max_size=40), max_size=8))
async def test_no_bytes_before_a_login_are_served_or_harm(served: Served, pieces: list[bytes]) -> None:
    client = await Client.connect(served.host, served.port)
    client.writer.write(b"".join(pieces))
    client.writer.write_eof()
    async with asyncio.timeout(10):
        response = await client.reader.read()
    await client.close()
    assert b"127.0.0.1" not in response  # which is in Metadata's answer
    witness = await Client.connect(served.host, served.port)
    assert (await log_in(witness)).error_code == ErrorCode.NONE
    await witness.close()


async def test_a_long_poll_whose_right_is_taken_away_gets_no_records(served: Served) -> None:
    access, bob = served.broker.security.access, Principal("User", "bob")
    rule = Acl(resource_type=ResourceType.TOPIC, name="orders", principal=bob, operation=Operation.READ)
    await served.broker.create_topic("orders", partitions=1, overrides={})
    await access.add_acls([rule])
    reader, writer = await served.client(), await served.client()
    await log_in(reader, "bob")
    await log_in(writer, "alice")
    await reader.send(fetch_request("orders", (0, 0), max_wait_ms=10_000), 12)
    await asyncio.sleep(0.1)
    await access.delete_acls([AclFilter()])
    assert (await produce(writer, "orders", (0, a_batch(b"secret"))))[0].error_code == ErrorCode.NONE
    response = await reader.receive(FetchResponse, 12)
    (part,) = response.responses[0].partitions
    assert part.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not part.records


async def test_connections_end_when_their_password_changes_or_their_user_is_gone(served: Served) -> None:
    users = served.broker.security.users
    alice, bob, key_holder = await served.client(), await served.client(), await served.client()
    await log_in(alice)
    scram = ScramClient("SCRAM-SHA-256", "bob", PASSWORD)
    await handshake(bob, "SCRAM-SHA-256")
    await authenticate(bob, scram.final((await authenticate(bob, scram.first())).auth_bytes))
    key, text = await users.create_key(Principal("User", "carol"))
    await handshake(key_holder, "OAUTHBEARER")
    assert (await authenticate(key_holder, f"n,,\x01auth=Bearer {text}\x01\x01".encode())).error_code == ErrorCode.NONE
    await asyncio.sleep(0.6)
    assert [await is_served(each) for each in (alice, bob, key_holder)] == [True, True, True]
    await users.create("alice", "another password", is_new=False)
    async with asyncio.timeout(1.0):
        assert await alice.is_closed()
    await users.delete("bob")
    async with asyncio.timeout(1.0):
        assert await bob.is_closed()
    assert await is_served(key_holder)
    await users.revoke_key(key.key_id)
    async with asyncio.timeout(1.0):
        assert await key_holder.is_closed()


@pytest.mark.parametrize("change", ["password", "deleted"])
async def test_a_login_that_began_before_its_password_was_gone_fails(served: Served, change: str) -> None:
    users = served.broker.security.users
    client, scram = await served.client(), ScramClient("SCRAM-SHA-256", "bob", PASSWORD)
    await handshake(client, "SCRAM-SHA-256")
    challenge = await authenticate(client, scram.first())
    if change == "password":
        await users.create("bob", "another one", is_new=False)
    else:
        await users.delete("bob")
    response = await authenticate(client, scram.final(challenge.auth_bytes))
    assert (response.error_code, response.auth_bytes) == (ErrorCode.SASL_AUTHENTICATION_FAILED, b"")
    assert await client.is_closed()


async def test_other_changes_end_no_connections(served: Served) -> None:
    client = await served.client()
    await log_in(client)
    rule = Acl(resource_type=ResourceType.TOPIC, name="t", principal=Principal("User", "bob"), operation=Operation.READ)
    await served.broker.security.access.add_acls([rule])
    await served.broker.security.users.create("dora", PASSWORD)
    await served.broker.security.users.delete("bob")
    await asyncio.sleep(0.6)
    assert await is_served(client)


async def test_outcomes_of_acts_are_audited_topic_by_topic(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    client = await served.client()
    await log_in(client)
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
            for name in ("good", "bad name")
        ],
        timeout_ms=1000,
        validate_only=False,
    )
    await client.call(request, CreateTopicsResponse, 7)

    async def published(records: Sequence[bytes]) -> None:
        events.extend(map(json.loads, records))

    events: list[dict[str, str]] = []
    with caplog.at_level("INFO", "streamhouse.audit"):
        await served.broker.security.audit.flush(published, agent="a")
    acts = {
        (record.operation, record.resource): record.outcome  # type: ignore[attr-defined]
        for record in caplog.records
        if getattr(record, "kind", "") == "administration"
    }
    assert set(acts.values()) == {"succeeded", "failed"}
    assert {resource: outcome for (_, resource), outcome in acts.items() if resource.startswith("topic")} in (
        {"topic good": "succeeded", "topic bad name": "failed"},
        {},
    )


async def test_changed_settings_are_audited_by_name(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    client = await served.client()
    await log_in(client)
    [changed] = await alter(
        client,
        resource(BROKER, "", (SET, "log.retention.ms", "3600000"), (SET, "message.max.bytes", "2000000")),
    )
    assert changed.error_code == ErrorCode.NONE

    async def published(_: Sequence[bytes]) -> None: ...

    with caplog.at_level("INFO", "streamhouse.audit"):
        await served.broker.security.audit.flush(published, agent="a")
    [details] = [vars(each)["details"] for each in caplog.records if vars(each).get("kind") == "administration"]
    assert details == "all agents: log.retention.ms, message.max.bytes"


async def test_what_is_produced_before_the_login_is_over_counts(served: Served) -> None:
    await served.broker.security.quotas.alter(QuotaEntity(user="alice"), {"producer_byte_rate": 10_000.0})
    client = await served.client()
    await handshake(client, "PLAIN")
    part = PartitionProduceData(index=0, records=b"x" * 13_000)
    ahead = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="!", partition_data=[part])])
    login = SaslAuthenticateRequest(auth_bytes=plain())
    await client.send_raw(request_bytes(login, 2, 2) + request_bytes(ahead, 9, 3))
    await client.receive_raw()
    client.skip_answer()
    assert (await client.receive(ProduceResponse, 9)).throttle_time_ms > 250
