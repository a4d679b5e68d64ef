"""One object of the object WAL: its buffer, and its upload.

Data path   append -> **buffer** (encoded as it arrives) -> **upload** -> object store
Owns        the object's bytes and the future that its appends share; retrying the same key; telling the agent's own
            write from a seal
Leaves      when an object is sent, order and acknowledgement to `object_wal`

A PUT that failed may have happened, or may happen later. The key stays the same, so it happens once: if the name is
taken, the object is read back. Equal content is success; a seal or anything else means that the log was ended.

Small batches are copied once, here, as they arrive, so that the store gets few large pieces; large ones are not copied.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from streamhouse.broker.wal.base import GroupCommit
from streamhouse.clock import Clock, Ids
from streamhouse.errors import SessionSealed, Unavailable
from streamhouse.format.batch import Buffer
from streamhouse.format.object_keys import wal_key
from streamhouse.format.wal_file import ENTRY_HEADER_BYTES, WalEntry, encode_entry
from streamhouse.format.wal_object import COPY_BYTES, ObjectHeader, decode_seal, encode_header
from streamhouse.model.names import SessionId
from streamhouse.retry import Backoff
from streamhouse.stores.objects.base import Buffers, ObjectExists, ObjectMissing, ObjectStore

log: Final = logging.getLogger(__name__)

READ_BACKS: Final = 3
"""Reads of unexpected content before it is accepted: it may have been damaged in transit."""


class UploadSettings(Protocol):
    """The part of `config.WalSettings` that is used here."""

    @property
    def retry_s(self) -> float: ...
    @property
    def retry_max_s(self) -> float: ...


class Uploader:
    """Uploads the objects of one session, several concurrently."""

    def __init__(
        self, objects: ObjectStore, session: SessionId, settings: UploadSettings, *, clock: Clock, ids: Ids
    ) -> None:
        self._objects = objects
        self._session = session
        self._settings = settings
        self._clock = clock
        self._ids = ids
        self.puts = 0
        self.retries = 0

    async def upload(self, sequence: int, body: Buffers) -> None:
        """Return when the object is durable with this body; raises `SessionSealed` if it never will be."""
        settings = self._settings
        backoff = Backoff(self._clock, self._ids, first_s=settings.retry_s, max_s=settings.retry_max_s)
        while not await self._is_there_after_try(sequence, body):
            self.retries += 1
            await backoff.wait()

    async def _is_there_after_try(self, sequence: int, body: Buffers) -> bool:
        key = wal_key(self._session, sequence)
        self.puts += 1
        try:
            try:
                await self._objects.put_new(key, body)
            except ObjectExists:
                return await self._is_ours(key, sequence, body)
        except Unavailable as error:
            log.warning("wal object not written yet", extra={"key": key, "why": str(error)})
            return False
        return True

    async def _is_ours(self, key: str, sequence: int, body: Buffers) -> bool:
        """Whether the existing object is our own write; False if there is none."""
        ours = b"".join(body)
        for _ in range(READ_BACKS):
            try:
                existing = await self._objects.get_range(key, 0, len(ours) + 1)
            except ObjectMissing:
                return False
            if existing == ours:
                return True
            if (seal := decode_seal(memoryview(existing), session=self._session, sequence=sequence)) is not None:
                raise SessionSealed(self._session, sequence=sequence, why=f"by={seal.by} at_ms={seal.at_ms}")
        raise SessionSealed(self._session, sequence=sequence, why="by=unknown what=the key has another writer's object")


COPIED_BELOW_BYTES: Final = 64 * 1024
PIECE_BYTES: Final = 256 * 1024
"""Size at which small batches are joined to one piece; a growing buffer would copy them repeatedly."""
FRAME_BYTES: Final = 2 * COPY_BYTES


class WalObjectBuffer:
    """Appends that become durable and are acknowledged together."""

    __slots__ = (
        "_mark",
        "_pieces",
        "_session",
        "_small",
        "_small_bytes",
        "batch_bytes",
        "commit",
        "entries",
        "is_over",
        "sequence",
        "size_bytes",
    )

    def __init__(
        self,
        session: SessionId,
        sequence: int,
        *,
        mark: bytes,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._session = session
        self._mark = mark
        self.sequence = sequence
        self.commit = GroupCommit(loop=loop)
        self.entries = 0
        self.batch_bytes = 0
        self.size_bytes = FRAME_BYTES
        """Size of the whole object."""
        self.is_over = False
        """Whether it is due: it is uploaded as soon as a PUT may start."""
        self._pieces: list[Buffer] = []
        self._small: list[Buffer] = []
        """Headers and small batches that are not joined to a piece yet."""
        self._small_bytes = 0

    def __repr__(self) -> str:
        state = "durable" if self.commit.done() else "over" if self.is_over else "open"
        return f"<WalObjectBuffer {self.sequence} {state} entries={self.entries} bytes={self.size_bytes}>"

    @property
    def append_bytes(self) -> int:
        """Bytes of the entries, without the object's header."""
        return self.size_bytes - FRAME_BYTES

    def add(self, entries: Iterable[WalEntry]) -> None:
        position = self.size_bytes - COPY_BYTES
        for entry in entries:
            header, batch = encode_entry(entry, mark=self._mark, position=position)
            self._small.append(header)
            length = len(batch)
            if length < COPIED_BELOW_BYTES:
                self._small.append(batch)
                self._small_bytes += length
                if self._small_bytes >= PIECE_BYTES:
                    self._join()
            else:
                self._join()
                self._pieces.append(batch)
            position += ENTRY_HEADER_BYTES + length
            self.batch_bytes += length
            self.entries += 1
        self.size_bytes = position + COPY_BYTES

    def _join(self) -> None:
        self._pieces.append(b"".join(self._small))
        self._small.clear()
        self._small_bytes = 0

    def body(self, *, durable_below: int) -> Sequence[Buffer]:
        """The whole object, with the mark `durable_below`; nothing may be added after this."""
        header = encode_header(
            ObjectHeader(
                session=self._session,
                sequence=self.sequence,
                mark=self._mark,
                entries=self.entries,
                size_bytes=self.size_bytes,
                durable_below=durable_below,
            )
        )
        self._join()
        return (header, *self._pieces, header)

    def release_body(self) -> None:
        """Free the bytes after the upload, while earlier windows are still in flight."""
        self._pieces.clear()
