"""Bytes from strangers: whatever they are, decoding ends soon, stays small and raises one error."""

import random
import tracemalloc
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamhouse.errors import Rejected
from streamhouse.wire.kafka.codec import MAX_ERROR_TEXT, MAX_TAGGED_FIELDS, MalformedMessage, decode, encode_bytes
from streamhouse.wire.kafka.messages import REQUESTS
from streamhouse.wire.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from streamhouse.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from streamhouse.wire.kafka.messages.header import RequestHeader
from streamhouse.wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from streamhouse.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from streamhouse.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from streamhouse.wire.kafka.primitives import UUID_CACHE_ENTRIES, uuid_of, uvarint
from streamhouse.wire.kafka.schema import Message
from tests.support.depth import examples
from tests.wire.kafka.message_values import MESSAGES, versions_of

REQUEST: Final = ProduceRequest(
    acks=-1, topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=3, records=b"12345")])]
)


def rejection(cls: type[Message], version: int, body: bytes, *, strict: bool = False) -> str:
    with pytest.raises(MalformedMessage) as caught:
        decode(cls, version, body, strict=strict)
    assert isinstance(caught.value, Rejected)
    text = str(caught.value)
    assert f"message={cls.__name__} version={version} field=" in text
    assert len(text) <= MAX_ERROR_TEXT
    return text


# --- single lies --------------------------------------------------------------------------------------------------


def test_five_bytes_that_announce_four_billion_topics_are_refused() -> None:
    text = rejection(MetadataRequest, 12, bytes.fromhex("ffffffff0f"))
    assert "field=topics problem=length 4294967294 with 0 bytes left" in text


@pytest.mark.parametrize(
    ("cls", "version", "body", "problem"),
    [
        (MetadataRequest, 12, "ffffffffff01", "field=topics problem=varint longer than 5 bytes"),
        (MetadataRequest, 12, "ffffffff1f", "field=topics problem=varint above 32 bits"),
        (MetadataRequest, 12, "ff", "field=topics problem=ends too early"),
        (MetadataRequest, 12, "", "field=topics problem=ends too early"),
        (MetadataRequest, 1, "7fffffff", "field=topics problem=length 2147483647"),
        (MetadataRequest, 1, "fffffffe", "field=topics problem=length -2"),
        (MetadataRequest, 0, "ffffffff", "field=topics problem=length -1"),
        (MetadataRequest, 1, "00000001 ffff", "field=topics.name problem=length -1"),
        (MetadataRequest, 1, "00000001 0005 61", "field=topics.name problem=length 5 with 1 bytes left"),
        (MetadataRequest, 1, "00000001 0002 c328", "field=topics.name problem=not UTF-8"),
        (MetadataRequest, 9, "02 00 00", "field=topics.name problem=length -1"),
        (MetadataRequest, 9, "02 818002", "field=topics.name problem=length 32768"),
        (MetadataRequest, 9, "01 00 00 00 05", "field=tagged fields problem=ends too early"),
        (MetadataRequest, 9, "01 00 00 00 01 00 05 61", "field=tagged fields problem=length 5 with 1 bytes left"),
        (MetadataRequest, 9, "01 00 00", "field=allow_auto_topic_creation..tagged fields problem=ends too early"),
        (RequestHeader, 1, "0003 0001 00000001 fffe", "field=client_id problem=length -2"),
        (ApiVersionsResponse, 3, "0000 01 00000000 01 01 07 0000000000000005", "problem=tag 1 is not as long as it"),
        (ApiVersionsResponse, 3, "0000 01 00000000 01 01 09 0000000000000005 00", "problem=tag 1 is not as long as it"),
        (ApiVersionsResponse, 3, "0000 01 00000000 01 01 09 0000000000000005", "problem=length 9 with 8 bytes left"),
    ],
)
def test_a_lie_is_named(cls: type[Message], version: int, body: str, problem: str) -> None:
    assert problem in rejection(cls, version, bytes.fromhex(body))


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_every_truncation_is_refused(version: int) -> None:
    whole = encode_bytes(REQUEST, version)
    for length in range(len(whole)):
        rejection(ProduceRequest, version, whole[:length])


def test_trailing_bytes_are_refused_when_strict() -> None:
    body = encode_bytes(REQUEST, 9) + b"??"
    assert decode(ProduceRequest, 9, body) == (REQUEST, len(body) - 2)
    assert "2 bytes too many" in rejection(ProduceRequest, 9, body, strict=True)


def test_an_unknown_version_is_refused() -> None:
    assert "no such version" in rejection(MetadataRequest, 99, b"")


def test_an_array_is_judged_by_the_least_its_elements_take() -> None:
    # 40 partitions of at least 28 bytes each cannot lie in 200 bytes, though 40 bytes would be there.
    body = encode_bytes(FetchRequest(topics=[FetchTopic(topic="t")]), 4)
    lying = body[:-4] + (40).to_bytes(4, "big") + bytes(200)
    assert "field=topics.partitions problem=length 40" in rejection(FetchRequest, 4, lying)


def test_more_elements_than_allowed_are_refused() -> None:
    body = encode_bytes(MetadataRequest(topics=[MetadataRequestTopic(name="") for _ in range(11)]), 9)
    assert decode(MetadataRequest, 9, body, max_elements=11)
    with pytest.raises(MalformedMessage, match="more array elements"):
        decode(MetadataRequest, 9, body, max_elements=10)


