"""Bytes in flight: one limit for all connections, first come, first served."""

from streamhouse.wire.kafka.inflight import InflightBytes


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
