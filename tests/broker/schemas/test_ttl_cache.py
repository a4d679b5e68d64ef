"""What was read is believed for a time, until news come, and within limits."""

import pytest

from streamhouse.broker.schemas.schema_cache import TtlCache
from tests.broker.support import StepClock


@pytest.fixture
def clock() -> StepClock:
    return StepClock()


def make(clock: StepClock, *, entries: int = 3, max_bytes: int = 100) -> TtlCache[str, str]:
    return TtlCache(clock, entries=entries, ttl_s=60.0, max_bytes=max_bytes, weigh=len)


def test_a_value_is_fresh_until_its_time_is_over(clock: StepClock) -> None:
    cache = make(clock)
    cache.put("a", "A", cache.start_read())
    clock.skip(59.0)
    assert cache.fresh("a") == "A"
    clock.skip(1.0)
    assert cache.fresh("a") is None
    assert cache.old("a") == "A"


def test_its_time_begins_when_it_was_requested(clock: StepClock) -> None:
    cache = make(clock)
    request = cache.start_read()
    clock.skip(60.0)
    cache.put("a", "A", request)
    assert cache.fresh("a") is None


def test_after_news_everything_is_looked_up_again(clock: StepClock) -> None:
    cache = make(clock)
    cache.put("a", "A", cache.start_read())
    cache.expire_all()
    assert cache.fresh("a") is None
    cache.put("a", "B", cache.start_read())
    assert cache.fresh("a") == "B"


def test_a_response_that_news_overtook_is_old_at_once(clock: StepClock) -> None:
    cache = make(clock)
    request = cache.start_read()
    cache.expire_all()
    cache.put("a", "A", request)
    assert cache.fresh("a") is None


def test_the_least_recently_used_goes_first(clock: StepClock) -> None:
    cache = make(clock)
    for name in "abc":
        cache.put(name, name, cache.start_read())
    assert cache.fresh("a") == "a"
    cache.put("d", "d", cache.start_read())
    assert [cache.old(name) for name in "abcd"] == ["a", None, "c", "d"]
    assert (len(cache), cache.evictions) == (3, 1)


def test_bytes_have_a_limit_too(clock: StepClock) -> None:
    cache = make(clock, max_bytes=10)
    cache.put("a", "x" * 6, cache.start_read())
    cache.put("b", "x" * 6, cache.start_read())
    assert (len(cache), cache.size_bytes) == (1, 6)
    cache.put("c", "x" * 20, cache.start_read())  # the newest stays, however large
    assert (len(cache), cache.size_bytes) == (1, 20)
    cache.drop("c")
    assert cache.size_bytes == 0


def test_hits_and_misses_are_counted(clock: StepClock) -> None:
    cache = make(clock)
    cache.fresh("a")
    cache.put("a", "A", cache.start_read())
    cache.fresh("a")
    cache.fresh("a")
    assert (cache.hits, cache.misses) == (2, 1)
