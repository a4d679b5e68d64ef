"""TransactionHistory: what transactional producers were told, what readers of committed records saw, whether it fits.

Owns        what must hold of transactions, their offsets, and producers that were replaced
Leaves      where batches stand to `history`; making requests to `transactors`

A transaction may be committed only if its client asked for that. Told so, it is; else what the first reader saw decides
what all others see: in every partition, for ever, and of its offsets. Readers do what Kafka's clients do with what a
fetch tells of aborted transactions. What a reader got is decided: a transaction that is still open in the database
neither counts nor is it void.

Once a producer was told that a transactional id is its own, no request of one before it that begins later changes
anything.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from streamhouse.format.batch import HEADER_BYTES, BatchHeader
from streamhouse.format.transactions import read_marker
from streamhouse.model.fetch import FetchResult
from streamhouse.model.names import TopicPartition
from streamhouse.model.transaction import ProducerIdentity

from .history import Sent
from .metadata import SimDatabase
from .recorder import Recorder, batches_of

OPEN = "Ongoing"


@dataclass(slots=True, kw_only=True, eq=False)
class Transaction:
    """One, as its client knows it."""

    label: str
    transactional_id: str
    producer: ProducerIdentity
    number: int | None = None
    """Which of the producer's it is, once somebody has seen that."""
    names: dict[TopicPartition, None] = field(default_factory=dict)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    is_over: bool = False
    """Whether its client is done with it: what comes of it now is late."""
    may_commit: bool = False
    """Whether its client has asked for that."""
    is_committed: bool = False
    """Whether its client was told so."""
    seen: bool | None = None
    """Whether it counts, by what somebody has read."""
    is_aborted: bool = False
    """Whether its client was told that."""
    begun_at: float = 0.0
    commit_requested_at: float | None = None
    ended_at: float | None = None
    is_forgiven: bool = False
    """Whether the power took something of it, or may have."""

    def __str__(self) -> str:
        return (
            f"{self.label} id={self.transactional_id} producer={self.producer} number={self.number} "
            f"asked={self.may_commit} told={self.is_committed} seen={self.seen}"
        )


