"""Object WAL: at a short interval, one object with the appends of all partitions; several in flight.

Data path   log -> **append** (queue, on the loop) -> window -> PUT -> acks in the order of the numbers
Owns        when a window is uploaded, its number, the order of acknowledgements, the end of the log
Leaves      the bytes and the upload of one object to `object_upload`, retained objects and deletion to
            `object_cleanup`, reading to `object_recovery` (decision 0009)

Invariants  numbers begin at 0 and have no gaps; a window has its number, and its key, for good
            an append is done when its object and all objects before it are durable: a reader that stops at the first
            missing number has everything that was acknowledged
            while the session is alive, only objects below the number passed to `delete_below` are deleted
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from streamhouse.broker.wal.base import WalRequestStats, WalState, fail_quietly
from streamhouse.broker.wal.object_cleanup import RetainedObjects, delete_all
from streamhouse.broker.wal.object_upload import Uploader, WalObjectBuffer
from streamhouse.clock import Clock, Ids
from streamhouse.errors import AppendFailed, Overloaded
from streamhouse.format.object_keys import parse_wal_key, wal_key
from streamhouse.format.wal_file import ENTRY_HEADER_BYTES, MARK_BYTES, WalEntry
from streamhouse.model.names import PartitionId, SessionId
from streamhouse.stores.objects.base import ObjectStore

log: Final = logging.getLogger(__name__)

_RETRY_AFTER_S: Final = 0.1


class ObjectWalSettings(Protocol):
    """The part of `config.WalSettings` that is used here."""

    @property
    def window_ms(self) -> int: ...
    @property
    def window_bytes(self) -> int: ...
    @property
    def uploads(self) -> int: ...
    @property
    def max_pending_bytes(self) -> int: ...
    @property
    def retry_s(self) -> float: ...
    @property
    def retry_max_s(self) -> float: ...
    @property
    def close_s(self) -> float: ...
    @property
    def deletes(self) -> int: ...


def is_due(
    window: WalObjectBuffer, *, is_last: bool, under_way: int, quiet_s: float, settings: ObjectWalSettings
) -> bool:
    """Whether the oldest waiting window is uploaded now: at once if none was for the length of a window, so that few
    appends don't wait; otherwise when it is full; never above the limit of concurrent uploads. A window that is not the
    last is full."""
    if under_way >= settings.uploads:
        return False
    is_full = not is_last or window.size_bytes >= settings.window_bytes
    return is_full or window.is_over or quiet_s >= settings.window_ms / 1000


class ObjectWal:
    """One session's log; implements `Wal`. The session id must be unused."""

    def __init__(
        self, objects: ObjectStore, session: SessionId, settings: ObjectWalSettings, *, clock: Clock, ids: Ids
    ) -> None:
        self._objects = objects
        self._session = session
        self._settings = settings
        self._clock = clock
        self._ids = ids
        self._loop = asyncio.get_running_loop()
        self._uploader = Uploader(objects, session, settings, clock=clock, ids=ids)
        self._ledger = RetainedObjects()
        self._next_sequence = 0
        self._queue: deque[WalObjectBuffer] = deque()
        """Windows that are not uploaded yet; the last one takes appends."""
        self._unacknowledged: deque[WalObjectBuffer] = deque()
        """Windows in flight, in the order of their numbers."""
        self._landed: set[int] = set()
        """Numbers of durable windows that wait for an earlier one."""
        self._uploads: dict[asyncio.Task[None], None] = {}
        self._is_due = False
        self._sent_at = -math.inf
        self._pacer: asyncio.Task[None] | None = None
        self._pending_bytes = 0
        self._windows = self._object_bytes = self._batch_bytes = self._deletes = 0
        self._deleted_below = self._forgotten_below = 0
        self._deletion: asyncio.Task[None] | None = None
        self._ending = WalState(session)

    def __repr__(self) -> str:
        return (
            f"<ObjectWal {self._session} {self._ending.state} next={self._next_sequence} needed={self.first_retained} "
            f"uploads={len(self._uploads)} bytes={self.size_bytes} pending={self._pending_bytes}>"
        )

    @property
    def failed(self) -> Exception | None:
        return self._ending.error

    async def wait_failed(self) -> Exception:
        return await self._ending.wait_failed()

    @property
    def size_bytes(self) -> int:
        return self._ledger.size_bytes

    @property
    def pending_bytes(self) -> int:
        return self._pending_bytes

    @property
    def first_retained(self) -> int:
        return self._ledger.first_retained

    @property
    def durable_below(self) -> int:
        return self._ledger.durable_below

    @property
    def needed_objects(self) -> int:
        return self._ledger.durable_below - self._ledger.first_retained

    @property
    def costs(self) -> WalRequestStats:
        return WalRequestStats(
            windows=self._windows,
            puts=self._uploader.puts,
            retries=self._uploader.retries,
            deletes=self._deletes,
            object_bytes=self._object_bytes,
            batch_bytes=self._batch_bytes,
        )

    # --- appending

    def append(self, entries: Sequence[WalEntry]) -> asyncio.Future[None]:
        if self._ending.is_over:
            return self._ending.refused()
        if not entries:
            return self._last_commit()
        size = sum([len(entry[4]) for entry in entries]) + ENTRY_HEADER_BYTES * len(entries)
        limit = self._settings.max_pending_bytes
        if self._pending_bytes and self._pending_bytes + size > limit:
            raise Overloaded("write-ahead log", limit_bytes=limit, retry_after_s=_RETRY_AFTER_S)
        window = self._window_for(size)
        window.add(entries)
        self._pending_bytes += size
        sequence, ledger = window.sequence, self._ledger
        for partition, _, _, end, _ in entries:
            ledger.note(sequence, partition, end)
        ledger.resize(sequence, window.size_bytes)
        if window.size_bytes >= self._settings.window_bytes:
            self._look_soon()
        return window.commit

    def _last_commit(self) -> asyncio.Future[None]:
        """The commit that is done after all earlier ones, without writing an object."""
        if self._queue:
            return self._queue[-1].commit
        if self._unacknowledged:
            return self._unacknowledged[-1].commit
        done: asyncio.Future[None] = self._loop.create_future()
        done.set_result(None)
        return done

    def _window_for(self, size: int) -> WalObjectBuffer:
        """The current window, or the next one if it would exceed the limit; an append is never split."""
        if self._queue and self._queue[-1].size_bytes + size <= self._settings.window_bytes:
            return self._queue[-1]
        mark = bytes.fromhex(self._ids.token())[:MARK_BYTES]
        window = WalObjectBuffer(self._session, self._next_sequence, mark=mark, loop=self._loop)
        self._next_sequence += 1
        self._queue.append(window)
        self._look_soon()
        return window

    # --- uploading

    def _look_soon(self) -> None:
        """Check for due windows in the next turn of the event loop, so that other appends of this turn join."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._send_due)

    def _send_due(self) -> None:
        self._is_due = False
        queue = self._queue
        while queue and is_due(
            queue[0],
            is_last=len(queue) == 1,
            under_way=len(self._uploads),
            quiet_s=self._clock.monotonic() - self._sent_at,
            settings=self._settings,
        ):
            self._send(queue.popleft())
        if queue and not queue[-1].is_over and self._pacer is None:
            self._pacer = self._loop.create_task(self._pace(), name="wal-window")

    def _send(self, window: WalObjectBuffer) -> None:
        self._sent_at = self._clock.monotonic()
        self._unacknowledged.append(window)
        body = window.body(durable_below=self._ledger.durable_below)
        upload = self._loop.create_task(
            self._uploader.upload(window.sequence, body), name=f"wal-upload-{window.sequence}"
        )
        self._uploads[upload] = None
        upload.add_done_callback(partial(self._uploaded, window))

    async def _pace(self) -> None:
        """End the current window when its time is over, whether or not it can be uploaded yet."""
        while self._queue and not self._queue[-1].is_over:
            window = self._queue[-1]
            left_s = self._sent_at + self._settings.window_ms / 1000 - self._clock.monotonic()
            if left_s > 0 and not self._ending.is_closing:
                await self._clock.sleep(left_s)
            else:
                window.is_over = True
        self._pacer = None
        self._send_due()

    # --- acknowledging

    def _uploaded(self, window: WalObjectBuffer, upload: asyncio.Task[None]) -> None:
        self._uploads.pop(upload, None)
        error = RuntimeError("upload was stopped") if upload.cancelled() else upload.exception()
        if self._ending.error is not None:
            return
        if error is not None:
            self._fail(error if isinstance(error, Exception) else RuntimeError(repr(error)))
            return
        window.release_body()
        self._landed.add(window.sequence)
        self._acknowledge()
        self._send_due()

    def _acknowledge(self) -> None:
        """Acknowledge in the order of numbers: a window that is durable before its predecessor is not part of the log
        yet."""
        while self._unacknowledged and self._unacknowledged[0].sequence in self._landed:
            window = self._unacknowledged.popleft()
            self._landed.remove(window.sequence)
            self._pending_bytes -= window.append_bytes
            self._windows += 1
            self._object_bytes += window.size_bytes
            self._batch_bytes += window.batch_bytes
            self._ledger.durable(window.sequence)
            window.commit.set_result(None)

    def _fail(self, error: Exception) -> None:
        """End the log: all waiting appends fail, and nothing is retried."""
        if self._ending.fail(error):
            failed = AppendFailed(f"write-ahead log failed; session={self._session} why={error}")
            self._drop_waiting(error if isinstance(error, AppendFailed) else failed)

    def _abandon(self) -> None:
        """Fail the appends that are not durable when the log is closed."""
        error = AppendFailed(f"write-ahead log was closed before all was durable; session={self._session}")
        if self._ending.abandon(error):
            self._drop_waiting(error)

    def _drop_waiting(self, error: Exception) -> None:
        waiting = (*self._unacknowledged, *self._queue)
        self._unacknowledged.clear()
        self._queue.clear()
        self._pending_bytes = 0
        for upload in self._uploads:
            upload.cancel()
        for window in waiting:
            fail_quietly(window.commit, error)

    # --- deleting objects

    async def truncate(self, flushed: Mapping[PartitionId, int]) -> None:
        self._ledger.mark_flushed(flushed)

    async def delete_below(self, sequence: int) -> None:
        self._forgotten_below = max(self._forgotten_below, min(sequence, self.first_retained))
        if self._deletion is None and not self._ending.is_closing and self._deleted_below < self._forgotten_below:
            self._deletion = self._loop.create_task(self._forget(), name="wal-forget")

    async def _forget(self) -> None:
        # In the background, because the caller is the heartbeat: it must not wait for an unavailable store.
        try:
            await self._delete_below(self._forgotten_below)
        finally:
            self._deletion = None

    async def _delete_below(self, end: int) -> None:
        """Delete in order, so that one number is the progress; failed deletions are first in the next call."""
        keys = (wal_key(self._session, sequence) for sequence in range(self._deleted_below, end))
        gone: set[int] = set()
        async for key in delete_all(self._objects, keys, at_once=self._settings.deletes):
            name = parse_wal_key(key)
            assert name is not None
            gone.add(name.sequence)
            self._deletes += 1
            self._ledger.deleted(name.sequence)
            while self._deleted_below in gone:
                gone.remove(self._deleted_below)
                self._deleted_below += 1

    # --- closing

    async def aclose(self, *, remove: bool) -> None:
        if self._ending.is_closing:
            return
        self._ending.close()
        try:
            await self._finish_queue()
        finally:
            if self._unacknowledged or self._queue:
                self._abandon()
            await self._stop()
        if remove:
            # Only our own objects: above them there may be a seal.
            await self._delete_below(self._next_sequence if self._ending.error is None else self._ledger.durable_below)

    async def _finish_queue(self) -> None:
        """Wait for a limited time until all is durable: an unavailable store must not delay the session's end."""
        if self._ending.error is not None:
            return
        last = self._last_commit()
        for window in self._queue:
            window.is_over = True
        self._send_due()
        deadline = self._loop.create_task(self._clock.sleep(self._settings.close_s), name="wal-close")
        last.add_done_callback(lambda _: deadline.cancel())
        try:
            await asyncio.wait((deadline,))
        finally:
            deadline.cancel()
            await asyncio.gather(deadline, return_exceptions=True)

    async def _stop(self) -> None:
        """Cancel all tasks; no buffer is in use when this returns."""
        own = [task for task in (*self._uploads, self._pacer, self._deletion) if task is not None]
        for task in own:
            task.cancel()
        await asyncio.gather(*own, return_exceptions=True)
