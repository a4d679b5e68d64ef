"""What all topic_admin APIs have in common: every version is answered, and the connection goes on."""

import pytest

from streamhouse.wire.kafka.api_registry import APIS
from streamhouse.wire.kafka.messages import REQUESTS
from streamhouse.wire.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.wire.kafka.talk import Client

KEYS = (21, 29, 30, 31, 32, 33, 34, 35, 37, 38, 39, 40, 41, 43, 44, 45, 46, 48, 49, 50, 51, 60, 61, 74, 75)
CASES = [(key, version) for key in KEYS for version in range(APIS[key].first, APIS[key].last + 1)]


@pytest.mark.parametrize(("key", "version"), CASES)
async def test_an_empty_request_is_answered_in_every_version(client: Client, key: int, version: int) -> None:
    request = REQUESTS[key]()
    await client.call(request, request.response_class, version)
    await client.call(ApiVersionsRequest(), ApiVersionsResponse, 0)


@pytest.mark.parametrize("key", KEYS)
def test_every_version_that_kafka_has_is_served(key: int) -> None:
    assert (APIS[key].first, APIS[key].last) == (REQUESTS[key].min_version, REQUESTS[key].max_version)
