"""Delegation tokens (KIP-48): made by a user, used by somebody who doesn't know the password."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from streamhouse.config.secrets import Secrets
from streamhouse.model.access import USER, Principal
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from streamhouse.wire.kafka.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from streamhouse.wire.kafka.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from streamhouse.wire.kafka.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from tests.wire.kafka.sasl.logins import (
    PASSWORD,
    ScramClient,
    authenticate,
    handshake,
    is_served,
    log_in,
    login_server,
    secure,
)
from tests.wire.kafka.talk import Client, Served, a_broker


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    settings = secure()
    secrets = Secrets(cluster_secret="a secret of this cluster")
    async with a_broker(tmp_path, settings, secrets=secrets) as broker, login_server(broker, settings) as served:
        for user in ("alice", "bob", "carol"):
            await broker.security.users.create(user, PASSWORD)
        yield served


async def a_client(served: Served, user: str) -> Client:
    client = await served.client()
    assert (await log_in(client, user)).error_code == ErrorCode.NONE
    return client


async def create(
    client: Client, *, renewer: str = "carol", owner: str | None = None, lifetime_ms: int = -1
) -> CreateDelegationTokenResponse:
    request = CreateDelegationTokenRequest(
        owner_principal_type=None if owner is None else "User",
        owner_principal_name=owner,
        renewers=[CreatableRenewers(principal_type="User", principal_name=renewer)],
        max_lifetime_ms=lifetime_ms,
    )
    return await client.call(request, CreateDelegationTokenResponse, 3)


async def log_in_with(served: Served, token_id: str, hmac: bytes) -> tuple[Client, int]:
    client = await served.client()
    scram = ScramClient("SCRAM-SHA-256", token_id, base64.b64encode(hmac).decode(), ",tokenauth=true")
    await handshake(client, "SCRAM-SHA-256")
    challenge = await authenticate(client, scram.first())
    response = await authenticate(client, scram.final(challenge.auth_bytes))
    return client, response.error_code


async def test_the_bearer_of_a_token_acts_as_its_owner(served: Served) -> None:
    made = await create(await a_client(served, "bob"))
    assert (made.error_code, made.principal_name) == (ErrorCode.NONE, "bob")
    client, code = await log_in_with(served, made.token_id, made.hmac)
    assert code == ErrorCode.NONE
    assert await is_served(client)
    (connection,) = [each for each in served.server.connections if each.login.is_by_delegation_token]
    assert str(connection.caller.principal) == "User:bob"
    assert connection.caller.expires_at_ms == made.expiry_timestamp_ms
    # A token is no way to another token.
    assert (await create(client)).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


async def test_a_wrong_hmac_and_an_unknown_token_fail_alike(served: Served) -> None:
    made = await create(await a_client(served, "bob"))
    for token_id, hmac in ((made.token_id, b"x" * 64), ("unknown", made.hmac)):
        _, code = await log_in_with(served, token_id, hmac)
        assert code == ErrorCode.SASL_AUTHENTICATION_FAILED
    client = await served.client()
    await handshake(client, "SCRAM-SHA-256")
    scram = ScramClient("SCRAM-SHA-256", made.token_id, base64.b64encode(made.hmac).decode())  # as if it were a user
    challenge = await authenticate(client, scram.first())
    failed = await authenticate(client, scram.final(challenge.auth_bytes))
    assert failed.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_owner_and_renewers_prolong_and_end_a_token(served: Served) -> None:
    made = await create(await a_client(served, "bob"), lifetime_ms=3_600_000)
    assert made.max_timestamp_ms - made.issue_timestamp_ms == 3_600_000
    carol, alice = await a_client(served, "carol"), await a_client(served, "alice")
    renew = RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=1_000)
    renewed = await carol.call(renew, RenewDelegationTokenResponse, 2)
    assert renewed.error_code == ErrorCode.NONE
    assert renewed.expiry_timestamp_ms < made.expiry_timestamp_ms
    other = await alice.call(renew, RenewDelegationTokenResponse, 2)
    assert other.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    end = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1)
    assert (await carol.call(end, ExpireDelegationTokenResponse, 2)).error_code == ErrorCode.NONE
    again = await carol.call(end, ExpireDelegationTokenResponse, 2)
    assert again.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    _, code = await log_in_with(served, made.token_id, made.hmac)
    assert code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_tokens_are_shown_to_those_whom_they_concern(served: Served) -> None:
    made = await create(await a_client(served, "bob"))
    everybody = DescribeDelegationTokenRequest(owners=None)
    for user, seen in (("bob", [made.token_id]), ("carol", [made.token_id]), ("alice", [made.token_id])):
        result = await (await a_client(served, user)).call(everybody, DescribeDelegationTokenResponse, 3)
        assert [each.token_id for each in result.tokens] == seen  # alice is a super user
    await served.broker.security.users.create("dan", PASSWORD)
    result = await (await a_client(served, "dan")).call(everybody, DescribeDelegationTokenResponse, 3)
    assert result.tokens == []
    owner = DescribeDelegationTokenOwner(principal_type="User", principal_name="carol")
    of_carol = DescribeDelegationTokenRequest(owners=[owner])
    result = await (await a_client(served, "bob")).call(of_carol, DescribeDelegationTokenResponse, 3)
    assert result.tokens == []


async def test_tokens_for_others_need_a_right(served: Served) -> None:
    refused = await create(await a_client(served, "bob"), owner="alice")
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    made = await create(await a_client(served, "alice"), owner="bob")
    assert (made.error_code, made.token_requester_principal_name) == (ErrorCode.NONE, "alice")


async def test_a_login_that_ends_soon_makes_and_sees_no_tokens(served: Served) -> None:
    """A token of the user, whose HMAC is its password, would last longer."""
    await create(await a_client(served, "alice"))
    security = served.broker.security
    lasting, expiring = [
        (await security.users.create_key(Principal(USER, "alice"), ttl_s=ttl_s))[1] for ttl_s in (None, 600.0)
    ]
    assert security.tokens is not None
    lent = security.tokens.make(Principal(USER, "alice"))
    for token, code in (
        (lasting, ErrorCode.NONE),
        (expiring, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
        (lent, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
    ):
        client = await served.client()
        await handshake(client, "OAUTHBEARER")
        message = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
        assert (await authenticate(client, message)).error_code == ErrorCode.NONE
        assert (await create(client)).error_code == code
        reported = await client.call(DescribeDelegationTokenRequest(owners=None), DescribeDelegationTokenResponse, 3)
        assert (reported.error_code, bool(reported.tokens)) == (code, code is ErrorCode.NONE)


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_every_version_makes_and_describes_tokens(served: Served, version: int) -> None:
    client = await a_client(served, "bob")
    made = await client.call(CreateDelegationTokenRequest(max_lifetime_ms=-1), CreateDelegationTokenResponse, version)
    response = await client.call(DescribeDelegationTokenRequest(owners=None), DescribeDelegationTokenResponse, version)
    assert [each.hmac for each in response.tokens] == [made.hmac]


async def test_without_a_cluster_secret_there_are_no_tokens(tmp_path: Path) -> None:
    settings = secure()
    async with a_broker(tmp_path, settings) as broker, login_server(broker, settings) as served:
        await broker.security.users.create("bob", PASSWORD)
        assert (await create(await a_client(served, "bob"))).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
