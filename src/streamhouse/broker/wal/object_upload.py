"""Upload: one object of a log gets into the store, or the session learns that it is dead.

Data path   window -> **upload** -> object store
Owns        trying the same key again for as long as it takes; telling our own write from a seal and from a stranger
Leaves      order, acknowledgement and giving up to `objects`; shorter retries to the store

A PUT that failed may have happened, or may happen later. The key stays the same, so it happens once: when the name is
taken the object is read back. Our content is success. A seal, or anything else, means that others have ended this log.
"""

import logging
from typing import Final, Protocol

from streamhouse.clock import Clock, Ids
from streamhouse.errors import SessionSealed, Unavailable
from streamhouse.format.keys import wal_key
from streamhouse.format.wal_object import decode_seal
from streamhouse.model.names import SessionId
from streamhouse.stores.objects.base import Buffers, ObjectExists, ObjectMissing, ObjectStore

log: Final = logging.getLogger(__name__)

READ_BACKS: Final = 3
"""A stranger's content is believed only when it was read so often: a wrong bit on the way is no reason to die."""


class UploadSettings(Protocol):
    """What is read of `config.WalSettings`."""

    @property
    def retry_s(self) -> float: ...
    @property
    def retry_max_s(self) -> float: ...


class Uploader:
    """Puts the objects of one session; several at once."""

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
        """Return when the object is durable with this body; raise `SessionSealed` when it never will be."""
        wait_s = self._settings.retry_s
        while not await self._is_there_after_try(sequence, body):
            self.retries += 1
            await self._clock.sleep(self._ids.jitter(wait_s))
            wait_s = min(wait_s * 2, self._settings.retry_max_s)

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
        """Whether the name is taken by our own write; False when it is free after all."""
        ours = b"".join(body)
        for _ in range(READ_BACKS):
            try:
                found = await self._objects.get_range(key, 0, len(ours) + 1)
            except ObjectMissing:
                return False
            if found == ours:
                return True
            if (seal := decode_seal(memoryview(found), session=self._session, sequence=sequence)) is not None:
                raise SessionSealed(self._session, sequence=sequence, why=f"by={seal.by} at_ms={seal.at_ms}")
        raise SessionSealed(
            self._session, sequence=sequence, why="by=unknown what=the name holds somebody else's object"
        )
