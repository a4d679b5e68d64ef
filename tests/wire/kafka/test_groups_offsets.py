"""OffsetCommit, OffsetFetch and OffsetDelete: what a group knows of its place, in every version."""

from pathlib import Path
from typing import Any, NoReturn
from uuid import UUID

import pytest

from streamhouse.clock import SystemClock
from streamhouse.config import Settings
from streamhouse.errors import Unavailable
from streamhouse.model.names import TopicPartition
from streamhouse.stores.objects.memory import MemoryObjectStore
from streamhouse.wire.kafka.codec import encode_bytes
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.consumer_protocol import ConsumerProtocolSubscription
from streamhouse.wire.kafka.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from streamhouse.wire.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from streamhouse.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from streamhouse.wire.kafka.schema import ZERO_UUID
from tests.wire.kafka.members import a_group, a_member, commit_request, committed, group_settings, join_all, rebalance
from tests.wire.kafka.talk import Client, Served, a_broker, a_server, create_topic

NOBODY = UUID(int=99)


@pytest.fixture
def settings() -> Settings:
    return group_settings()


@pytest.fixture
async def topic_id(served: Served) -> UUID:
    """The id of `orders`, with four partitions."""
    client = await served.client()
    await create_topic(client, "orders", partitions=4)
    return (await served.broker.topic("orders")).topic_id


async def commit(client: Client, request: OffsetCommitRequest, version: int = 9) -> list[ErrorCode]:
    response = await client.call(request, OffsetCommitResponse, version)
    return [ErrorCode(part.error_code) for topic in response.topics for part in topic.partitions]


async def fetch_one(client: Client, group: OffsetFetchRequestGroup, version: int = 9) -> OffsetFetchResponseGroup:
    (response,) = (await client.call(OffsetFetchRequest(groups=[group]), OffsetFetchResponse, version)).groups
    return response


def all_of(group_id: str) -> OffsetFetchRequestGroup:
    return OffsetFetchRequestGroup(group_id=group_id, topics=None)


# --- committing


@pytest.mark.parametrize("version", range(2, 11))
async def test_anybody_commits_for_a_group_without_members(client: Client, topic_id: UUID, version: int) -> None:
    request = commit_request("orders", {0: 10, 3: 13}, metadata="a note")
    request.topics[0].topic_id = topic_id if version >= 10 else ZERO_UUID
    response = await client.call(request, OffsetCommitResponse, version)
    (topic,) = response.topics
    assert (topic.name, topic.topic_id) == (("", topic_id) if version >= 10 else ("orders", ZERO_UUID))
    assert [(part.partition_index, part.error_code) for part in topic.partitions] == [(0, 0), (3, 0)]
    assert await committed(client, "orders", 0, 1, 2, 3) == {0: 10, 1: -1, 2: -1, 3: 13}


