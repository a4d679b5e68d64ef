"""DescribeClientQuotas and AlterClientQuotas: there are none, and none is accepted."""

import pytest

from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
    RequestEntryData,
)
from streamhouse.wire.kafka.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from tests.wire.kafka.talk import Client

EXACT, DEFAULT, ANY = range(3)


async def describe(client: Client, *components: ComponentData, version: int = 1) -> DescribeClientQuotasResponse:
    request = DescribeClientQuotasRequest(components=list(components))
    return await client.call(request, DescribeClientQuotasResponse, version)


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize("entity", ["user", "client-id", "ip"])
async def test_nobody_has_a_quota(client: Client, version: int, entity: str) -> None:
    components = [
        ComponentData(entity_type=entity, match_type=EXACT, match="somebody"),
        ComponentData(entity_type=entity, match_type=DEFAULT, match=None),
        ComponentData(entity_type=entity, match_type=ANY, match=None),
    ]
    answer = await describe(client, *components, version=version)
    assert (answer.error_code, answer.error_message, answer.entries) == (ErrorCode.NONE, None, [])


@pytest.mark.parametrize(("entity", "match"), [("planet", EXACT), ("user", 3), ("x" * 10_000, EXACT)])
async def test_what_kafka_does_not_know_is_refused(client: Client, entity: str, match: int) -> None:
    answer = await describe(client, ComponentData(entity_type=entity, match_type=match, match=None))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert 0 < len(answer.error_message or "") < 300


@pytest.mark.parametrize("version", range(2))
async def test_a_quota_is_refused_and_removing_one_is_no_error(client: Client, version: int) -> None:
    ann, bob = (EntityData(entity_type="user", entity_name=name) for name in ("ann", None))
    request = AlterClientQuotasRequest(
        entries=[
            RequestEntryData(entity=[ann], ops=[OpData(key="producer_byte_rate", value=1024.0)]),
            RequestEntryData(entity=[bob], ops=[OpData(key="producer_byte_rate", remove=True)]),
        ]
    )
    answer = await client.call(request, AlterClientQuotasResponse, version)
    refused, removed = answer.entries
    assert (refused.error_code, refused.entity) == (ErrorCode.UNSUPPORTED_VERSION, [ann])
    assert refused.error_message
    assert (removed.error_code, removed.entity, removed.error_message) == (ErrorCode.NONE, [bob], None)
