"""ApiVersions: how clients and we find a common language."""

import struct

import pytest

from streamhouse.wire.kafka.api_registry import APIS
from streamhouse.wire.kafka.codec import decode, encode_bytes
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.handlers.api_versions import TELEMETRY
from streamhouse.wire.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from streamhouse.wire.kafka.messages.header import RequestHeader
from tests.wire.kafka.talk import Client


@pytest.mark.parametrize("version", range(5))
async def test_every_version_lists_what_is_served(client: Client, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="test-client", client_software_version="1.2.3-rc.1")
    response = await client.call(request, ApiVersionsResponse, version)
    assert response.error_code == ErrorCode.NONE
    listed = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    assert listed == {key: (api.advertised, api.last) for key, api in APIS.items() if key not in TELEMETRY}
    assert listed[0] == (0, 13)


@pytest.mark.parametrize(("version", "least"), [(3, 1), (4, 0)])
async def test_transactions_are_offered_in_their_newest_version_and_begin_at_0_for_clients_that_bear_it(
    client: Client, version: int, least: int
) -> None:
    request = ApiVersionsRequest(client_software_name="test-client", client_software_version="1")
    response = await client.call(request, ApiVersionsResponse, version)
    (offered,) = response.supported_features
    assert (offered.name, offered.min_version, offered.max_version) == ("transaction.version", least, 2)
    (final,) = response.finalized_features
    assert (final.name, final.min_version_level, final.max_version_level) == ("transaction.version", 2, 2)
    assert response.finalized_features_epoch >= 0


@pytest.mark.parametrize("version", [5, 99, -1])
async def test_a_version_from_the_future_gets_the_oldest_response_and_may_retry(client: Client, version: int) -> None:
    header = RequestHeader(request_api_key=18, request_api_version=version, correlation_id=3, client_id="x")
    body = encode_bytes(header, 2) + b"\xff\xff what this version means by it"
    await client.send_raw(struct.pack(">i", len(body)) + body)
    answer = await client.receive_raw()
    assert answer[:4] == struct.pack(">i", 3)
    response, _ = decode(ApiVersionsResponse, 0, answer, 4, strict=True)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert 18 in [api.api_key for api in response.api_keys]
    again = await client.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
    assert again.error_code == ErrorCode.NONE


@pytest.mark.parametrize(("name", "software_version"), [("", "1"), ("a", ""), ("a b", "1"), ("-a", "1"), ("a\n", "1")])
async def test_names_that_kafka_would_refuse_are_refused(client: Client, name: str, software_version: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=software_version)
    response = await client.call(request, ApiVersionsResponse, 3)
    assert response.error_code == ErrorCode.INVALID_REQUEST