@pytest.mark.parametrize("version", range(2, 11))
async def test_members_of_the_generation_commit_and_others_do_not(
    served: Served, client: Client, topic_id: UUID, version: int
) -> None:
    (member,) = await a_group(served, 1)

    async def commits(member_id: str, generation: int) -> list[ErrorCode]:
        request = commit_request("orders", {0: 7}, member_id=member_id, generation=generation)
        request.topics[0].topic_id = topic_id if version >= 10 else ZERO_UUID
        return await commit(client, request, version)

    assert await commits(member.member_id, member.generation) == [ErrorCode.NONE]
    assert await commits(member.member_id, member.generation + 1) == [ErrorCode.ILLEGAL_GENERATION]
    assert await commits("nobody", member.generation) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert await commits("", -1) == [ErrorCode.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize("version", range(2, 11))
async def test_a_generation_of_no_group(client: Client, topic_id: UUID, version: int) -> None:
    request = commit_request("orders", {0: 7}, group_id="never", member_id="m", generation=3)
    request.topics[0].topic_id = topic_id if version >= 10 else ZERO_UUID
    code = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
    assert await commit(client, request, version) == [code]


async def test_members_commit_while_the_group_gathers_but_not_while_it_is_assigned(
    served: Served, topic_id: UUID
) -> None:
    first, second = await a_group(served, 2)
    leader, follower = (first, second) if first.leads else (second, first)
    await leader.begin_join()
    while await follower.heartbeat() is ErrorCode.NONE:
        pass
    assert await follower.commit("orders", {0: 5}) == [ErrorCode.NONE]
    await follower.join()
    await leader.end_join()
    assert await follower.commit("orders", {0: 6}) == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert await committed(await served.client(), "orders", 0) == {0: 5}


async def test_what_is_wrong_with_one_partition_harms_no_other(client: Client, topic_id: UUID) -> None:
    request = commit_request("orders", {0: 1, 99: 1, -1: 1, 1: -3, 2: 3})
    request.topics += commit_request("unknown", {0: 1}).topics
    request.topics[0].partitions[4].committed_metadata = "x" * 4097
    assert await commit(client, request) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert await committed(client, "orders", 0, 1, 2) == {0: 1, 1: -1, 2: -1}


async def test_the_beginning_may_be_committed_as_a_place(client: Client, topic_id: UUID) -> None:
    """kafkajs does so when offsets are reset, and understands what it reads back."""
    assert await commit(client, commit_request("orders", {0: -2, 1: -1})) == [ErrorCode.NONE] * 2
    assert await committed(client, "orders", 0, 1) == {0: -2, 1: -1}


async def test_an_unknown_topic_id_harms_no_other(client: Client, topic_id: UUID) -> None:
    request = commit_request("", {0: 1})
    request.topics += commit_request("", {1: 2}).topics
    request.topics[0].topic_id, request.topics[1].topic_id = NOBODY, topic_id
    assert await commit(client, request, 10) == [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NONE]
    assert await committed(client, "orders", 0, 1) == {0: -1, 1: 2}


async def test_a_commit_whose_client_has_gone_is_kept(served: Served, client: Client, topic_id: UUID) -> None:
    gone = await served.client()
    for offset in range(20):
        await gone.send(commit_request("orders", {0: offset}), 9)
    await gone.close()
    await client.call(commit_request("orders", {1: 1}), OffsetCommitResponse, 9)
    while await committed(client, "orders", 0) != {0: 19}:
        pass  # the last one is on its way


async def test_a_commit_of_nothing_is_answered(client: Client) -> None:
    response = await client.call(OffsetCommitRequest(group_id="g"), OffsetCommitResponse, 9)
    assert response.topics == []


# --- reading


@pytest.mark.parametrize("version", range(1, 8))
async def test_one_group_is_read(client: Client, topic_id: UUID, version: int) -> None:
    request = commit_request("orders", {0: 10}, metadata="a note")
    request.topics[0].partitions[0].committed_leader_epoch = 3
    await commit(client, request)
    requests = [
        OffsetFetchRequestTopic(name="orders", partition_indexes=[0, 1, 99]),
        OffsetFetchRequestTopic(name="unknown", partition_indexes=[0]),
    ]
    response = await client.call(OffsetFetchRequest(group_id="g", topics=requests), OffsetFetchResponse, version)
    assert response.error_code == ErrorCode.NONE
    epoch = 3 if version >= 5 else -1
    results = [
        (topic.name, part.partition_index, part.committed_offset, part.committed_leader_epoch, part.metadata)
        for topic in response.topics
        for part in topic.partitions
    ]
    assert results == [
        ("orders", 0, 10, epoch, "a note"),
        ("orders", 1, -1, -1, ""),
        ("orders", 99, -1, -1, ""),
        ("unknown", 0, -1, -1, ""),
    ]
    assert {part.error_code for topic in response.topics for part in topic.partitions} == {0}


@pytest.mark.parametrize("version", range(2, 8))
async def test_everything_that_one_group_committed(client: Client, topic_id: UUID, version: int) -> None:
    await create_topic(client, "a")
    await commit(client, commit_request("orders", {3: 13, 0: 10}))
    await commit(client, commit_request("a", {0: 1}))
    response = await client.call(OffsetFetchRequest(group_id="g", topics=None), OffsetFetchResponse, version)
    assert [(t.name, [(p.partition_index, p.committed_offset) for p in t.partitions]) for t in response.topics] == [
        ("a", [(0, 1)]),
        ("orders", [(0, 10), (3, 13)]),
    ]
    nothing = await client.call(OffsetFetchRequest(group_id="never", topics=None), OffsetFetchResponse, version)
    assert (nothing.error_code, nothing.topics) == (0, [])


@pytest.mark.parametrize("version", range(8, 11))
async def test_several_groups_are_read_each_on_its_own(client: Client, topic_id: UUID, version: int) -> None:
    await commit(client, commit_request("orders", {0: 10}, group_id="a"))
    await commit(client, commit_request("orders", {1: 20}, group_id="b"))
    some = OffsetFetchRequestTopics(partition_indexes=[0, 1])
    some.name, some.topic_id = ("orders", ZERO_UUID) if version < 10 else ("", topic_id)
    groups = [
        OffsetFetchRequestGroup(group_id="a", topics=[some]),
        all_of("b"),
        OffsetFetchRequestGroup(group_id="x" * 1001, topics=[some]),
        all_of("never"),
        OffsetFetchRequestGroup(group_id="a", topics=[]),
    ]
    request = OffsetFetchRequest(groups=groups, require_stable=True)
    response = await client.call(request, OffsetFetchResponse, version)
    assert [group.group_id for group in response.groups] == [group.group_id for group in groups]
    assert [group.error_code for group in response.groups] == [0, 0, ErrorCode.INVALID_GROUP_ID, 0, 0]
    results = [
        [(t.name, t.topic_id, [(p.partition_index, p.committed_offset, p.error_code) for p in t.partitions])]
        for group in response.groups
        for t in group.topics
    ]
    named = ("orders", ZERO_UUID) if version < 10 else ("", topic_id)
    assert results == [[(*named, [(0, 10, 0), (1, -1, 0)])], [(*named, [(1, 20, 0)])]]


async def test_an_unknown_topic_id_is_said_of_its_partitions(client: Client, topic_id: UUID) -> None:
    requests = [OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0]) for each in (NOBODY, topic_id)]
    response = await fetch_one(client, OffsetFetchRequestGroup(group_id="g", topics=requests), 10)
    assert [(t.topic_id, t.partitions[0].error_code) for t in response.topics] == [
        (NOBODY, ErrorCode.UNKNOWN_TOPIC_ID),
        (topic_id, 0),
    ]