class TransactionHistory:
    def __init__(
        self, violated: Callable[[str], None], database: SimDatabase, recorder: Recorder, *, now: Callable[[], float]
    ) -> None:
        self._recorder = recorder
        self._violated = violated
        self._database = database
        self._now = now
        self._of: dict[bytes, Transaction] = {}
        self._by_label: dict[str, Transaction] = {}
        self._fences: dict[str, list[tuple[float, int]]] = {}
        self._newest: dict[tuple[str, TopicPartition], Transaction] = {}
        """Of each group and partition the newest transaction whose client was told that it is committed."""
        self.begun = 0
        self.committed = 0
        self.counted = 0
        self.void = 0
        self.zombies = 0

    # --- what clients do

    def begin(self, label: str, transactional_id: str, producer: ProducerIdentity) -> Transaction:
        self.begun += 1
        result = Transaction(label=label, transactional_id=transactional_id, producer=producer, begun_at=self._now())
        self._by_label[label] = result
        return result

    def send(self, transaction: Transaction, sent: Sent) -> None:
        self._of[sent.identity] = transaction
        transaction.names[sent.name] = None
        self._recorder.in_transaction(sent, transaction.label)

    def asks_for_end(self, transaction: Transaction, *, commit: bool) -> None:
        transaction.is_over = True
        transaction.may_commit = transaction.may_commit or commit
        if commit and transaction.commit_requested_at is None:
            transaction.commit_requested_at = self._now()

    def placed(self, transaction: Transaction) -> None:
        """Something of it was accepted: if it is the one in the database, its number is known."""
        if transaction.is_over or transaction.number is not None:
            return
        row = self._database.transaction(transaction.transactional_id)
        if row is not None and row.state == OPEN and row.producer == transaction.producer:
            transaction.number = row.number

    def told_committed(self, transaction: Transaction) -> None:
        self.committed += 1
        transaction.is_committed = True
        transaction.ended_at = self._now()
        if transaction.seen is False:
            self._blame(transaction, "a transaction was void, and its commit is acknowledged")
        for name in transaction.offsets:
            at = (group_of(transaction.transactional_id), name)
            before = self._newest.get(at)
            if before is None or (before.number or 0) < (transaction.number or 0):
                self._newest[at] = transaction

    def told_aborted(self, transaction: Transaction) -> None:
        transaction.is_aborted = True
        transaction.ended_at = self._now()

    def all_of_them(self) -> Iterable[Transaction]:
        return self._by_label.values()

    def power_cut(self) -> None:
        for transaction in self._by_label.values():
            transaction.is_forgiven = True
        self._newest.clear()

    # --- producers that were replaced

    def took(self, transactional_id: str, producer: ProducerIdentity) -> None:
        """Somebody has been told that the id is its own."""
        self._fences.setdefault(transactional_id, []).append((self._now(), producer.epoch))

    def check_fence(self, what: str, transactional_id: str, producer: ProducerIdentity, *, since: float) -> None:
        """Something was accepted of a producer that asked at `since`."""
        later = [(at, epoch) for at, epoch in self._fences.get(transactional_id, ()) if at < since]
        if any(epoch > producer.epoch for _, epoch in later):
            self._violated(f"a producer that was replaced could {what}; {transactional_id} {producer} {later[-3:]}")

    # --- what readers see

    def read(self, name: TopicPartition, got: FetchResult) -> None:
        """A fetch of committed records was answered."""
        if got.last_stable > got.high_watermark:
            self._violated(f"the last stable offset is above the high watermark; {name} {got}")
        waiting = sorted(got.aborted, key=lambda each: each.first_offset)
        void: set[int] = set()
        for header, data in batches_of(got.records):
            last = header.base_offset + header.last_offset_delta
            if last >= max(got.last_stable, 0):
                self._violated(f"a read passed the last stable offset; {name} offset={last} lso={got.last_stable}")
            while waiting and waiting[0].first_offset <= last:
                void.add(waiting.pop(0).producer_id)
            if header.is_control:
                if not read_marker(data).is_commit:
                    void.discard(header.producer_id)
            elif header.is_transactional:
                self._decided(name, header, self._of[bytes(memoryview(data)[HEADER_BYTES:])], void)

    def _decided(self, name: TopicPartition, header: BatchHeader, transaction: Transaction, void: set[int]) -> None:
        row = self._database.transaction(transaction.transactional_id)
        if row is not None and row.state == OPEN and row.number == transaction.number:
            self._blame(transaction, f"a record of an open transaction was read; {name} {header.base_offset}")
        if header.producer_id in void:
            self.saw(transaction, counts=False, where=f"{name} {header.base_offset}")
        else:
            self.saw(transaction, counts=True, where=f"{name} {header.base_offset}")

    def saw(self, transaction: Transaction, *, counts: bool, where: str) -> None:
        """Somebody could tell whether a transaction counts."""
        if counts and not transaction.may_commit:
            self._blame(transaction, f"a transaction counts that nobody has committed; {where}")
        if not counts and transaction.is_committed:
            self._blame(transaction, f"a committed transaction does not count; {where}")
        if transaction.seen is not None and transaction.seen is not counts:
            self._blame(transaction, f"a transaction counts for some and not for others; {where}")
        if transaction.seen is None:
            self.counted += counts
            self.void += not counts
        transaction.seen = counts

    # --- offsets

    def newest(self, transactional_id: str, name: TopicPartition) -> Transaction | None:
        """What a question that begins now must be told at least."""
        return self._newest.get((group_of(transactional_id), name))

    def told_offset(
        self, transactional_id: str, name: TopicPartition, told: tuple[int, str] | None, least: Transaction | None
    ) -> None:
        """An offset of a group, and the text with it; `least` was the newest when it was asked for."""
        if told is None:
            if least is not None and not least.is_forgiven:
                self._violated(f"an offset that was committed with a transaction is not there; {name} {least}")
            return
        offset, label = told
        transaction = self._by_label[label]
        if transaction.offsets.get(name) != offset:
            self._violated(f"an offset was told that nobody committed; {name} {told} {transaction}")
        self.saw(transaction, counts=True, where=f"offset of {name}")
        if least is not None and least.number is not None and (transaction.number or least.number) < least.number:
            self._blame(transaction, f"an offset was told that was replaced; {name} newest={least}")

    def _blame(self, transaction: Transaction, what: str) -> None:
        if not transaction.is_forgiven:
            self._violated(f"{what}; {transaction}")


def group_of(transactional_id: str) -> str:
    """The group whose offsets go with the transactions of an id."""
    return f"readers-of-{transactional_id}"
