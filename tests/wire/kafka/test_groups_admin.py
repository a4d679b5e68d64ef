"""DescribeGroups, ListGroups, DeleteGroups, and what is said of groups of the newer protocol."""

import pytest

from streamhouse.config import Settings
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from streamhouse.wire.kafka.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from streamhouse.wire.kafka.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from streamhouse.wire.kafka.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from streamhouse.wire.kafka.messages.offset_commit import OffsetCommitResponse
from tests.wire.kafka.members import (
    a_group,
    a_member,
    commit_request,
    committed,
    group_settings,
    join_all,
    rebalance,
    state_of,
)
from tests.wire.kafka.operation_bits import GROUP_OPERATIONS, NOT_REQUESTED
from tests.wire.kafka.talk import Client, Served, create_topic


@pytest.fixture
def settings() -> Settings:
    return group_settings()


async def a_simple_group(client: Client, group_id: str) -> None:
    """One that nobody ever joined: offsets were committed under its name."""
    await create_topic(client, f"of-{group_id}")
    response = await client.call(commit_request(f"of-{group_id}", {0: 1}, group_id=group_id), OffsetCommitResponse, 9)
    assert response.topics[0].partitions[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(7))
async def test_a_stable_group_is_described_with_what_each_member_has(
    served: Served, client: Client, version: int
) -> None:
    static = await a_member(served, instance_id="i")
    await rebalance(served, static)
    request = DescribeGroupsRequest(groups=["g", "g"], include_authorized_operations=version >= 3)
    (group,) = (await client.call(request, DescribeGroupsResponse, version)).groups
    assert (group.error_code, group.group_id, group.group_state) == (0, "g", "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    assert group.authorized_operations == (GROUP_OPERATIONS if version >= 3 else NOT_REQUESTED)
    (member,) = group.members
    assert (member.member_id, member.client_id, member.client_host) == (static.member_id, "test", "/127.0.0.1")
    assert member.group_instance_id == ("i" if version >= 4 else None)
    assert bytes(member.member_metadata) == b"what I read"
    assert bytes(member.member_assignment) == f"for {static.member_id}".encode()


@pytest.mark.parametrize("version", range(7))
async def test_a_group_that_is_not_there_is_dead_or_not_found(client: Client, version: int) -> None:
    (group,) = (await client.call(DescribeGroupsRequest(groups=["x"]), DescribeGroupsResponse, version)).groups
    assert group.group_state == "Dead"
    if version >= 6:
        assert group.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert "no such group" in (group.error_message or "")
    else:
        assert group.error_code == ErrorCode.NONE


async def test_while_a_group_is_assigned_its_members_have_nothing_to_report(served: Served, client: Client) -> None:
    members = await a_group(served, 2)
    await join_all(served, *members)
    (group,) = (await client.call(DescribeGroupsRequest(groups=["g"]), DescribeGroupsResponse, 6)).groups
    assert (group.group_state, group.protocol_data, len(group.members)) == ("CompletingRebalance", "", 2)
    assert {bytes(member.member_assignment) for member in group.members} == {b""}


@pytest.mark.parametrize("version", range(6))
async def test_groups_are_listed_by_name(served: Served, client: Client, version: int) -> None:
    await a_simple_group(client, "simple")
    await a_group(served, 1, "busy")
    response = await client.call(ListGroupsRequest(), ListGroupsResponse, version)
    assert [(group.group_id, group.protocol_type) for group in response.groups] == [
        ("busy", "consumer"),
        ("simple", ""),
    ]
    states, types = (["Stable", "Empty"] if version >= 4 else [""] * 2), (["classic"] if version >= 5 else [""]) * 2
    assert [group.group_state for group in response.groups] == states
    assert [group.group_type for group in response.groups] == types


async def test_groups_are_listed_by_state_and_type(served: Served, client: Client) -> None:
    await a_simple_group(client, "simple")
    await a_group(served, 1, "busy")

    async def listed(version: int, states: list[str], types: list[str]) -> list[str]:
        request = ListGroupsRequest(states_filter=states, types_filter=types)
        return [group.group_id for group in (await client.call(request, ListGroupsResponse, version)).groups]

    assert await listed(4, ["Stable"], []) == ["busy"]
    assert await listed(4, ["empty", "PreparingRebalance"], []) == ["simple"]
    assert await listed(5, [], ["Classic"]) == ["busy", "simple"]
    assert await listed(5, [], ["consumer"]) == []
    assert await listed(5, ["nonsense"], []) == []


async def test_where_nobody_ever_had_a_group_there_is_none(client: Client, served: Served) -> None:
    assert (await client.call(ListGroupsRequest(), ListGroupsResponse, 5)).groups == []
    assert await served.broker.topics() == []


@pytest.mark.parametrize("version", range(4))
async def test_groups_without_members_are_deleted_with_what_they_committed(
    served: Served, client: Client, version: int
) -> None:
    await a_simple_group(client, "simple")
    (member,) = await a_group(served, 1, "busy")
    request = DeleteGroupsRequest(groups_names=["simple", "busy", "never", "simple"])
    response = await client.call(request, DeleteGroupsResponse, version)
    assert [(result.group_id, result.error_code) for result in response.results] == [
        ("simple", 0),
        ("busy", ErrorCode.NON_EMPTY_GROUP),
        ("never", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    assert [bool(result.error_message) for result in response.results] == [False, version >= 3, version >= 3]
    assert await committed(client, "of-simple", 0, group_id="simple") == {0: -1}
    assert await state_of(served, "busy") == "Stable"
    await member.leave()
    again = await client.call(DeleteGroupsRequest(groups_names=["busy"]), DeleteGroupsResponse, version)
    assert again.results[0].error_code == ErrorCode.NONE
    assert (await client.call(ListGroupsRequest(), ListGroupsResponse, 5)).groups == []


@pytest.mark.parametrize("version", [0, 1])
async def test_there_are_no_groups_of_the_newer_protocol(served: Served, client: Client, version: int) -> None:
    await a_group(served, 1)
    request = ConsumerGroupDescribeRequest(group_ids=["g", "never"])
    classic, never = (await client.call(request, ConsumerGroupDescribeResponse, version)).groups
    assert {classic.error_code, never.error_code} == {ErrorCode.GROUP_ID_NOT_FOUND}
    assert classic.error_message == "not a group of the consumer protocol; group='g'"
    assert never.error_message == "no such group; group='never'"


async def test_an_agent_that_stops_shows_nothing_of_groups(served: Served, client: Client) -> None:
    await a_group(served, 1)
    served.broker.stop()
    (described,) = (await client.call(DescribeGroupsRequest(groups=["g"]), DescribeGroupsResponse, 6)).groups
    assert described.error_code == ErrorCode.NOT_COORDINATOR
    request = ConsumerGroupDescribeRequest(group_ids=["g"])
    (newer,) = (await client.call(request, ConsumerGroupDescribeResponse, 1)).groups
    assert newer.error_code == ErrorCode.NOT_COORDINATOR
    (deleted,) = (await client.call(DeleteGroupsRequest(groups_names=["g"]), DeleteGroupsResponse, 2)).results
    assert deleted.error_code == ErrorCode.NOT_COORDINATOR
    assert (await client.call(ListGroupsRequest(), ListGroupsResponse, 5)).error_code in (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    )
