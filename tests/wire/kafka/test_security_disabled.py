"""ACLs, SCRAM credentials and delegation tokens: the right errors where nobody has to log in."""

import pytest

from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from streamhouse.wire.kafka.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from streamhouse.wire.kafka.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from streamhouse.wire.kafka.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from streamhouse.wire.kafka.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from streamhouse.wire.kafka.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from streamhouse.wire.kafka.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from streamhouse.wire.kafka.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from streamhouse.wire.kafka.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from tests.wire.kafka.talk import Client


@pytest.mark.parametrize("version", range(1, 4))
async def test_there_is_no_access_control_to_describe_or_change(client: Client, version: int) -> None:
    described = await client.call(DescribeAclsRequest(), DescribeAclsResponse, version)
    assert (described.error_code, described.resources) == (ErrorCode.SECURITY_DISABLED, [])
    rules = [AclCreation(resource_type=2, resource_name="orders", principal="User:ann", host="*") for _ in range(3)]
    created = await client.call(CreateAclsRequest(creations=rules), CreateAclsResponse, version)
    assert [result.error_code for result in created.results] == [ErrorCode.SECURITY_DISABLED] * 3
    filters = [DeleteAclsFilter(resource_type_filter=2) for _ in range(2)]
    deleted = await client.call(DeleteAclsRequest(filters=filters), DeleteAclsResponse, version)
    assert [result.error_code for result in deleted.filter_results] == [ErrorCode.SECURITY_DISABLED] * 2
    texts = [described.error_message, created.results[0].error_message, deleted.filter_results[0].error_message]
    assert all(texts)


@pytest.mark.parametrize("version", range(1, 3))
async def test_there_are_no_delegation_tokens(client: Client, version: int) -> None:
    created = await client.call(CreateDelegationTokenRequest(), CreateDelegationTokenResponse, version)
    renewed = await client.call(RenewDelegationTokenRequest(hmac=b"x"), RenewDelegationTokenResponse, version)
    expired = await client.call(ExpireDelegationTokenRequest(hmac=b"x"), ExpireDelegationTokenResponse, version)
    response = await client.call(DescribeDelegationTokenRequest(owners=None), DescribeDelegationTokenResponse, version)
    codes = {created.error_code, renewed.error_code, expired.error_code, response.error_code}
    assert codes == {ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED}


async def described(client: Client, users: list[str] | None) -> list[tuple[str, int]]:
    names = None if users is None else [UserName(name=name) for name in users]
    response = await client.call(
        DescribeUserScramCredentialsRequest(users=names), DescribeUserScramCredentialsResponse, 0
    )
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
    return [(result.user, result.error_code) for result in response.results]


async def test_nobody_has_credentials(client: Client) -> None:
    assert await described(client, None) == []
    assert await described(client, []) == []
    assert await described(client, ["ann", "bob", "bob"]) == [
        ("ann", ErrorCode.RESOURCE_NOT_FOUND),
        ("bob", ErrorCode.DUPLICATE_RESOURCE),
    ]


def added(name: str, mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
    salted = b"secret!!" * (4 if mechanism == 1 else 8)
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted
    )


def few(name: str) -> ScramCredentialUpsertion:
    return added(name, iterations=4095)


async def test_credentials_are_changed_user_by_user(client: Client) -> None:
    request = AlterUserScramCredentialsRequest(
        deletions=[
            ScramCredentialDeletion(name="ann", mechanism=1),
            ScramCredentialDeletion(name="bob", mechanism=1),
        ],
        upsertions=[added("bob"), added("carol"), added("carol", mechanism=2), added(""), added("dan", 9), few("eve")],
    )
    response = await client.call(request, AlterUserScramCredentialsResponse, 0)
    assert {result.user: result.error_code for result in response.results} == {
        "ann": ErrorCode.RESOURCE_NOT_FOUND,
        "bob": ErrorCode.DUPLICATE_RESOURCE,
        "carol": ErrorCode.NONE,
        "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "dan": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        "eve": ErrorCode.UNACCEPTABLE_CREDENTIAL,
    }
    assert not any("secret" in (result.error_message or "") for result in response.results)
    assert await described(client, None) == [("carol", ErrorCode.NONE)]
    gone = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="carol", mechanism=mechanism) for mechanism in (1, 2)]
    )
    await client.call(gone, AlterUserScramCredentialsResponse, 0)
    assert await described(client, None) == []
