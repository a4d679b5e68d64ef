"""RemoteObjectStore: a bucket of S3, Google Cloud Storage or Azure, or of a compatible server.

Data path   retrying -> adaptive -> metered -> **remote** -> the network
Owns        one request per call, with a deadline that grows with the bytes; buffers that are lent to the client library
Leaves      retries to `retrying`, concurrency to `adaptive`, the meaning of errors to `remote_errors` (decision 0006)

The client library's own retries are off: it would repeat a create whose response was lost and report our own write as
that of another writer. One PUT per object, never a multipart upload: those are not create-only here.

Buffers: small parts of a body are joined, because each one costs a call between languages; large ones are lent without
a copy. The thread of a call that was cancelled or timed out may still read, so the caller gets its buffers back only
after the library released every view: a memoryview cannot be released while it is exported.

Key order: a bucket that has directories lists `a/b/1` before `a/b-c`, because it compares `b` with `b-c`; by key it is
the other way round, as `-` comes before `/`. Only names that start with the directory's name and continue with a
character below `/` can be out of order, and in directory order they follow it directly. `in_key_order` collects and
sorts these; everything else passes. Pages that are in key order already stay as they are.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore as Client

from streamhouse.clock import Clock
from streamhouse.config import StoreSettings
from streamhouse.errors import Internal, Unavailable
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
from streamhouse.stores.objects.remote_errors import read_error_response, translate

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore import ObjectMeta as Found

LENT_FROM_BYTES: Final = 64 * 1024
JOINED_BYTES: Final = 1024 * 1024
_FIRST_CHECK_S: Final = 0.0005
_LONGEST_CHECK_S: Final = 0.02


def lend_buffers(body: Buffers) -> list[memoryview]:
    """Views of the body, in order: large buffers themselves, runs of small ones as copies."""
    views: list[memoryview] = []
    small: list[memoryview] = []
    waiting_bytes = 0
    for buffer in body:
        view = memoryview(buffer).cast("B")
        if view.nbytes >= LENT_FROM_BYTES or waiting_bytes + view.nbytes > JOINED_BYTES:
            _join(small, views)
            waiting_bytes = 0
        if view.nbytes >= LENT_FROM_BYTES:
            views.append(view)
        else:
            small.append(view)
            waiting_bytes += view.nbytes
    _join(small, views)
    return views


def _join(small: list[memoryview], views: list[memoryview]) -> None:
    if small:
        views.append(memoryview(b"".join(small)))
        small.clear()


async def reclaim_buffers(views: list[memoryview], clock: Clock) -> None:
    """Return when the views are unused; a cancellation is raised only then."""
    cancelled: asyncio.CancelledError | None = None
    look_s = _FIRST_CHECK_S
    held = [view for view in views if not _is_released(view)]
    while held:
        try:
            await clock.sleep(look_s)
        except asyncio.CancelledError as error:
            cancelled = error
        look_s = min(_LONGEST_CHECK_S, look_s * 2)
        held = [view for view in held if not _is_released(view)]
    if cancelled is not None:
        raise cancelled


def _is_released(view: memoryview) -> bool:
    try:
        view.release()
    except BufferError:
        return False
    return True


async def in_key_order(objects: AsyncIterator[ObjectMeta], prefix: str) -> AsyncIterator[ObjectMeta]:
    """Objects below `prefix` in key order, from a listing in key order or directory order."""
    family: list[ObjectMeta] = []
    root = ""
    async for meta in objects:
        name = meta.key[len(prefix) :].partition("/")[0]
        if family and not _is_related(name, root):
            for each in sorted(family, key=attrgetter("key")):
                yield each
            family.clear()
        if not family:
            root = name
        family.append(meta)
    for each in sorted(family, key=attrgetter("key")):
        yield each


def _is_related(name: str, root: str) -> bool:
    """Whether an object below `name` may sort before an earlier one below `root`."""
    return name == root or (name.startswith(root) and name[len(root)] < "/")


T = TypeVar("T")

MAX_PUT_BYTES: Final = 5 * 1024**3
"""S3's limit of one PUT."""
_PAGE: Final = 1000
_CLIENT_ERRORS: Final = (BaseError, OSError, ValueError, NotImplementedError)


