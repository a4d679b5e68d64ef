"""ElectLeaders: the preferred leader leads already."""

import pytest

from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from tests.wire.kafka.talk import Client, create_topic

PREFERRED, UNCLEAN = 0, 1


async def elect(
    client: Client, *requested: tuple[str, list[int]], kind: int = PREFERRED, version: int = 2
) -> ElectLeadersResponse:
    topics = [TopicPartitions(topic=name, partitions=numbers) for name, numbers in requested]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=topics or None, timeout_ms=1000)
    return await client.call(request, ElectLeadersResponse, version)


def results(response: ElectLeadersResponse) -> list[tuple[str, int, int]]:
    assert response.error_code == ErrorCode.NONE
    return [
        (topic.topic, part.partition_id, part.error_code)
        for topic in response.replica_election_results
        for part in topic.partition_result
    ]


@pytest.mark.parametrize("version", range(3))
async def test_every_version_says_that_no_election_is_needed(client: Client, version: int) -> None:
    await create_topic(client, "orders", partitions=2)
    response = await elect(client, ("orders", [0, 1]), version=version)
    assert results(response) == [("orders", number, ErrorCode.ELECTION_NOT_NEEDED) for number in (0, 1)]


@pytest.mark.parametrize("version", [1, 2])
async def test_an_unclean_election_is_not_needed_either(client: Client, version: int) -> None:
    await create_topic(client, "orders")
    response = await elect(client, ("orders", [0]), kind=UNCLEAN, version=version)
    assert results(response) == [("orders", 0, ErrorCode.ELECTION_NOT_NEEDED)]


async def test_for_all_partitions_there_is_nothing_to_report(client: Client) -> None:
    await create_topic(client, "orders")
    assert results(await elect(client)) == []


async def test_what_is_not_there_has_no_leader(client: Client) -> None:
    await create_topic(client, "orders")
    response = await elect(client, ("orders", [1, -1]), ("missing", [0]))
    assert results(response) == [
        ("orders", 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("missing", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


async def test_an_unknown_kind_of_election_is_refused(client: Client) -> None:
    response = await elect(client, kind=7)
    assert response.error_code == ErrorCode.INVALID_REQUEST
