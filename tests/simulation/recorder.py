"""Recorder: what clients of a seed did and were told, as the events that the checker of all runs judges.

Data path   clients, history, transaction_history, group_history -> **recorder** -> tests.history
Owns        which record is which text, what each reader was given, what is told of a seed at its end
Leaves      judging to `tests.history`; rules that need a look behind the scenes to `history` and its like
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from streamhouse.format.batch import HEADER_BYTES, BatchHeader, Buffer, iter_batches, read_header
from streamhouse.format.transactions import read_marker
from streamhouse.model.fetch import FetchResult
from streamhouse.model.names import PartitionId, TopicPartition
from tests.history.events import History, Item, LogRead, Outcome, Poll, Reader, StableSeen, Write
from tests.history.events import Transaction as TransactionEvent

if TYPE_CHECKING:
    from .group_history import GroupHistory
    from .history import PartitionHistory, Sent
    from .transaction_history import Transaction


class Recorder:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._writes: dict[bytes, list[Write]] = {}
        self._labels: dict[bytes, str] = {}
        self._committed_readers: dict[str, tuple[bool, Sequence[TopicPartition]]] = {}
        self.events = History()

    # --- records

    def sent(self, sent: "Sent") -> None:
        header = read_header(sent.data)
        begun = self._now()
        writes = [
            Write(
                producer=f"{sent.maker}/{header.producer_id}",
                partition="",
                value=f"{sent.label}.{number}",
                number=(sent.number, number),
                begun=begun,
                in_order=header.producer_id >= 0,
                acks_in_order=False,
                may_wait=True,
            )
            for number in range(sent.count)
        ]
        self._writes[sent.identity] = writes
        self._labels[sent.identity] = sent.label
        self.events.writes += writes

    def stands(self, log: "PartitionHistory", sent: "Sent") -> None:
        """A batch was first seen in a partition: of a topic that was created anew, which one is known only then."""
        for write in self._writes[sent.identity]:
            write.partition = write.partition or named(log.partition)

    def acknowledged(self, sent: "Sent", base: int) -> None:
        """Told to its producer; what it is told last counts."""
        for number, write in enumerate(self._writes[sent.identity]):
            write.ended = write.ended if write.is_acked else self._now()
            write.is_acked, write.offset = True, base + number

    def in_transaction(self, sent: "Sent", label: str) -> None:
        for write in self._writes[sent.identity]:
            write.transaction = label

    def power_failed(
        self, log: "PartitionHistory", survives: Callable[[bytes], bool], *, markers: Iterable[int]
    ) -> None:
        kept = {write.value for identity in self._writes if survives(identity) for write in self._writes[identity]}
        self.events.power_failed(named(log.partition), kept.__contains__, markers=markers)

    # --- readers

    def polled(
        self, reader: str, partition: PartitionId, start: int, end: int, got: FetchResult, *, is_committed: bool
    ) -> None:
        now = self._now()
        items = self._items(visible(got, is_committed=is_committed))
        self.events.polls.append(
            Poll(
                reader=reader,
                partition=named(partition),
                start=start,
                end=end,
                items=[item for item in items if item.offset >= start],
                begun=now,
                ended=now,
                is_committed=is_committed,
            )
        )

    def read_whole(self, partition: PartitionId, got: Iterable[FetchResult], *, is_committed: bool) -> None:
        batches = (batch for each in got for batch in visible(each, is_committed=is_committed))
        items = list(dict.fromkeys(self._items(batches)))
        self.events.logs.append(LogRead(partition=named(partition), items=items, is_committed=is_committed))

    def _items(self, batches: Iterable[tuple[BatchHeader, Buffer]]) -> list[Item]:
        items: list[Item] = []
        for header, data in batches:
            label = self._labels.get(bytes(memoryview(data)[HEADER_BYTES:]))
            items += [
                Item(header.base_offset + number, None if label is None else f"{label}.{number}")
                for number in range(header.record_count)
            ]
        return items

    def follows(self, reader: str, names: Sequence[TopicPartition], *, is_committed: bool) -> None:
        self._committed_readers[reader] = (is_committed, names)

    def is_stable(self, partition: PartitionId, *, last_stable: int, high_watermark: int) -> None:
        self.events.stable.append(StableSeen(named(partition), last_stable, high_watermark))

    # --- the end

    def transactions(self, transactions: Iterable["Transaction"]) -> None:
        for each in transactions:
            self.events.transactions.append(_transaction(each))

    def deletable(self, logs: Iterable["PartitionHistory"]) -> None:
        """What the model of retention was asked about and allowed."""
        self.events.deletable = {named(log.partition): log.allowed_start for log in logs}

    def groups(self, groups: "GroupHistory") -> None:
        self.events.commits += groups.commit_events()
        self.events.committed += groups.told
        self.events.assignments += groups.handed_out

    def readers(self, partition: Callable[[TopicPartition], PartitionId | None]) -> None:
        for name, (is_committed, names) in self._committed_readers.items():
            known = (each for each in map(partition, names) if each is not None)
            topics = tuple(dict.fromkeys(named(each).rpartition("/")[0] for each in known))
            self.events.readers.append(Reader(name=name, topics=topics, is_committed=is_committed, must_read=False))


def _transaction(each: "Transaction") -> TransactionEvent:
    maker, _, count = each.label.rpartition("/")
    outcome = Outcome.COMMITTED if each.is_committed else Outcome.REFUSED if each.is_aborted else Outcome.UNKNOWN
    return TransactionEvent(
        label=each.label,
        transactional_id=maker,
        order=(int(count),),
        begun=each.begun_at,
        commit_begun=each.commit_requested_at if each.may_commit else None,
        ended=each.ended_at,
        outcome=outcome,
        is_given_up=each.is_forgiven,
    )


def named(partition: PartitionId) -> str:
    return f"{partition.topic_id}/{partition.partition}"


def visible(got: FetchResult, *, is_committed: bool) -> Iterator[tuple[BatchHeader, Buffer]]:
    """The batches that a consumer gives to its user: for committed records without those of aborted transactions, by
    what the answer says of them, as Kafka's clients do it."""
    waiting = sorted(got.aborted, key=lambda each: each.first_offset) if is_committed else []
    void: set[int] = set()
    for header, data in batches_of(got.records):
        last = header.base_offset + header.last_offset_delta
        while waiting and waiting[0].first_offset <= last:
            void.add(waiting.pop(0).producer_id)
        if header.is_control:
            if not read_marker(data).is_commit:
                void.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in void):
            yield header, data


def batches_of(buffers: Sequence[Buffer]) -> Iterator[tuple[BatchHeader, Buffer]]:
    for buffer in buffers:
        view = memoryview(buffer)
        for span in iter_batches(buffer):
            data = view[span.position : span.position + span.size_bytes]
            yield read_header(data), data