@pytest.mark.parametrize("version", [1, 2, 7, 8, 10])
async def test_while_the_store_is_away_clients_are_told_to_retry(
    served: Served, client: Client, topic_id: UUID, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the place that the version has for it; librdkafka gives up after COORDINATOR_NOT_AVAILABLE."""

    async def away(_: object) -> NoReturn:
        raise Unavailable("the store is away")

    monkeypatch.setattr(served.broker.groups._offsets._metadata, "committed_offsets", away)
    one = OffsetFetchRequestTopic(name="orders", partition_indexes=[0])
    if version < 8:
        response = await client.call(OffsetFetchRequest(group_id="g", topics=[one]), OffsetFetchResponse, version)
        if version == 1:
            assert response.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        else:
            assert (response.error_code, response.topics) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
    else:
        group = await fetch_one(client, all_of("g"), version)
        assert group.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_a_topic_id_that_can_not_be_looked_up_now_is_requested_again(
    served: Served, client: Client, topic_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_: object) -> NoReturn:
        raise Unavailable("the store is away")

    monkeypatch.setattr(served.broker.catalog, "find_by_id", away)
    request = OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0])
    group = await fetch_one(client, OffsetFetchRequestGroup(group_id="g", topics=[request]), 10)
    assert (group.error_code, group.topics) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])


async def test_an_agent_that_stops_refuses_commits_and_goes_on_telling_offsets(
    served: Served, client: Client, topic_id: UUID
) -> None:
    await commit(client, commit_request("orders", {0: 10}))
    served.broker.stop()
    assert await commit(client, commit_request("orders", {0: 11})) == [ErrorCode.NOT_COORDINATOR]
    (topic,) = (await fetch_one(client, all_of("g"))).topics
    assert [(each.partition_index, each.committed_offset) for each in topic.partitions] == [(0, 10)]


async def test_a_topic_that_is_created_anew_begins_anew(served: Served, client: Client, topic_id: UUID) -> None:
    await commit(client, commit_request("orders", {0: 10}))
    await served.broker.delete_topic(await served.broker.topic("orders"))
    assert (await fetch_one(client, all_of("g"))).topics == []
    await create_topic(client, "orders")
    assert await committed(client, "orders", 0) == {0: -1}


async def test_offsets_and_groups_survive_a_restart(tmp_path: Path, settings: Settings) -> None:
    stores: Any = {"metadata_url": f"sqlite:///{tmp_path / 'metadata.db'}", "objects": MemoryObjectStore(SystemClock())}
    async with a_broker(tmp_path, settings, **stores) as broker, a_server(broker, settings) as served:
        client = await served.client()
        await create_topic(client, "orders", partitions=2)
        await commit(client, commit_request("orders", {0: 10, 1: 20}))
    async with a_broker(tmp_path, settings, **stores) as broker, a_server(broker, settings) as served:
        client = await served.client()
        assert await committed(client, "orders", 0, 1) == {0: 10, 1: 20}
        assert [group.group_id for group in await broker.groups.list()] == ["g"]


# --- deleting


def delete_request(topic: str, *partitions: int, group_id: str = "g") -> OffsetDeleteRequest:
    parts = [OffsetDeleteRequestPartition(partition_index=partition) for partition in partitions]
    return OffsetDeleteRequest(group_id=group_id, topics=[OffsetDeleteRequestTopic(name=topic, partitions=parts)])


async def test_a_group_forgets_its_place(client: Client, topic_id: UUID) -> None:
    await commit(client, commit_request("orders", {0: 10, 1: 20}))
    response = await client.call(delete_request("orders", 0, 99), OffsetDeleteResponse, 0)
    assert response.error_code == ErrorCode.NONE
    (topic,) = response.topics
    assert [(part.partition_index, part.error_code) for part in topic.partitions] == [
        (0, 0),
        (99, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert await committed(client, "orders", 0, 1) == {0: -1, 1: 20}


async def test_nothing_is_forgotten_of_a_group_that_is_not_there(client: Client, topic_id: UUID) -> None:
    response = await client.call(delete_request("orders", 0, group_id="never"), OffsetDeleteResponse, 0)
    assert (response.error_code, response.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])


async def test_a_topic_that_members_read_is_not_forgotten_under_them(
    served: Served, client: Client, topic_id: UUID
) -> None:
    await create_topic(client, "old")
    member = await a_member(served)
    member.metadata = b"\0\1" + encode_bytes(ConsumerProtocolSubscription(topics=["orders"]), 1)
    await rebalance(served, member)
    await member.commit("orders", {0: 1})
    await member.commit("old", {0: 1})
    refused = await client.call(delete_request("orders", 0), OffsetDeleteResponse, 0)
    assert refused.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    done = await client.call(delete_request("old", 0), OffsetDeleteResponse, 0)
    assert done.topics[0].partitions[0].error_code == ErrorCode.NONE
    assert await committed(client, "orders", 0) == {0: 1}
    assert await committed(client, "old", 0) == {0: -1}


async def test_offsets_are_committed_in_the_order_of_their_requests(served: Served, topic_id: UUID) -> None:
    members = await a_group(served, 2)
    await join_all(served, *members)
    client = await served.client()
    for offset in range(50):
        await client.send(commit_request("orders", {0: offset}, group_id="other"), 9)
    for _ in range(50):
        await client.receive(OffsetCommitResponse, 9)
    result = await served.broker.groups.fetch({"other": None})
    offsets = result["other"]
    assert not isinstance(offsets, Exception)
    assert offsets[TopicPartition("orders", 0)].offset == 49
