"""What members read is decoded from bytes of anybody: only what exists is kept, and much of it never on the loop."""

import struct
import threading
import uuid
from typing import Any

import pytest

from streamhouse.broker.groups import assignments
from streamhouse.broker.groups.assignments import GroupReads, find_assigned, find_reads
from streamhouse.errors import Rejected
from streamhouse.format.consumer_protocol import assigned_numbers
from streamhouse.model.group import GroupState
from streamhouse.model.group_requests import DescribedGroup, DescribedMember
from streamhouse.model.names import TopicId, TopicPartition
from streamhouse.model.topic import Topic

TOPICS = {
    name: Topic(topic_id=TopicId(uuid.uuid4()), name=name, partitions=partitions, created_at_ms=0)
    for name, partitions in (("orders", 3), ("clicks", 1), ("acme~orders", 2))
}


def subscription(*topics: str) -> bytes:
    return struct.pack(">hi", 0, len(topics)) + b"".join(_text(topic) for topic in topics)


def assignment(**partitions: list[int]) -> bytes:
    topics = (_text(topic) + struct.pack(f">i{len(each)}i", len(each), *each) for topic, each in partitions.items())
    return struct.pack(">hi", 0, len(partitions)) + b"".join(topics)


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def member(member_id: str, metadata: bytes = b"", assigned: bytes = b"") -> DescribedMember:
    return DescribedMember(
        member_id=member_id, instance_id=None, client_id="c", client_host="h", metadata=metadata, assignment=assigned
    )


def group(*members: DescribedMember, group_id: str = "g", protocol_type: str = "consumer") -> DescribedGroup:
    return DescribedGroup(
        group_id=group_id,
        state=GroupState.STABLE,
        protocol_type=protocol_type,
        protocol="range",
        generation=1,
        members=members,
    )


MEMBERS = (
    member("a", subscription("orders", "unknown"), assignment(orders=[2, 0, 2], unknown=[0])),
    member("b", subscription("clicks"), assignment(orders=[1, 3, -1, 2**31 - 1])),
    member("c", b"?", struct.pack(">hih", 0, 2**31 - 1, -6)),
)


@pytest.mark.parametrize("inline_bytes", [1 << 20, -1])
async def test_what_members_read_of_what_there_is(monkeypatch: pytest.MonkeyPatch, inline_bytes: int) -> None:
    threads = set[bool]()

    def decode(data: bytes) -> Any:
        threads.add(threading.current_thread() is threading.main_thread())
        return assigned_numbers(data)

    monkeypatch.setattr(assignments, "assigned_numbers", decode)
    monkeypatch.setattr(assignments, "INLINE_BYTES", inline_bytes)
    reads = await find_reads(group(*MEMBERS), TOPICS)
    assert reads.topics == {"orders", "clicks"}
    orders = [TopicPartition("orders", number) for number in range(3)]
    assert reads.members == {orders[0]: "a", orders[1]: "b", orders[2]: "a"}
    assert await find_assigned(group(*MEMBERS), TOPICS) == {"a": [orders[0], orders[2]], "b": [orders[1]], "c": []}
    assert threads == {inline_bytes > 0}


async def test_members_of_a_tenant_read_its_topics() -> None:
    own = TopicPartition("acme~orders", 0)
    of_tenant = group(member("a", subscription("clicks"), assignment(orders=[0, 2])), group_id="acme~g")
    assert await find_reads(of_tenant, TOPICS) == GroupReads(frozenset({"acme~orders"}), {own: "a"})
    assert await find_assigned(of_tenant, TOPICS) == {"a": [own]}


async def test_members_that_are_no_consumers_read_nothing() -> None:
    others = group(*MEMBERS, protocol_type="connect")
    assert await find_reads(others, TOPICS) == GroupReads(frozenset(), {})


async def test_a_description_has_a_largest_number_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignments, "MAX_SHOWN", 3)
    assert sum(map(len, (await find_assigned(group(*MEMBERS), TOPICS)).values())) == 3
    monkeypatch.setattr(assignments, "MAX_SHOWN", 2)
    with pytest.raises(Rejected):
        await find_assigned(group(*MEMBERS), TOPICS)
