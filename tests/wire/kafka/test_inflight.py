"""Bytes in flight: one limit for all connections, first come, first served."""

from streamhouse.wire.kafka.inflight import InflightBytes, PinnedFrames


class Waiting:
    def __init__(self) -> None:
        self.got: list[int] = []

    def granted(self, size_bytes: int) -> None:
        self.got.append(size_bytes)


def test_whoever_does_not_fit_waits_until_bytes_come_back() -> None:
    inflight, first, second = InflightBytes(100), Waiting(), Waiting()
    assert inflight.take(80, first)
    assert not inflight.take(30, second)
    assert (second.got, inflight.waiting) == ([], 1)
    inflight.give_back(80)
    assert (second.got, inflight.used_bytes) == ([30], 30)


def test_a_small_one_does_not_overtake_a_large_one() -> None:
    inflight, large, small = InflightBytes(100), Waiting(), Waiting()
    assert inflight.take(80, Waiting())
    assert not inflight.take(50, large)
    assert not inflight.take(10, small)
    inflight.give_back(40)
    assert (large.got, small.got) == ([50], [10])


def test_one_that_is_larger_than_the_limit_goes_alone() -> None:
    inflight, giant = InflightBytes(100), Waiting()
    assert inflight.take(10, Waiting())
    assert not inflight.take(500, giant)
    inflight.give_back(10)
    assert giant.got == [500]
    assert not inflight.take(1, Waiting())


def test_one_that_left_is_skipped() -> None:
    inflight, gone, next_one = InflightBytes(100), Waiting(), Waiting()
    assert inflight.take(60, Waiting())
    assert not inflight.take(90, gone)
    assert not inflight.take(40, next_one)
    inflight.forget(gone)
    assert (gone.got, next_one.got) == ([], [40])


# --- frames that the log looks into ---------------------------------------------------------------------------------


def pinned(size_bytes: int = 100_000) -> tuple[InflightBytes, PinnedFrames, bytearray]:
    inflight = InflightBytes(1 << 20)
    assert inflight.take(size_bytes, Waiting())
    return inflight, PinnedFrames(inflight), bytearray(size_bytes)


def test_a_frame_that_is_mostly_waste_counts_until_nobody_looks_into_it() -> None:
    inflight, frames, frame = pinned()
    view = memoryview(frame)[:100]
    assert frames.keep(frame, kept_bytes=100)
    frames.release()
    assert (inflight.used_bytes, len(frames)) == (100_000, 1)
    view.release()
    frames.release()
    assert (inflight.used_bytes, len(frames)) == (0, 0)


def test_a_frame_that_is_mostly_kept_or_not_at_all_is_no_waste() -> None:
    _, frames, frame = pinned()
    assert not frames.keep(frame, kept_bytes=50_000)
    assert not frames.keep(frame, kept_bytes=0)
    assert not frames.keep(bytearray(200), kept_bytes=60)
