"""MemoryObjectStore: a bucket in memory.

Data path   replaces a bucket in tests, simulations and demonstrations
Owns        the bytes
Leaves      faults to wrappers

Deterministic: no threads, no waiting, every call one step.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from streamhouse.clock import Clock
from streamhouse.stores.objects.base import (
    Buffers,
    ObjectExists,
    ObjectMeta,
    ObjectMissing,
    check_key,
    check_length,
    check_prefix,
    check_range,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Object:
    body: bytes
    modified_at_ms: int


class MemoryObjectStore:
    """An `ObjectStore`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._objects: dict[str, _Object] = {}

    def __repr__(self) -> str:
        return f"<MemoryObjectStore objects={len(self._objects)}>"

    async def put_new(self, key: str, body: Buffers) -> None:
        check_key(key)
        if key in self._objects:
            raise ObjectExists(key)
        self._objects[key] = _Object(body=b"".join(body), modified_at_ms=self._clock.now_ms())

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        check_range(start, end)
        return self._get(key).body[start:end]

    async def get_suffix(self, key: str, length: int) -> bytes:
        check_length(length)
        body = self._get(key).body
        return body[max(0, len(body) - length) :]

    async def head(self, key: str) -> ObjectMeta:
        return self._meta(key, self._get(key))

    async def list(self, prefix: str) -> AsyncIterator[ObjectMeta]:
        check_prefix(prefix)
        for key in sorted(key for key in self._objects if key.startswith(prefix)):
            if (stored := self._objects.get(key)) is not None:
                yield self._meta(key, stored)

    async def delete(self, key: str) -> None:
        check_key(key)
        self._objects.pop(key, None)

    async def aclose(self) -> None:
        """Does nothing: the objects are kept, so that a restarted agent can use the same store."""

    def _get(self, key: str) -> _Object:
        check_key(key)
        stored = self._objects.get(key)
        if stored is None:
            raise ObjectMissing(key)
        return stored

    @staticmethod
    def _meta(key: str, stored: _Object) -> ObjectMeta:
        return ObjectMeta(key=key, size_bytes=len(stored.body), modified_at_ms=stored.modified_at_ms)