def test_elements_are_counted_over_all_arrays_together() -> None:
    topics = [FetchTopic(topic="t", partitions=[FetchPartition(), FetchPartition()]) for _ in range(3)]
    body = encode_bytes(FetchRequest(topics=topics), 4)
    assert decode(FetchRequest, 4, body, max_elements=9)
    with pytest.raises(MalformedMessage, match="more array elements"):
        decode(FetchRequest, 4, body, max_elements=8)


def tagged(count: int) -> bytes:
    """A MetadataRequest of version 9 without topics, and with tagged fields that nobody knows."""
    return bytes.fromhex("01 00 00 00") + uvarint(count) + b"\x07\x00" * count


def test_more_tagged_fields_than_allowed_are_refused_before_they_are_read() -> None:
    body = tagged(MAX_TAGGED_FIELDS)
    assert decode(MetadataRequest, 9, body)[1] == len(body)
    assert "more tagged fields" in rejection(MetadataRequest, 9, tagged(MAX_TAGGED_FIELDS + 1))
    assert "more tagged fields" in rejection(MetadataRequest, 9, tagged(0)[:-1] + uvarint(2**32 - 1))


def test_known_tagged_fields_count_as_well() -> None:
    def body(count: int) -> bytes:
        return bytes.fromhex("0000 01 00000000") + uvarint(count) + bytes.fromhex("01 08 0000000000000005") * count

    assert decode(ApiVersionsResponse, 3, body(MAX_TAGGED_FIELDS))
    assert "more tagged fields" in rejection(ApiVersionsResponse, 3, body(MAX_TAGGED_FIELDS + 1))


def test_tagged_fields_are_counted_over_all_parts_of_a_message_together() -> None:
    topics = [MetadataRequestTopic(name="t") for _ in range(3)]
    body = encode_bytes(MetadataRequest(topics=topics), 9).replace(b"\x02t\x00", b"\x02t\x02\x07\x00\x07\x00")
    assert decode(MetadataRequest, 9, body, max_tagged_fields=6)
    with pytest.raises(MalformedMessage, match="more tagged fields"):
        decode(MetadataRequest, 9, body, max_tagged_fields=5)


# --- noise --------------------------------------------------------------------------------------------------------


@given(st.sampled_from(MESSAGES), st.data(), st.binary(max_size=80))
@settings(max_examples=examples(300), deadline=None)
def test_noise_is_a_message_or_malformed(cls: type[Message], data: st.DataObject, noise: bytes) -> None:
    version = data.draw(st.sampled_from(versions_of(cls)))
    try:
        _, end = decode(cls, version, noise)
    except MalformedMessage:
        return
    assert end <= len(noise)


SEEDS: Final[list[tuple[Message, int]]] = [
    (REQUEST, 8),
    (REQUEST, 11),
    (FetchRequest(topics=[FetchTopic(topic="orders", partitions=[FetchPartition(partition=1), FetchPartition()])]), 12),
    (MetadataRequest(topics=[MetadataRequestTopic(name="orders"), MetadataRequestTopic(name="größe")]), 12),
    (ApiVersionsRequest(client_software_name="apache-kafka-java", client_software_version="4.4.0"), 3),
    (JoinGroupRequest(group_id="g", protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(40))]), 7),
    *((request(), request.max_version) for request in REQUESTS.values()),
]
LIES: Final = (b"\xff", b"\x7f", b"\x80", b"\x00", b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe")


def mutated(body: bytes, rng: random.Random) -> bytes:
    mutant = bytearray(body)
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(mutant))
        match rng.randrange(4):
            case 0:
                mutant[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                lie = rng.choice(LIES)
                mutant[at : at + len(lie)] = lie
            case 2:
                del mutant[at : at + rng.randint(1, 8)]
            case _:
                mutant[at:at] = rng.randbytes(rng.randint(1, 8))
    return bytes(mutant)


MOST_GROWTH: Final = 32_768


def _decoded(cls: Any, version: int, body: bytes) -> tuple[bool, int]:
    """Whether it could be read, and how many bytes were allocated at once meanwhile, by all threads of the process."""
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    is_read = True
    try:
        decode(cls, version, body)
    except MalformedMessage:
        is_read = False
    return is_read, tracemalloc.get_traced_memory()[1] - before


def test_twenty_thousand_mutants_neither_crash_nor_grow() -> None:
    rng = random.Random(20_000)
    bodies = [(type(message), version, encode_bytes(message, version)) for message, version in SEEDS]
    for cls, version, body in bodies:
        decode(cls, version, body, strict=True)  # so that compiling is not counted as memory of a decode
    for number in range(UUID_CACHE_ENTRIES):
        uuid_of(number.to_bytes(16, "big"))  # nor the growth of this cache
    outcomes = {"read": 0, "refused": 0}
    tracemalloc.start()
    try:
        for _ in range(20_000):
            cls, version, body = rng.choice(bodies)
            mutant = mutated(body, rng)
            is_read, grown = _decoded(cls, version, mutant)
            outcomes["read" if is_read else "refused"] += 1
            if grown >= MOST_GROWTH:  # by another thread of the runner? A decoder does it each time.
                grown = min(_decoded(cls, version, mutant)[1] for _ in range(5))
            assert grown < MOST_GROWTH, f"{cls.__name__} v{version} {mutant.hex()}"
    finally:
        tracemalloc.stop()
    assert min(outcomes.values()) > 2_000
