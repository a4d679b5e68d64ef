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
"""A body in pieces, so that a large object is never joined just to be written."""


class ObjectExists(StreamhouseError):
    """Somebody wrote this key before; the caller decides whether that was itself (read back and compare)."""

    def __init__(self, key: str) -> None:
        super().__init__(f"object exists; key={key}")
        self.key = key


class ObjectMissing(StreamhouseError):
    """No object has this key, or no longer."""

    def __init__(self, key: str) -> None:
        super().__init__(f"object missing; key={key}")
        self.key = key


class Throttled(Unavailable):
    """The store asks for fewer requests; whoever sends them slows down."""


class Unreachable(Unavailable):
    """Nobody answers at the store's address."""

    def __init__(self, why: str, *, where: str, do: str) -> None:
        super().__init__(f"object store can't be reached; store={where} why={why} do={do}")
        self.why, self.where, self.do = why, where, do


class Refused(Unavailable):
    """The store says no to us and will say it again until somebody acts: asking again at once is pointless."""

    def __init__(self, why: str, *, where: str, do: str) -> None:
        super().__init__(f"object store refused; store={where} why={why} do={do}")
        self.why, self.where, self.do = why, where, do


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectMeta:
    key: str
    size_bytes: int
    modified_at_ms: int


class ObjectStore(Protocol):
    """Keys are `/`-separated and made by `format.keys` only. Trouble of the store itself is `errors.Unavailable`."""

    async def put_new(self, key: str, body: Buffers) -> None:
        """Write an object that must not exist yet; durable on return; raise `ObjectExists` when it does.

        All or nothing: no reader ever sees a part of it. After `Unavailable` the object may or may not be there.
        """
        ...

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        """Bytes [start, end), shorter only where the object ends before; raise `ObjectMissing`."""
        ...

    async def get_suffix(self, key: str, length: int) -> bytes:
        """The last `length` bytes, or the whole object when it is shorter; raise `ObjectMissing`."""
        ...

    async def head(self, key: str) -> ObjectMeta: ...

    def list(self, prefix: str) -> AsyncIterator[ObjectMeta]:
        """Every object below `prefix`, which ends with `/`, in key order."""
        ...

    async def delete(self, key: str) -> None:
        """Remove the object; no error when it isn't there."""
        ...

    async def aclose(self) -> None: ...


MAX_KEY: Final = 1024
MAX_PART: Final = 255
_PART: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_PART}}}")


def is_part(name: str) -> bool:
    """Whether the name may stand between two slashes of a key."""
    return _PART.fullmatch(name) is not None and name not in (".", "..")


def check_key(key: str) -> None:
    """Raise `Internal` unless the key is well formed: keys are made by us, so a bad one is a bug."""
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
