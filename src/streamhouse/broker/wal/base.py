"""Write-ahead log: the interfaces by which the broker makes an append durable and recovers it after a crash.

Data path   partition.log -> **wal** -> high watermark, acknowledgement; after a crash: wal -> segments
Leaves      entry bytes to `format.wal_file`; local files to `disk_wal` and `disk_recovery`; objects to `object_wal` and
            `object_recovery`

`GroupCommit` is the future that the appends of a group share: cancelling one waiter does not cancel the others.
`WalState` holds the first failure of a log, wakes those who wait for it, and rejects late appends.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, Protocol

from streamhouse.errors import AppendFailed
from streamhouse.format.wal_file import WalEntry
from streamhouse.model.names import PartitionId, SessionId


@dataclass(frozen=True, slots=True, kw_only=True)
class WalRequestStats:
    """Requests of a log to the object store since it was opened; all zero for a disk WAL.

    Requests per second are the growth of `puts`; per GB of records, that of `puts` over that of `batch_bytes`.
    """

    windows: int = 0
    """Objects that became durable."""
    puts: int = 0
    """PUT requests, including `retries`."""
    retries: int = 0
    deletes: int = 0
    object_bytes: int = 0
    """Bytes of durable objects."""
    batch_bytes: int = 0
    """Bytes of the batches in them."""


async def at_once() -> None:
    """For a log of which nothing has to be known before files of it are removed."""


class Wal(Protocol):
    """One session's log. All calls come from the event loop that opened it."""

    def append(self, entries: Sequence[WalEntry]) -> asyncio.Future[None]:
        """Queue entries, in call order, and return the future of their group commit.

        It is done when they are durable under the policy. The whole group shares the future, and a waiter can't cancel
        it: when cancelled, `await asyncio.shield(future)` returns at once, a plain `await` only when the group is done.
        Batches must not change until then. Fails with `AppendFailed`; after the first failure every
        later append fails at once: the log is over. A failed append may yet be found by recovery (its bytes may have
        reached the disk), so its offsets are free again only after this log was recovered.

        Raises `Overloaded`, with nothing queued, when more than the limit of bytes is waiting.
        """
        ...

    async def truncate(self, flushed: Mapping[PartitionId, int]) -> None:
        """Entries of these partitions below these offsets are in segments: delete what is no longer needed.

        Works in whole files. A deleted partition is truncated at the largest offset. An object WAL only notes it: its
        objects are deleted by `delete_below`."""
        ...

    @property
    def first_retained(self) -> int:
        """The lowest object number that recovery of this log needs; never decreases. 0 for a disk WAL."""
        ...

    @property
    def durable_below(self) -> int:
        """All objects with a lower number are durable, or were until they were deleted; 0 for a disk WAL."""
        ...

    @property
    def needed_objects(self) -> int:
        """The number of objects that recovery of this log would read; 0 for a disk WAL."""
        ...

    async def delete_below(self, sequence: int) -> None:
        """Delete objects below `sequence`; the caller has durably stored that recovery begins there or later.

        Returns at once and deletes in the background; failed deletions are retried by a later call. Without the durable
        number a reader that begins lower would find a gap and treat it as the end."""
        ...

    @property
    def costs(self) -> WalRequestStats: ...

    @property
    def failed(self) -> Exception | None:
        """The failure of the log; None while it works."""
        ...

    async def wait_failed(self) -> Exception:
        """Return the failure as soon as there is one; the log may also fail without appends."""
        ...

    @property
    def size_bytes(self) -> int:
        """Size of the log, including queued bytes."""
        ...

    @property
    def pending_bytes(self) -> int:
        """Bytes queued and not yet durable under the policy."""
        ...

    async def aclose(self, *, remove: bool) -> None:
        """Finish the queue and close; with `remove` delete the whole log, because everything in it was flushed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DamageReport:
    """The damage found by a reader: `skipped` bytes between valid entries, `cut` bytes at the end of a file, `missing`
    objects that were durable."""

    files: int = 0
    entries: int = 0
    skipped: int = 0
    skipped_bytes: int = 0
    cut: int = 0
    cut_bytes: int = 0
    missing: int = 0
    unreadable_bytes: int = 0
    """Bytes that the disk could not read."""
    losses: int = 0
    """Places that may have contained acknowledged entries: all of the above except the torn end of a log that was being
    written. Grows in the order of the log while it is read."""
    places: tuple[str, ...] = ()
    """The first places, as `file@position+length`, or `file@missing`."""

    @property
    def is_clean(self) -> bool:
        return not (self.skipped or self.cut or self.missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedWal:
    """A damaged log that is retained until an operator discards it."""

    session_id: SessionId
    kind: str
    where: str
    """Its folder, or the prefix of its objects."""
    files: int
    size_bytes: int
    report: bytes
    """Its newest report, as JSON."""


class WalReader(Protocol):
    """A dead session's log, locked so that no other agent reads or removes it."""

    def entries(self) -> AsyncIterator[WalEntry]:
        """All valid entries in append order, file by file. Batches are views of their file's bytes."""
        ...

    @property
    def damage(self) -> DamageReport:
        """The damage found so far; complete when `entries` is exhausted."""
        ...

    async def keep(self, report: bytes, *, number: int) -> None:
        """Retain this log durably, with a report; a higher number is a newer report."""
        ...

    async def remove(self) -> None:
        """Delete the log durably: everything in it is in segments. A damaged or retained log is moved to quarantine
        instead."""
        ...


