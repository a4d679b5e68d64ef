"""The start-up proof: the store does what the promises rest on, or the agent does not start.

Data path   none; once, before the first append
Owns        which properties are proven: create-only (also for creates that race), read after write, ranges, listing,
            deleting
Leaves      what the agent does about a store that fails to its caller
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from streamhouse.clock import Ids
from streamhouse.errors import Misconfigured, StreamhouseError
from streamhouse.stores.objects.base import (
    Buffers,
    ObjectExists,
    ObjectMissing,
    ObjectStore,
    Refused,
    Throttled,
    Unreachable,
)

PREFIX: Final = "proof/"
PARALLEL_WRITERS: Final = 4
RETRIES: Final = 5
_NO_CREATE_ONLY: Final = (
    "use a store that honours create-only writes (If-None-Match); Google's does when it is written gs://bucket/prefix"
)


async def check_store(store: ObjectStore, ids: Ids) -> None:
    """Raise `Misconfigured` unless the store keeps what it must; leaves nothing behind in a store that does."""
    key = PREFIX + ids.token()
    body = ids.token().encode()
    try:
        await _put(store, key, [body[:7], body[7:]])
        await _check_reading(store, key, body)
        await _check_create_only(store, key, body)
        await _check_one_winner(store, f"{key}-race", ids)
        await _check_listing(store, key)
        await _delete(store, key)
        await _check_deleted(store, key)
    except Misconfigured:
        raise
    except (Refused, Unreachable) as error:
        raise Misconfigured(
            f"the object store can't be used; store={error.where} why={error.why} do={error.do}"
        ) from error
    except Throttled as error:
        raise Misconfigured(
            f"the object store can't be used; why={error} do=raise its limit of requests, or start again later"
        ) from error
    except StreamhouseError as error:
        raise Misconfigured(
            f"the object store can't be used; why={error} do=check the address, permissions and free space of --store"
        ) from error


async def probe_store(store: ObjectStore, ids: Ids) -> None:
    """Write and delete a small object; raises the store's error if it can't be written."""
    key = PREFIX + ids.token()
    await store.put_new(key, [key.encode()])
    await store.delete(key)


async def _check_reading(store: ObjectStore, key: str, body: bytes) -> None:
    whole = await store.get_range(key, 0, len(body))
    _require(whole == body, "an object does not read back as it was written", "use a store that reads its own writes")
    part = await store.get_range(key, 3, 9)
    _require(part == body[3:9], "a ranged read returns other bytes", "use a store that supports ranges")
    beyond = await store.get_range(key, 5, len(body) + 100)
    _require(beyond == body[5:], "a range past the end returns other bytes", "use a store that supports ranges")
    tail = await store.get_suffix(key, 4)
    _require(tail == body[-4:], "a suffix read returns other bytes", "use a store that supports suffix ranges")
    size = (await store.head(key)).size_bytes
    _require(size == len(body), "an object's size is wrong", "use a store that reports the size of objects")


async def _check_create_only(store: ObjectStore, key: str, body: bytes) -> None:
    """The one that safety rests on: a store that overwrites would let a stale agent destroy acknowledged records."""
    try:
        await _put(store, key, [bytes(len(body) + 1)])
    except ObjectExists:
        stored = await store.get_range(key, 0, len(body) + 1)
        _require(stored == body, "a refused write changed the object", "use a store with atomic conditional writes")
    else:
        await _delete(store, key)
        _require(False, "a second create was accepted", _NO_CREATE_ONLY)


async def _check_one_winner(store: ObjectStore, key: str, ids: Ids) -> None:
    """A store that looks first and writes then lets two agents believe that they created the same object."""
    bodies = [ids.token().encode() for _ in range(PARALLEL_WRITERS)]
    created = await asyncio.gather(*(_creates(store, key, body) for body in bodies))
    stored = await store.get_range(key, 0, len(bodies[0]) + 1)
    await _delete(store, key)
    winners = [body for body, won in zip(bodies, created, strict=True) if won]
    _require(
        winners == [stored], "racing creates had more or less than one winner", "use a store whose creates are atomic"
    )


async def _creates(store: ObjectStore, key: str, body: bytes) -> bool:
    try:
        await _put(store, key, [body])
    except ObjectExists:
        return False
    return True


async def _put(store: ObjectStore, key: str, body: Buffers) -> None:
    await _until_taken(lambda: store.put_new(key, body))


async def _delete(store: ObjectStore, key: str) -> None:
    await _until_taken(lambda: store.delete(key))


async def _until_taken(write: Callable[[], Awaitable[None]]) -> None:
    """Cloudflare R2 and Google take one write of a key per second, and here are several at once.

    Each of these tries is several ones already, with waits between them (`retrying`).
    """
    for _ in range(RETRIES - 1):
        try:
            return await write()
        except Throttled:
            continue
    await write()


async def _check_listing(store: ObjectStore, key: str) -> None:
    seen = [meta.key async for meta in store.list(PREFIX)]
    _require(key in seen, "an object that was written is not listed", "use a store whose listings are consistent")
    _require(seen == sorted(seen), "a listing is not in key order", "use a store that lists in key order")


async def _check_deleted(store: ObjectStore, key: str) -> None:
    await _delete(store, key)
    try:
        await store.head(key)
    except ObjectMissing:
        return
    _require(False, "a deleted object is still there", "use a store whose deletes are seen at once")


def _require(holds: bool, failed: str, advice: str) -> None:
    if not holds:
        raise Misconfigured(f"the object store is not safe to use; failed={failed} do={advice}")
