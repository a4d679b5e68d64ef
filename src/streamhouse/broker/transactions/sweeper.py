"""TransactionSweeper: aborts transactions that timed out, completes unfinished ones, ends hanging ones (KIP-664).

Data path   metadata store, open logs -> **sweeper** -> completion, markers
Leaves      the deadline to the store's clock; the decision to its transaction; markers to `completion` and `markers`

A decision is a row in the metadata store, so another agent completes what an agent left unfinished.

`HangingTransactions` ends transactions that are open in a partition only. A marker may be lost with the power or with
a disk, as far as the WAL policy allows it. The row is then closed and no coordinator writes the marker again, so the
last stable offset would never advance. If the row still has the outcome of that transaction, the leader writes that
marker; otherwise it aborts the transaction.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.partition.log import PartitionLog
from streamhouse.broker.session.agent_session import AgentSession
from streamhouse.broker.transactions.completion import TransactionCompletion
from streamhouse.broker.transactions.markers import MarkerWriter
from streamhouse.errors import StreamhouseError
from streamhouse.format.producer_snapshot import ProducerEntry
from streamhouse.model.names import PartitionId
from streamhouse.model.transaction import Marker, ProducerIdentity, StoredTransaction, TransactionState

log = logging.getLogger(__name__)

CHECKED_AT_ONCE: Final = 20
MAX_WAIT_S: Final = 60.0
"""Longest time between two checks of the same open transaction."""


class Hanging(NamedTuple):
    """An open transaction at the last check; its next batch makes it a different one."""

    partition: PartitionId
    entry: ProducerEntry


class _CheckSchedule(NamedTuple):
    check_at: float
    wait_s: float


def missing_marker(row: StoredTransaction | None, suspect: Hanging) -> Marker | None:
    """The marker that a partition needs and no coordinator will write; None while one may still write it."""
    entry = suspect.entry
    if row is None:  # its producer may have another id by now, and its end be on its way
        return None
    takes_part = suspect.partition in row.partitions
    if row.state.is_prepared and takes_part:
        return None
    is_current = row.state is TransactionState.ONGOING and row.producer.epoch == entry.epoch
    if is_current and takes_part:
        return None
    is_under_way = row.state is TransactionState.ONGOING or row.state.is_prepared
    number = row.number - is_under_way
    if number <= entry.marker_number:
        return None
    is_commit = row.state is TransactionState.COMPLETE_COMMIT and _is_last(row, entry)
    return Marker(producer=ProducerIdentity(entry.producer_id, entry.epoch), number=number, is_commit=is_commit)


def _is_last(row: StoredTransaction, entry: ProducerEntry) -> bool:
    """Whether the row's last transaction is the one that is open: its end changed the producer, so that it has an epoch
    of its own; or it has the same epoch, and none came between."""
    if row.previous is not None:
        return row.previous == (entry.producer_id, entry.epoch)
    return row.marked_as == (entry.producer_id, entry.epoch) and row.number == max(entry.marker_number, 0) + 1


class HangingTransactions:
    def __init__(
        self, dependencies: Dependencies, *, current_session: Callable[[], AgentSession], marker_writer: MarkerWriter
    ) -> None:
        self._dependencies = dependencies
        self._settings = dependencies.settings.transactions
        self._current_session = current_session
        self._marker_writer = marker_writer
        self._suspects: dict[Hanging, _CheckSchedule] = {}
        self.ended = 0

    def __repr__(self) -> str:
        return f"<HangingTransactions suspects={len(self._suspects)} ended={self.ended}>"

    async def sweep(self) -> None:
        """Check a few of the transactions that have been open for a while, those that are due longest first."""
        now = self._dependencies.clock.monotonic()
        logs = {each.partition: each for each in self._current_session().logs if _holds_back_lso(each)}
        suspects = _open(logs.values())
        fresh = _CheckSchedule(now + self._settings.grace_s, self._settings.grace_s)
        self._suspects = {each: self._suspects.get(each, fresh) for each in suspects}
        due = sorted(
            (each for each in suspects if self._suspects[each].check_at <= now), key=self._suspects.__getitem__
        )
        for suspect in due[:CHECKED_AT_ONCE]:
            wait_s = min(2 * self._suspects[suspect].wait_s, MAX_WAIT_S)
            self._suspects[suspect] = _CheckSchedule(now + wait_s, wait_s)
            await self._check(logs[suspect.partition], suspect)

    async def _check(self, item: PartitionLog, suspect: Hanging) -> None:
        marker = missing_marker(await self._dependencies.metadata.transaction_of(suspect.entry.producer_id), suspect)
        if marker is None or not item.barrier.is_open or suspect not in _open([item]):
            return
        try:
            await self._marker_writer.write(item, marker)
        except StreamhouseError as error:
            log.warning("hanging transaction not ended", extra={"partition": str(item.name), "why": str(error)})
        else:
            self.ended += 1
            fields = {"partition": str(item.name), "producer": suspect.entry.producer_id, "commit": marker.is_commit}
            log.warning("hanging transaction ended", extra=fields)


def _holds_back_lso(item: PartitionLog) -> bool:
    return item.closed is None and item.last_stable_offset < item.high_watermark


def _open(logs: Iterable[PartitionLog]) -> Sequence[Hanging]:
    return [Hanging(item.partition, entry) for item in logs for entry in item.open_entries()]


EXPIRE_IDS_S: Final = 3600.0
EXPIRED_AT_ONCE: Final = 1000


class TransactionSweeper:
    def __init__(
        self,
        dependencies: Dependencies,
        *,
        endings: TransactionCompletion,
        hanging: HangingTransactions,
        is_ours: Callable[[str], bool],
        forgets: Callable[[], bool],
    ) -> None:
        """`is_ours`: whether this agent coordinates a transactional id; `forgets`: whether this agent deletes idle
        transactional ids."""
        self._clock = dependencies.clock
        self._ids = dependencies.ids
        self._metadata = dependencies.metadata
        self._settings = dependencies.settings.transactions
        self._endings = endings
        self._hanging = hanging
        self._is_ours = is_ours
        self._forgets = forgets
        self._forget_at = dependencies.clock.monotonic()
        self._seen: StoredTransaction | None = None
        self.expired = 0
        self.forgotten = 0

    def __repr__(self) -> str:
        return f"<TransactionSweeper expired={self.expired} forgotten={self.forgotten}>"

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            await self._clock.sleep(self._ids.jitter(self._settings.check_s))
            try:
                await self.sweep()
                await self._hanging.sweep()
                await self._forget()
            except StreamhouseError as error:
                log.warning("transaction sweep failed, will retry", extra={"why": str(error)})

    async def sweep(self) -> None:
        """Start to complete overdue transactions. If there are more than the limit, the next sweep continues after
        them, because the oldest may be those that can't be completed now."""
        limit = self._settings.max_waiting
        due = await self._metadata.due_transactions(
            prepared_before_ms=round(self._settings.grace_s * 1000), limit=limit, after=self._seen
        )
        self._seen = due[-1] if len(due) >= limit else None
        for each in due:
            if self._is_ours(each.transactional_id):
                await self._take(each)

    async def _take(self, due: StoredTransaction) -> None:
        decided: StoredTransaction | None = due
        if not due.state.is_prepared:
            decided = await self._metadata.expire_transaction(due.transactional_id, due.number)
            self.expired += decided is not None
        # Half of the capacity is for producers that wait for the end of their own transactions.
        has_capacity = 2 * len(self._endings) <= self._settings.max_waiting
        if decided is not None and has_capacity and not self._endings.is_suspended(decided):
            self._endings.begin(decided)

    async def _forget(self) -> None:
        now = self._clock.monotonic()
        if now < self._forget_at or not self._forgets():
            return
        older_than_ms = round(self._settings.expire_s * 1000)
        gone = await self._metadata.forget_transactions(older_than_ms, EXPIRED_AT_ONCE)
        self.forgotten += gone
        if gone < EXPIRED_AT_ONCE:
            self._forget_at = now + self._ids.jitter(min(EXPIRE_IDS_S, self._settings.expire_s))
