"""Bytes in flight: one limit for all connections, first come, first served."""

from streamhouse.wire.kafka.connection_limits import InflightBytes, PinnedFrames


class Waiting:
    def __init__(self) -> None:
        self.got: list[int] = []

    def granted(self, size_bytes: int) -> None:
        self.got.append(size_bytes)


def test_a_caller_that_does_not_fit_waits_until_bytes_come_back() -> None:
    inflight, first, second = InflightBytes(100), Waiting(), Waiting()
    assert inflight.reserve(80, first)
    assert not inflight.reserve(30, second)
    assert (second.got, inflight.waiting) == ([], 1)
    inflight.release(80)
    assert (second.got, inflight.used_bytes) == ([30], 30)


def test_a_small_one_does_not_overtake_a_large_one() -> None:
    inflight, large, small = InflightBytes(100), Waiting(), Waiting()
    assert inflight.reserve(80, Waiting())
    assert not inflight.reserve(50, large)
    assert not inflight.reserve(10, small)
    inflight.release(40)
    assert (large.got, small.got) == ([50], [10])


def test_one_that_is_larger_than_the_limit_goes_alone() -> None:
    inflight, giant = InflightBytes(100), Waiting()
    assert inflight.reserve(10, Waiting())
    assert not inflight.reserve(500, giant)
    inflight.release(10)
    assert giant.got == [500]
    assert not inflight.reserve(1, Waiting())


def test_one_that_left_is_skipped() -> None:
    inflight, gone, next_one = InflightBytes(100), Waiting(), Waiting()
    assert inflight.reserve(60, Waiting())
    assert not inflight.reserve(90, gone)
    assert not inflight.reserve(40, next_one)
    inflight.cancel(gone)
    assert (gone.got, next_one.got) == ([], [40])


# --- frames that grow as bytes come


def test_frames_that_were_begun_grow_before_new_ones_begin() -> None:
    inflight, new, begun = InflightBytes(100), Waiting(), Waiting()
    assert inflight.reserve(50, begun)
    assert inflight.reserve(60, Waiting()) is False
    assert not inflight.reserve(10, new)
    assert inflight.reserve(50, begun, grows=True)
    inflight.release(100)
    assert new.got == [10]


def test_one_of_several_frames_that_are_half_there_grows_beyond_the_limit_until_it_is_whole() -> None:
    inflight, first, second, third = InflightBytes(100), Waiting(), Waiting(), Waiting()
    assert inflight.reserve(50, first)
    assert inflight.reserve(50, second)
    assert inflight.reserve(50, first, grows=True)
    assert not inflight.reserve(50, second, grows=True)
    assert not inflight.reserve(10, third)
    assert inflight.reserve(100, first, grows=True)
    inflight.is_whole(first, frame_bytes=200)
    assert second.got == [], "more than the limit is taken"
    inflight.release(200)
    assert (second.got, third.got) == ([50], [])
    inflight.is_whole(second, frame_bytes=100)
    inflight.release(100)
    assert third.got == [10]


def test_a_frame_beyond_the_limit_that_is_gone_makes_way_for_the_next() -> None:
    inflight, first, second = InflightBytes(100), Waiting(), Waiting()
    assert inflight.reserve(50, first)
    assert inflight.reserve(50, second)
    assert inflight.reserve(50, first, grows=True)
    assert not inflight.reserve(60, second, grows=True)
    inflight.cancel(first)
    assert second.got == []
    inflight.release(100)
    assert second.got == [60]


def test_a_frame_beyond_the_limit_that_is_whole_lets_the_next_grow_where_others_have_made_room() -> None:
    inflight, first, second = InflightBytes(100), Waiting(), Waiting()
    assert inflight.reserve(40, first)
    assert inflight.reserve(10, second)
    assert inflight.reserve(50, Waiting())
    assert inflight.reserve(40, first, grows=True)
    assert not inflight.reserve(60, second, grows=True)
    inflight.release(50)
    assert second.got == [], "one frame at a time goes beyond the limit"
    inflight.is_whole(first, frame_bytes=80)
    assert second.got == [60]


def test_large_requests_have_half_of_the_room_at_least() -> None:
    inflight = InflightBytes(100, small_bytes=5, small_limit_bytes=1000)
    assert inflight.reserve(25, Waiting())
    assert inflight.reserve(25, Waiting())
    assert not inflight.reserve(10, Waiting())
    without = InflightBytes(100, small_limit_bytes=60)
    assert without.reserve(10, Waiting())
    assert without.reserve(90, Waiting())


def test_a_part_of_the_room_is_for_small_requests() -> None:
    inflight, large, small = InflightBytes(100, small_bytes=5, small_limit_bytes=20), Waiting(), Waiting()
    assert inflight.reserve(80, Waiting())
    assert not inflight.reserve(10, large)
    assert [inflight.reserve(5, small) for _ in range(5)] == [True, True, True, True, False]
    assert (inflight.is_pressed(5), inflight.is_pressed(10)) == (True, True)
    inflight.release(5)
    assert (small.got, large.got) == ([5], [])
    inflight.release(80)
    assert large.got == [10]
    assert repr(inflight) == "<InflightBytes used=0KiB of 0KiB waiting=0>"


def test_small_requests_may_take_the_room_that_large_ones_leave() -> None:
    inflight, small = InflightBytes(100, small_bytes=5, small_limit_bytes=20), Waiting()
    assert inflight.reserve(10, Waiting())
    assert [inflight.reserve(5, small) for _ in range(19)] == [True] * 18 + [False]
    inflight.release(10)
    assert small.got == [5]


def test_a_small_frame_that_stays_takes_none_of_the_room_for_small_ones() -> None:
    inflight = InflightBytes(40_000, small_bytes=10_000, small_limit_bytes=20_000)
    frames = PinnedFrames(inflight)
    views = []
    for _ in range(3):
        frame = bytearray(10_000)
        assert inflight.reserve(len(frame), Waiting())
        views.append(memoryview(frame)[:100])
        assert frames.pin(frame, retained_bytes=100)
    assert not inflight.reserve(10_001, Waiting())
    assert inflight.reserve(5_000, Waiting())
    for view in views:
        view.release()
    frames.release()
    assert (inflight.used_bytes, inflight.waiting) == (15_001, 0)


# --- frames that the log looks into ---------------------------------------------------------------------------------


def pinned(size_bytes: int = 100_000) -> tuple[InflightBytes, PinnedFrames, bytearray]:
    inflight = InflightBytes(1 << 20)
    assert inflight.reserve(size_bytes, Waiting())
    return inflight, PinnedFrames(inflight), bytearray(size_bytes)


def test_a_frame_that_is_mostly_waste_counts_until_nobody_looks_into_it() -> None:
    inflight, frames, frame = pinned()
    view = memoryview(frame)[:100]
    assert frames.pin(frame, retained_bytes=100)
    frames.release()
    assert (inflight.used_bytes, len(frames)) == (100_000, 1)
    view.release()
    frames.release()
    assert (inflight.used_bytes, len(frames)) == (0, 0)


def test_a_frame_that_is_mostly_kept_or_not_at_all_is_no_waste() -> None:
    _, frames, frame = pinned()
    assert not frames.pin(frame, retained_bytes=50_000)
    assert not frames.pin(frame, retained_bytes=0)
    assert not frames.pin(bytearray(200), retained_bytes=60)


def test_there_is_room_while_less_than_half_is_used() -> None:
    inflight = InflightBytes(100)
    assert inflight.reserve(49, Waiting())
    assert inflight.has_room
    assert inflight.reserve(1, Waiting())
    assert not inflight.has_room
