"""Listings in key order, from buckets that list by key and from buckets that walk directories."""

from collections.abc import AsyncIterator

from hypothesis import given
from hypothesis import strategies as st

from streamhouse.stores.objects.base import ObjectMeta
from streamhouse.stores.objects.remote import in_key_order

NAMES = st.text(alphabet="ab-.0~ ", min_size=1, max_size=3)
KEYS = st.lists(st.lists(NAMES, min_size=1, max_size=3).map("/".join), unique=True, max_size=40)


async def ordered(keys: list[str], prefix: str = "") -> list[str]:
    async def found() -> AsyncIterator[ObjectMeta]:
        for key in keys:
            yield ObjectMeta(key=prefix + key, size_bytes=0, modified_at_ms=0)

    return [meta.key.removeprefix(prefix) async for meta in in_key_order(found(), prefix)]


@given(KEYS)
async def test_a_walk_through_directories_comes_out_in_key_order(keys: list[str]) -> None:
    assert await ordered(sorted(keys, key=lambda key: key.split("/"))) == sorted(keys)


@given(KEYS)
async def test_what_is_in_key_order_stays_so(keys: list[str]) -> None:
    assert await ordered(sorted(keys), "p/") == sorted(keys)


async def test_sessions_pass_one_by_one_so_that_a_listing_is_never_held_whole() -> None:
    pulled: list[str] = []

    async def found() -> AsyncIterator[ObjectMeta]:
        for session in ("s-0", "s-1", "s-2"):
            for n in range(3):
                pulled.append(f"{session}/{n}")
                yield ObjectMeta(key=f"segments/{session}/{n}", size_bytes=0, modified_at_ms=0)

    first = await anext(in_key_order(found(), "segments/"))
    assert first.key == "segments/s-0/0"
    assert len(pulled) == 4
