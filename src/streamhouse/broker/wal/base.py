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
    """What a log has asked of the object store since it began; all zero where it asks for nothing.

    Requests per second are the growth of `puts`; per GB of records, that of `puts` over that of `batch_bytes`.
    """

    windows: int = 0
    """Objects that became durable."""
    puts: int = 0
    """PUTs asked for, `retries` of the same object included."""
    retries: int = 0
    deletes: int = 0
    object_bytes: int = 0
    """Bytes of durable objects."""
    batch_bytes: int = 0
    """Bytes of the batches in them."""


class Wal(Protocol):
    """One session's log. All calls come from the event loop that opened it."""

    def append(self, entries: Sequence[WalEntry]) -> asyncio.Future[None]:
        """Queue entries, in call order, and return the future of the group commit that carries them.

        Done when they are durable under the policy. The future is shared by everybody in the group, so one waiter
        can't cancel it: `await asyncio.shield(future)` leaves at once when cancelled, a plain `await` only when the
        group is done. Batches must not change until then. Fails with `AppendFailed`; after the first failure every
        later append fails at once: the log is over. A failed append may yet be found by recovery (its bytes may have
        reached the disk), so its offsets are free again only after this log was recovered.

        Raises `Overloaded`, with nothing queued, when more than the limit of bytes is waiting.
        """
        ...

    async def truncate(self, flushed: Mapping[PartitionId, int]) -> None:
        """Entries of these partitions below these offsets are published elsewhere; drop what nobody needs.

        Works in whole files. A partition that is gone is truncated at the largest offset. A log in an object store
        only takes note of it: its objects go by `delete_below`.
        """
        ...

    @property
    def first_retained(self) -> int:
        """The lowest number of an object that recovery of this log would need; never goes back. 0 where files are not
        found by number."""
        ...

    @property
    def durable_below(self) -> int:
        """All objects of this log with a lower number are durable, or were until they were forgotten; 0 where files are
        not found by number."""
        ...

    @property
    def needed_objects(self) -> int:
        """How many objects recovery of this log would read, one by one; 0 where files are not found by number."""
        ...

    async def delete_below(self, sequence: int) -> None:
        """Recovery will begin at `sequence`, or later: that is written down where it looks. What is below may go.

        Returns at once; deleting goes on behind it, and what could not be deleted is tried again by a later call.
        Never call it with a number that is not durably stored: a reader who began lower would find a gap, and take
        it for the end.
        """
        ...

    @property
    def costs(self) -> WalRequestStats: ...

    @property
    def failed(self) -> Exception | None:
        """Why the log is over, once it is."""
        ...

    async def wait_failed(self) -> Exception:
        """Return `failed` as soon as there is one; the log may also fail while nobody appends."""
        ...

    @property
    def size_bytes(self) -> int:
        """Bytes that the log holds, queued ones included."""
        ...

    @property
    def pending_bytes(self) -> int:
        """Bytes queued and not yet durable under the policy."""
        ...

    async def aclose(self, *, remove: bool) -> None:
        """Finish the queue and close; `remove` deletes the whole log, because everything in it was flushed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DamageReport:
    """What a reading could not use: `skipped` between good entries, `cut` at the end of a file, `missing` objects that
    were durable once and are not there any more."""

    files: int = 0
    entries: int = 0
    skipped: int = 0
    skipped_bytes: int = 0
    cut: int = 0
    cut_bytes: int = 0
    missing: int = 0
    unreadable_bytes: int = 0
    """Bytes that the disk did not give back."""
    losses: int = 0
    """Places that may have held acknowledged entries: all of the above but the torn end of a log that was being
    written. It grows in the order of the log, while the log is read."""
    places: tuple[str, ...] = ()
    """The first of them, as `file@position+length`, or `file@missing`."""

    @property
    def is_clean(self) -> bool:
        return not (self.skipped or self.cut or self.missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinedWal:
    """A damaged log that is kept until an operator discards it."""

    session_id: SessionId
    kind: str
    where: str
    """The folder, or the prefix of its objects."""
    files: int
    size_bytes: int
    report: bytes
    """The newest report on it: JSON."""


class WalReader(Protocol):
    """A dead session's log, held so that nobody else reads or removes it."""

    def entries(self) -> AsyncIterator[WalEntry]:
        """All good entries in the order of their appends, file by file. Batches are views of their file's bytes."""
        ...

    @property
    def damage(self) -> DamageReport:
        """What was found so far; complete when `entries` is exhausted."""
        ...

    async def keep(self, report: bytes, *, number: int) -> None:
        """Keep all of this log, from now on and durably, with a report on why; a higher number is a newer report."""
        ...

    async def remove(self) -> None:
        """Delete the log durably: everything in it is published elsewhere. One that is damaged, as far as it was read,
        or is to be kept, is set aside instead."""
        ...


class WalRecovery(Protocol):
    async def dead_sessions(self, own: SessionId) -> list[SessionId]:
        """Sessions other than `own` that left a log and no longer hold it, by name."""
        ...

    def read(
        self, session: SessionId, *, start: int = 0, durable_below: int = 0
    ) -> AbstractAsyncContextManager[WalReader]:
        """Take the session's log for reading; raises `LockedError` while its owner lives. A missing log is empty.

        `start` is the mark up to which the session had forgotten its objects (`Wal.forget_below`): reading begins
        there. Below `durable_below` every object was durable once, as the session itself has said: one that is missing
        from there on is lost. A log that is not found by number ignores both.
        """
        ...

    async def remove(self, session: SessionId) -> None:
        """Delete the session's log durably, or set it aside where it is to be kept; a missing one is fine."""
        ...

    async def kept(self) -> Sequence[QuarantinedWal]:
        """The damaged logs that are kept."""
        ...

    async def discard(self, session: SessionId) -> int:
        """Delete a log that is kept, and its reports; returns how many files or objects went. The caller has made sure
        that the session is over and that an operator asked for it."""
        ...

    async def collect(self, ended: Callable[[SessionId], bool], *, now_ms: int) -> int:
        """Delete what sessions left that ended long ago, by the time `now_ms`; returns how many objects went. `ended`
        is asked about each session that left something, and must be true only of those that are known to be over for
        good."""
        ...


class GroupCommit(asyncio.Future[None]):
    """The future that all appends of a group share. One waiter who gives up must not take it from the others."""

    def cancel(self, msg: object = None) -> bool:
        return False


def fail_quietly(future: asyncio.Future[None], error: Exception) -> None:
    future.set_exception(error)
    future.exception()  # seen: a producer that has gone leaves nobody to wait for it, which is no news


log: Final = logging.getLogger(__name__)


class WalState:
    """`is_over`: nothing is taken any more. It is asked with every append, so it is kept, not found out."""

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
        """The log has failed; whether that is news."""
        if self.error is not None:
            return False
        self.error, self.is_over = error, True
        self._has_failed.set()
        log.error("wal failed", extra={"session": self._session, "why": str(error)})
        return True

    def close(self) -> None:
        self.is_closing = self.is_over = True

    async def wait_failed(self) -> Exception:
        await self._has_failed.wait()
        assert self.error is not None
        return self.error

    def refused(self) -> asyncio.Future[None]:
        """For an append that comes too late."""
        why = "closed" if self.error is None else self.error
        refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        fail_quietly(refused, AppendFailed(f"write-ahead log is over; session={self._session} why={why}"))
        return refused
