"""EncryptedStore: segments and WAL objects are encrypted below it, and plain above it.

Data path   flush, WAL, readers -> **encrypted** -> retrying -> ... -> a bucket
Owns        which objects are encrypted; where a range of plain bytes is in an encrypted object; remembering headers
Leaves      bytes to `format.encryption`, keys to `stores.encryption.data_keys`

Objects that were written before encryption was turned on are read as they are, and the other way round: what an object
is, its header says. A range of an object whose header isn't remembered costs one more request, except from its start.

Listings have the sizes of encrypted objects; `head` has the size before encryption.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final, NamedTuple

from streamhouse.clock import Clock
from streamhouse.errors import DataKeyUnavailable
from streamhouse.format.encryption import (
    CHUNK_BYTES,
    HEADER_BYTES,
    MAGIC,
    EncryptedHeader,
    ObjectCipher,
    decode_header,
    new_cipher,
    stored_size,
)
from streamhouse.format.object_keys import ENCRYPTED_PREFIXES, WAL_PREFIX
from streamhouse.format.segment import SEGMENT_MAGIC
from streamhouse.format.wal_object import DATA_MAGIC, SEAL_BYTES, SEAL_MAGIC
from streamhouse.stores.encryption.data_keys import DataKeys
from streamhouse.stores.objects.base import Buffers, ObjectMeta, ObjectStore, check_length, check_range

log = logging.getLogger(__name__)

INLINE_BYTES: Final = 128 * 1024
"""Encrypted and decrypted on the event loop up to this size: a thread costs more."""
_PLAIN_MAGICS: Final = (SEGMENT_MAGIC, DATA_MAGIC, SEAL_MAGIC)


class _Known(NamedTuple):
    """A remembered object: not encrypted, or its cipher until a time."""

    header: EncryptedHeader | None
    cipher: ObjectCipher | None = None
    until: float = 0.0


class EncryptedStore:
    """An `ObjectStore` around another."""

    def __init__(self, inner: ObjectStore, keys: DataKeys, clock: Clock) -> None:
        self._inner = inner
        self._keys = keys
        self._settings = keys.settings
        self._clock = clock
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self.damaged_chunks = 0

    def __repr__(self) -> str:
        return f"<EncryptedStore {self._keys!r} known={len(self._known)} {self._inner!r}>"

    # --- writing

    async def put_new(self, key: str, body: Buffers) -> None:
        size_bytes = sum(memoryview(buffer).nbytes for buffer in body)
        if not (self._settings.new_objects and is_encrypted(key, size_bytes)):
            await self._inner.put_new(key, body)
            return
        cipher = new_cipher(await self._keys.first(), object_key=key, size_bytes=size_bytes)
        if size_bytes <= INLINE_BYTES:
            stored = cipher.encrypt(body)
        else:
            stored = await asyncio.get_running_loop().run_in_executor(None, cipher.encrypt, body)
        await self._inner.put_new(key, [stored])
        self._remember(key, cipher.header, cipher)

    # --- reading

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        check_range(start, end)
        if not may_be_encrypted(key):
            return await self._inner.get_range(key, start, end)
        known = self._known.get(key)
        if known is None and start == 0:
            return await self._get_first(key, end)
        header = known.header if known is not None else await self._find_header(key)
        if header is None:
            return await self._inner.get_range(key, start, end)
        chunks = header.chunks_of(start, end)
        if not chunks:
            await self._inner.head(key)  # raises if the object is gone
            return b""
        stored = await self._inner.get_range(key, *header.stored_range(chunks))
        return await self._decrypt(key, header, stored, chunks, start, end)

    async def _get_first(self, key: str, end: int) -> bytes:
        """The first bytes of an object that isn't known, with one request whatever it is."""
        requested = stored_size(-(-end // CHUNK_BYTES) * CHUNK_BYTES)
        data = await self._inner.get_range(key, 0, requested)
        header = await self._header_from(key, data)
        if header is None:
            return data[:end]
        chunks = header.chunks_of(0, end)
        first, last = header.stored_range(chunks)
        if len(data) == requested < last:  # its chunks are of another size
            data = await self._inner.get_range(key, 0, last)
        return await self._decrypt(key, header, data[first:last], chunks, 0, end)

    async def get_suffix(self, key: str, length: int) -> bytes:
        check_length(length)
        if not may_be_encrypted(key):
            return await self._inner.get_suffix(key, length)
        known = self._known.get(key)
        header = known.header if known is not None else await self._find_header(key)
        if header is None:
            return await self._inner.get_suffix(key, length)
        return await self.get_range(key, max(0, header.size_bytes - length), header.size_bytes)

    async def head(self, key: str) -> ObjectMeta:
        meta = await self._inner.head(key)
        if not may_be_encrypted(key) or meta.size_bytes < 2 * HEADER_BYTES:
            return meta
        known = self._known.get(key)
        header = known.header if known is not None else await self._find_header(key)
        if header is None:
            return meta
        missing = max(0, header.stored_bytes - meta.size_bytes)
        return replace(meta, size_bytes=max(0, header.size_bytes - missing))

    async def _find_header(self, key: str) -> EncryptedHeader | None:
        return await self._header_from(key, await self._inner.get_range(key, 0, HEADER_BYTES))

    async def _header_from(self, key: str, data: bytes) -> EncryptedHeader | None:
        """The header in an object's first bytes, or in its last ones if these are damaged."""
        header = decode_header(data, key=key)
        if header is None and not data.startswith(_PLAIN_MAGICS) and len(data) >= HEADER_BYTES:
            header = decode_header(await self._inner.get_suffix(key, HEADER_BYTES), key=key)
        if header is not None or data.startswith(_PLAIN_MAGICS):
            self._remember(key, header, None)
        return header

    async def _decrypt(
        self, key: str, header: EncryptedHeader, stored: bytes, chunks: range, start: int, end: int
    ) -> bytes:
        cipher = await self._cipher(key, header)
        if len(stored) <= INLINE_BYTES:
            plain, damaged = cipher.decrypt(stored, chunks)
        else:
            plain, damaged = await asyncio.get_running_loop().run_in_executor(None, cipher.decrypt, stored, chunks)
        if damaged:
            self.damaged_chunks += damaged
            log.error("parts of an encrypted object don't authenticate", extra={"key": key, "chunks": damaged})
        first = chunks.start * header.chunk_bytes
        return bytes(plain[start - first : end - first])

    async def _cipher(self, key: str, header: EncryptedHeader) -> ObjectCipher:
        known = self._known.get(key)
        if known is not None and known.cipher is not None and self._clock.monotonic() < known.until:
            return known.cipher
        data_key = await self._keys.unwrap(header.envelope, where=key)
        cipher = ObjectCipher(header, data_key, object_key=key)
        self._remember(key, header, cipher)
        return cipher

    def _remember(self, key: str, header: EncryptedHeader | None, cipher: ObjectCipher | None) -> None:
        self._known[key] = _Known(header, cipher, self._clock.monotonic() + self._settings.cached_key_s)
        self._known.move_to_end(key)
        while len(self._known) > self._settings.cached_objects:
            self._known.popitem(last=False)

    # --- the rest

    def list(self, prefix: str) -> AsyncIterator[ObjectMeta]:
        return self._inner.list(prefix)

    async def delete(self, key: str) -> None:
        await self._inner.delete(key)
        self._known.pop(key, None)

    async def aclose(self) -> None:
        await self._inner.aclose()
        await self._keys.aclose()


def may_be_encrypted(key: str) -> bool:
    return key.startswith(ENCRYPTED_PREFIXES)


def is_encrypted(key: str, size_bytes: int) -> bool:
    """Whether a new object is encrypted; seals are not, so that they are recognised by their size."""
    return may_be_encrypted(key) and not (key.startswith(WAL_PREFIX) and size_bytes == SEAL_BYTES)


class UnencryptedStore:
    """An `ObjectStore` around another, without keys: an encrypted object is an error that says so, not damage.

    Looks at the first bytes of what is read from an object's start anyway; costs no request."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner

    def __repr__(self) -> str:
        return f"<UnencryptedStore {self._inner!r}>"

    async def put_new(self, key: str, body: Buffers) -> None:
        await self._inner.put_new(key, body)

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        data = await self._inner.get_range(key, start, end)
        if start == 0 and data.startswith(MAGIC):
            raise await self._without_keys(key)
        return data

    async def get_suffix(self, key: str, length: int) -> bytes:
        data = await self._inner.get_suffix(key, length)
        if data[-HEADER_BYTES:].startswith(MAGIC):
            raise await self._without_keys(key)
        return data

    async def head(self, key: str) -> ObjectMeta:
        return await self._inner.head(key)

    def list(self, prefix: str) -> AsyncIterator[ObjectMeta]:
        return self._inner.list(prefix)

    async def delete(self, key: str) -> None:
        await self._inner.delete(key)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _without_keys(self, key: str) -> DataKeyUnavailable:
        header = decode_header(await self._inner.get_range(key, 0, HEADER_BYTES), key=key)
        key_id = header.envelope.key_id if header is not None else "unknown"
        return DataKeyUnavailable(key, key_id=key_id, why="the object is encrypted, and encryption.kms is none")