class WalRecovery(Protocol):
    async def dead_sessions(self, own: SessionId) -> list[SessionId]:
        """Sessions other than `own` with a log that is not locked any more, by name."""
        ...

    def read(
        self, session: SessionId, *, start: int = 0, durable_below: int = 0
    ) -> AbstractAsyncContextManager[WalReader]:
        """Open the session's log for reading; raises `LockedError` while its owner is alive. A missing log is empty.

        `start` is the number below which the session has deleted its objects (`Wal.delete_below`): reading begins
        there. Every object below `durable_below` was durable, so a missing one is lost. A disk WAL ignores both."""
        ...

    async def remove(self, session: SessionId) -> None:
        """Delete the session's log durably, or quarantine it if it is retained; no error if it is missing."""
        ...

    async def kept(self) -> Sequence[QuarantinedWal]:
        """The retained damaged logs."""
        ...

    async def discard(self, session: SessionId) -> int:
        """Delete a retained log and its reports; returns the number of deleted files or objects. The caller has checked
        that the session has ended, and that an operator requested it."""
        ...

    async def collect(self, ended: Callable[[SessionId], bool], *, now_ms: int) -> int:
        """Delete leftovers of sessions that ended long before `now_ms`; returns the number of deleted objects. `ended`
        must be true only for sessions that are known to have ended for good."""
        ...


class GroupCommit(asyncio.Future[None]):
    """The future that all appends of a group share. Cancelling one waiter doesn't cancel it."""

    def cancel(self, msg: object = None) -> bool:
        return False


def fail_quietly(future: asyncio.Future[None], error: Exception) -> None:
    future.set_exception(error)
    future.exception()  # retrieved, so that asyncio doesn't report an error without waiters


log: Final = logging.getLogger(__name__)


class WalState:
    """The state of a log. `is_over`: appends are rejected; a plain attribute, because every append reads it."""

    __slots__ = ("_has_failed", "_session", "error", "is_closing", "is_over")

    def __init__(self, session: SessionId) -> None:
        self._session = session
        self._has_failed = asyncio.Event()
        self.error: Exception | None = None
        self.is_closing = False
        self.is_over = False

    def __repr__(self) -> str:
        return f"<WalState {self.state}>"

    @property
    def state(self) -> str:
        return "failed" if self.error else "closing" if self.is_closing else "open"

    def fail(self, error: Exception) -> bool:
        """Note a failure; returns whether it is the first."""
        if not self.abandon(error):
            return False
        self._has_failed.set()
        log.error("write-ahead log failed", extra={"session": self._session, "why": str(error)})
        return True

    def abandon(self, error: Exception) -> bool:
        """Reject appends with `error`, without the alarm of a failure: the log is closed before all is durable.
        Returns False if the log had failed before."""
        if self.error is not None:
            return False
        self.error, self.is_over = error, True
        return True

    def close(self) -> None:
        self.is_closing = self.is_over = True

    async def wait_failed(self) -> Exception:
        await self._has_failed.wait()
        assert self.error is not None
        return self.error

    def refused(self) -> asyncio.Future[None]:
        """The error of an append after the end."""
        why = "closed" if self.error is None else self.error
        refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        fail_quietly(refused, AppendFailed(f"write-ahead log is over; session={self._session} why={why}"))
        return refused
