"""Messages of clients: their elements are counted before they become objects."""

import asyncio
import gc
import tracemalloc

import grpc
import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.errors import Rejected
from streamhouse.wire.grpc.decoding import INLINE_ELEMENTS, MAX_ELEMENTS, _has_at_most, decode, is_large
from streamhouse.wire.grpc.generated import streamhouse_pb2 as pb

from .talk import Client, Refused

EMPTY = b"\x1a\x00"
"""An empty header of a record, or an empty batch of a request."""


def field(number: int, content: bytes) -> bytes:
    size, prefix = len(content), bytearray([number << 3 | 2])
    while size > 0x7F:
        prefix.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes(prefix) + bytes([size]) + content


def with_headers(count: int) -> bytes:
    return field(1, b"orders") + field(2, field(2, b"value") + EMPTY * count)


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (with_headers(MAX_ELEMENTS), pb.ProduceRequest),
        (field(1, with_headers(MAX_ELEMENTS)), pb.ProduceStreamRequest),
        (field(2, field(2, b"v") + EMPTY * 1000) * 250, pb.ProduceRequest),
        (b"\x12\x00" * (MAX_ELEMENTS + 1), pb.ProduceRequest),
        (EMPTY * (MAX_ELEMENTS + 1), pb.ProduceBatchesRequest),
        (b"\x0a\x00" * (MAX_ELEMENTS + 1), pb.FetchRequest),
        (b"\x0a\x00" * (MAX_ELEMENTS + 1), pb.ConsumeRequest),
        (b"\x92\x00\x00" * (MAX_ELEMENTS + 1), pb.ProduceRequest),
        (field(1, b"\x12" * (MAX_ELEMENTS + 1)) + b"\x30\x00" * (8 * MAX_ELEMENTS + 1), pb.ProduceRequest),
    ],
    ids=[
        "headers",
        "of a stream",
        "of many records",
        "records",
        "batches",
        "positions",
        "subscriptions",
        "long tags",
        "unknown fields",
    ],
)
async def test_messages_of_very_many_elements_are_refused(raw: bytes, kind: type[Message]) -> None:
    with pytest.raises(Rejected, match=f"too many elements; type={kind.DESCRIPTOR.full_name}"):
        await decode(raw, kind)


async def test_what_is_counted_is_decoded() -> None:
    request = await decode(with_headers(INLINE_ELEMENTS + 5), pb.ProduceRequest)
    assert (len(request.records[0].headers), request.records[0].value) == (INLINE_ELEMENTS + 5, b"value")


@given(st.data())
def test_every_element_counts_once_whatever_is_beside_it(data: st.DataObject) -> None:
    records = data.draw(
        st.lists(
            st.builds(
                pb.Record,
                key=st.none() | st.binary(max_size=200),
                value=st.none() | st.binary(max_size=200),
                timestamp_ms=st.none() | st.integers(0, 2**62),
                headers=st.lists(
                    st.builds(pb.Header, key=st.text(max_size=5), value=st.binary(max_size=5)), max_size=4
                ),
            ),
            max_size=20,
        )
    )
    raw = pb.ProduceRequest(topic="orders", records=records, acks=pb.ACKS_WAL).SerializeToString()
    count = len(records) + sum(len(each.headers) for each in records)
    assert _has_at_most(count, raw, pb.ProduceRequest)
    assert count == 0 or not _has_at_most(count - 1, raw, pb.ProduceRequest)


@given(st.binary(max_size=300))
def test_any_bytes_are_counted(raw: bytes) -> None:
    assert not is_large(raw, pb.ProduceRequest)
    _has_at_most(3, raw, pb.ProduceRequest)


async def test_a_record_of_very_many_headers_is_refused_and_others_are_served_meanwhile(client: Client) -> None:
    method = client.channel.unary_unary("/streamhouse.v1.RecordsService/Produce")
    call = asyncio.ensure_future(_code(method(with_headers(1_000_000))))
    await client.produce("orders", b"a")
    assert await call == "INVALID_ARGUMENT"
    with pytest.raises(Refused, match="too many partitions"):
        await client(pb.FetchRequest(positions=[pb.Position(topic="orders")] * 10_001), pb.FetchResponse)


async def test_a_rejected_message_is_gone_when_its_call_has_ended(client: Client) -> None:
    method = client.channel.unary_unary("/streamhouse.v1.RecordsService/Produce")
    raw = b"\x12\x00" * 300_000
    await _code(method(raw))
    gc.collect()
    gc.disable()  # an agent collects rarely
    tracemalloc.start()
    try:
        for _ in range(6):
            assert await _code(method(raw)) == "INVALID_ARGUMENT"
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
        gc.enable()
    assert taken < 3 * len(raw)


async def _code(call: object) -> str:
    try:
        await call  # type: ignore[misc]
    except grpc.aio.AioRpcError as error:
        return str(error.code().name)
    return "OK"
