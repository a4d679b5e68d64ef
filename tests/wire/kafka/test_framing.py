"""Frames: found however the bytes are cut, and refused before anything is allocated for them."""

import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.wire.kafka.framing import FIRST_BYTES, PROVEN_BYTES, BadFrame, FrameReader

MAX_BYTES = 1000


def reader(scratch_bytes: int = 64) -> FrameReader:
    return FrameReader(memoryview(bytearray(scratch_bytes)), max_bytes=MAX_BYTES)


def receive(frames: FrameReader, data: bytes) -> list[bytes]:
    """Give the bytes as a socket would: never more than there is room for."""
    results: list[bytes] = []
    while data:
        space = frames.space()
        count = min(len(space), len(data))
        space[:count] = data[:count]
        data = data[count:]
        frames.received(count)
        while (frame := frames.next_frame(lambda _: True)) is not None:
            results.append(bytes(frame))
        frames.settle()
        # Another connection uses the same scratch buffer meanwhile.
        if frames.is_between_frames or not frames.partial_bytes:
            frames.space()[:] = b"\xff" * len(frames.space())
    return results


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@given(st.lists(st.binary(min_size=1, max_size=200), max_size=10), st.integers(1, 300), st.integers(5, 128))
def test_frames_are_found_however_the_bytes_are_cut(bodies: list[bytes], piece: int, scratch_bytes: int) -> None:
    stream = b"".join(map(framed, bodies))
    frames = reader(scratch_bytes)
    results: list[bytes] = []
    for start in range(0, len(stream), piece):
        results += receive(frames, stream[start : start + piece])
    assert results == bodies
    assert frames.is_between_frames


@pytest.mark.parametrize("size", [0, -1, -(2**31), MAX_BYTES + 1, 2**31 - 1])
def test_an_impossible_size_is_refused_before_it_is_admitted(size: int) -> None:
    frames = reader()
    frames.space()[:4] = struct.pack(">i", size)
    frames.received(4)
    with pytest.raises(BadFrame, match=f"size={size}"):
        frames.next_frame(lambda _: pytest.fail("asked for admission"))


@pytest.mark.parametrize("hello", [b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00\x01", b"SSH-2.0-x\r\n"])
def test_other_protocols_are_no_frames(hello: bytes) -> None:
    frames = FrameReader(memoryview(bytearray(64)), max_bytes=100 * 1024 * 1024)
    frames.space()[: len(hello)] = hello
    frames.received(len(hello))
    with pytest.raises(BadFrame):
        frames.next_frame(lambda _: True)


def test_a_frame_that_is_not_admitted_waits_and_loses_nothing() -> None:
    frames = reader()
    data = framed(b"x" * 30) + framed(b"y" * 5)
    frames.space()[: len(data)] = data
    frames.received(len(data))
    assert frames.next_frame(lambda _: False) is None
    frames.settle()
    assert frames.next_frame(lambda _: True) == bytearray(b"x" * 30)
    assert frames.next_frame(lambda _: True) == bytearray(b"y" * 5)


def test_a_large_frame_is_received_into_its_own_buffer_which_grows_with_what_came() -> None:
    frames = FrameReader(memoryview(bytearray(16)), max_bytes=100_000)
    body = os.urandom(50_000)
    data = framed(body)
    frames.space()[:] = data[:16]
    frames.received(16)
    admitted: list[int] = []

    def admit(more: int) -> bool:
        admitted.append(more)
        return True

    at = 16
    while (frame := frames.next_frame(admit)) is None:
        space = frames.space()
        assert sum(admitted) == frames.partial_bytes <= max(2 * frames.received_bytes, FIRST_BYTES)
        assert len(space) > 0
        space[:] = data[at : at + len(space)]
        at += len(space)
        frames.received(len(space))
    assert frame == body
    assert space.obj is frame
    assert sum(admitted) == 50_000


def test_a_frame_that_may_not_grow_yet_goes_on_where_it_was() -> None:
    frames = reader(scratch_bytes=16)
    frames.space()[:] = struct.pack(">i", 1000) + b"a" * 12
    frames.received(16)
    assert frames.next_frame(lambda _: True) is None
    space = frames.space()
    space[:] = b"b" * len(space)
    frames.received(len(space))
    assert frames.next_frame(lambda _: False) is None
    assert frames.partial_bytes == FIRST_BYTES
    assert frames.next_frame(lambda _: True) is None
    frames.space()[:] = b"c" * len(frames.space())
    frames.received(1000 - FIRST_BYTES)
    assert frames.next_frame(lambda _: True) == bytearray(b"a" * 12 + b"b" * (FIRST_BYTES - 12) + b"c" * 488)


def test_a_frame_as_large_as_the_one_before_gets_a_whole_buffer_up_to_a_limit() -> None:
    frames = FrameReader(memoryview(bytearray(16)), max_bytes=10 * PROVEN_BYTES)
    small, large = os.urandom(50_000), os.urandom(2 * PROVEN_BYTES)
    assert received(frames, framed(small)) == small
    # As large as the one before: one buffer. Larger: that much, then more as it comes.
    for body, buffers in ((small, [50_000]), (large, [50_000, 50_000]), (large, [PROVEN_BYTES, PROVEN_BYTES])):
        admitted: list[int] = []
        assert received(frames, framed(body), admitted) == body
        assert admitted[: len(buffers)] == buffers
    # Where memory is short, what was announced counts for nothing again.
    admitted = []
    assert received(frames, framed(large), admitted, has_room=False) == large
    assert admitted[0] == FIRST_BYTES
    # A small frame is no proof of a large one.
    assert received(frames, framed(b"x" * 600)) == b"x" * 600
    admitted = []
    assert received(frames, framed(large), admitted) == large
    assert admitted[0] == 600


def received(
    frames: FrameReader, data: bytes, admitted: list[int] | None = None, *, has_room: bool = True
) -> bytearray:
    """The frame in these bytes, which come as fast as there is space for them; notes what was admitted for it."""

    def admit(more: int) -> bool:
        if admitted is not None:
            admitted.append(more)
        return True

    at = 0
    while (frame := frames.next_frame(admit, has_room=has_room)) is None:
        space = frames.space()
        piece = data[at : at + len(space)]
        space[: len(piece)] = piece
        at += len(piece)
        frames.received(len(piece))
    return frame
