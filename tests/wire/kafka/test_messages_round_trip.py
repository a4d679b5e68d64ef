"""Every version of every message comes back from its bytes as it went in."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamhouse.wire.kafka.codec import decode, encode_bytes
from streamhouse.wire.kafka.messages import REQUESTS, UNSERVED
from streamhouse.wire.kafka.schema import Message
from tests.wire.kafka.message_values import MESSAGES, messages, versions_of


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_defaults_come_back_in_every_version(cls: type[Message]) -> None:
    for version in versions_of(cls):
        encoded = encode_bytes(cls(), version)
        assert decode(cls, version, encoded, strict=True) == (cls(), len(encoded))


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
@given(data=st.data())
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_message_comes_back_from_its_bytes(cls: type[Message], data: st.DataObject) -> None:
    for version in versions_of(cls):
        message = data.draw(messages(cls, version))
        encoded = encode_bytes(message, version)
        assert decode(cls, version, b"\xff" + encoded, 1, strict=True) == (message, len(encoded) + 1)


def test_the_registry_knows_every_api_by_its_key() -> None:
    for key, request in REQUESTS.items():
        response = request.response_class
        assert (request.api_key, response.api_key) == (key, key)
        assert (request.min_version, request.max_version) == (response.min_version, response.max_version)
        assert request.flexible_since == response.flexible_since
        assert request.__name__ == f"{request.name}Request"
        assert response.__name__ == f"{request.name}Response"


@pytest.mark.parametrize(
    ("key", "versions"), [(0, (3, 13)), (1, (4, 18)), (3, (0, 13)), (18, (0, 5)), (22, (0, 5)), (75, (0, 0))]
)
def test_versions_are_those_of_kafka_without_unstable_ones(key: int, versions: tuple[int, int]) -> None:
    assert (REQUESTS[key].min_version, REQUESTS[key].max_version) == versions


def test_apis_between_brokers_are_not_there() -> None:
    controller_only: set[Any] = {4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, *range(82, 88)}
    assert controller_only.isdisjoint({*REQUESTS, *UNSERVED})
    assert {*range(4), *range(8, 52), 60, 61, 65, 66, 69, 71, 72, 74, 75} <= set(REQUESTS)
    assert {55, 57, 68, 76, 77, 78, 79} <= set(UNSERVED)