class RemoteObjectStore:
    """An `ObjectStore`. The client has bucket, prefix and credentials; `place` is its name in messages."""

    def __init__(
        self, client: Client, settings: StoreSettings, clock: Clock, *, location: str, has_suffixes: bool = True
    ) -> None:
        self._client: Client | None = client
        self._settings = settings
        self._clock = clock
        self._location = location
        self._has_suffixes = has_suffixes  # Azure has no suffix ranges: the size is requested first

    def __repr__(self) -> str:
        return f"<RemoteObjectStore {self._location}>"

    async def put_new(self, key: str, body: Buffers) -> None:
        check_key(key)
        size_bytes = sum(memoryview(buffer).nbytes for buffer in body)
        if size_bytes > MAX_PUT_BYTES:
            raise Internal(f"object is too large for one put; key={key} size={size_bytes} limit={MAX_PUT_BYTES}")
        client, views = self._open(), lend_buffers(body)
        try:
            putting = obstore.put_async(client, key, iter(views), mode="create", use_multipart=False)
            await self._ask(putting, "put_new", key, moves_bytes=size_bytes)
        except _Conflict:
            await self._resolve_conflict(key)
        finally:
            await reclaim_buffers(views, self._clock)

    async def _resolve_conflict(self, key: str) -> None:
        """A concurrent write of this key was in flight and ours was rejected: check whether the key exists now."""
        try:
            await self.head(key)
        except ObjectMissing:
            raise Unavailable(f"object store was busy with another write of the key; key={key}") from None
        raise ObjectExists(key)

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        check_key(key)
        check_range(start, end)
        if start == end:
            return await self._nothing(key)
        return await self._get(key, {"range": (start, end)}, "get_range", end - start)

    async def get_suffix(self, key: str, length: int) -> bytes:
        check_key(key)
        check_length(length)
        if length == 0:
            return await self._nothing(key)
        if not self._has_suffixes:
            size_bytes = (await self.head(key)).size_bytes
            return await self.get_range(key, max(0, size_bytes - length), size_bytes)
        return await self._get(key, {"range": {"suffix": length}}, "get_suffix", length)

    async def head(self, key: str) -> ObjectMeta:
        check_key(key)
        return _meta(await self._ask(obstore.head_async(self._open(), key), "head", key))

    async def list(self, prefix: str) -> AsyncIterator[ObjectMeta]:
        check_prefix(prefix)
        async for meta in in_key_order(self._pages(prefix), prefix):
            yield meta

    async def delete(self, key: str) -> None:
        check_key(key)
        try:
            await self._ask(obstore.delete_async(self._open(), key), "delete", key)
        except ObjectMissing:
            return

    async def aclose(self) -> None:
        self._client = None

    async def _nothing(self, key: str) -> bytes:
        """An empty range: no request can express it, but the object must exist."""
        await self.head(key)
        return b""

    async def _get(self, key: str, options: "GetOptions", operation: str, length: int) -> bytes:
        try:
            return await self._ask(_read(self._open(), key, options), operation, key, moves_bytes=length)
        except _PastTheEnd:
            return b""
        except _AnotherRange as other:
            if (await self.head(key)).size_bytes == 0:
                return b""  # servers differ in their response to an empty range
            raise other.meaning from None

    async def _pages(self, prefix: str) -> AsyncIterator[ObjectMeta]:
        pages = aiter(obstore.list(self._open(), prefix.removesuffix("/") or None, chunk_size=_PAGE))
        while True:
            try:
                page = await self._ask(anext(pages), "list", prefix)
            except StopAsyncIteration:
                return
            for entry in page:
                if (meta := _meta(entry)).key.startswith(prefix):
                    yield meta

    async def _ask(self, call: Awaitable[T], operation: str, key: str, *, moves_bytes: int = 0) -> T:
        """Run one request within its timeout, and translate its errors."""
        allowed_s = self._settings.request_timeout_s + moves_bytes / self._settings.min_bytes_per_s
        try:
            async with asyncio.timeout(allowed_s):
                return await call
        except TimeoutError:
            raise Unavailable(
                f"object store timed out; operation={operation} key={key} timeout_s={allowed_s:.3g}"
            ) from None
        except _CLIENT_ERRORS as error:
            raise self._meaning(error, operation, key) from None

    def _meaning(self, error: Exception, operation: str, key: str) -> Exception:
        response = read_error_response(error)
        if response.is_past_the_end and operation.startswith("get"):
            return _PastTheEnd()
        if response.is_conflict and isinstance(error, AlreadyExistsError) and operation == "put_new":
            return _Conflict()
        meaning = translate(error, operation=operation, key=key, where=self._location)
        return _AnotherRange(meaning) if response.is_another_range else meaning

    def _open(self) -> Client:
        if self._client is None:
            raise Unavailable(f"object store is closed; place={self._location}")
        return self._client


class _PastTheEnd(Exception):
    """The range begins at or after the end of the object."""


class _AnotherRange(Exception):
    """The server sent another range than requested."""

    def __init__(self, meaning: Exception) -> None:
        super().__init__()
        self.meaning = meaning


class _Conflict(Exception):
    """Two concurrent creates conflict."""


async def _read(client: Client, key: str, options: "GetOptions") -> bytes:
    response = await obstore.get_async(client, key, options=options)
    start, end = response.range
    body = bytes(await response.bytes_async())
    if len(body) != end - start:
        raise OSError("the body is shorter than announced")
    return body


def _meta(entry: "Found") -> ObjectMeta:
    modified = entry["last_modified"]
    return ObjectMeta(key=entry["path"], size_bytes=entry["size"], modified_at_ms=round(modified.timestamp() * 1000))
