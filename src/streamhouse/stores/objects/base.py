"""ObjectStore: the interface to a bucket, its errors, and the rule for keys.

Keys have parts of letters, digits, dot, underscore and dash, separated by single slashes; no part may be `.` or `..`.
Every implementation passes `tests/contracts/object_store.py`.
"""

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from streamhouse.errors import Internal, StreamhouseError, Unavailable

Buffers = Sequence[bytes | bytearray | memoryview]
"""A body in buffers, so that a large object is written without joining it."""


class ObjectExists(StreamhouseError):
    """The key exists; the caller reads it back to find out whether it was its own write."""

    def __init__(self, key: str) -> None:
        super().__init__(f"object exists; key={key}")
        self.key = key


class ObjectMissing(StreamhouseError):
    """There is no object with this key."""

    def __init__(self, key: str) -> None:
        super().__init__(f"object missing; key={key}")
        self.key = key


class Throttled(Unavailable):
    """A slow-down response of the store."""


class Unreachable(Unavailable):
    """The store does not respond at its address."""

    def __init__(self, why: str, *, where: str, do: str) -> None:
        super().__init__(f"object store can't be reached; store={where} why={why} do={do}")
        self.why, self.where, self.do = why, where, do


class Refused(Unavailable):
    """The store rejects requests until an operator acts; an immediate retry is pointless."""

    def __init__(self, why: str, *, where: str, do: str) -> None:
        super().__init__(f"object store refused; store={where} why={why} do={do}")
        self.why, self.where, self.do = why, where, do


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectMeta:
    key: str
    size_bytes: int
    modified_at_ms: int


class ObjectStore(Protocol):
    """Keys are `/`-separated and created by `format.object_keys` only. Errors of the store itself are
    `errors.Unavailable`."""

    async def put_new(self, key: str, body: Buffers) -> None:
        """Write an object that must not exist; durable on return; raises `ObjectExists` if it does.

        Atomic: no reader ever sees a part of it. After `Unavailable` the object may or may not exist."""
        ...

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        """Bytes [start, end), shorter only if the object ends before; raises `ObjectMissing`."""
        ...

    async def get_suffix(self, key: str, length: int) -> bytes:
        """The last `length` bytes, or the whole object if it is shorter; raises `ObjectMissing`."""
        ...

    async def head(self, key: str) -> ObjectMeta: ...

    def list(self, prefix: str) -> AsyncIterator[ObjectMeta]:
        """All objects below `prefix`, which ends with `/`, in key order."""
        ...

    async def delete(self, key: str) -> None:
        """Remove the object; no error if it doesn't exist."""
        ...

    async def aclose(self) -> None: ...


MAX_KEY: Final = 1024
MAX_PART: Final = 255
_PART: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_PART}}}")


def is_part(name: str) -> bool:
    """Whether the name is a valid part of a key."""
    return _PART.fullmatch(name) is not None and name not in (".", "..")


def check_key(key: str) -> None:
    """Raise `Internal` unless the key is well formed: an invalid key is a bug."""
    if len(key) > MAX_KEY or not all(map(is_part, key.split("/"))):
        raise Internal(f"not an object key; key={key!r}")


def check_prefix(prefix: str) -> None:
    """Raise `Internal` unless the prefix is empty, or a key and a slash."""
    if prefix:
        check_key(prefix.removesuffix("/"))
        if not prefix.endswith("/"):
            raise Internal(f"not a prefix, which ends with a slash; prefix={prefix!r}")


def check_range(start: int, end: int) -> None:
    if not 0 <= start <= end:
        raise Internal(f"not a byte range; start={start} end={end}")


def check_length(length: int) -> None:
    if length < 0:
        raise Internal(f"not a length; length={length}")
