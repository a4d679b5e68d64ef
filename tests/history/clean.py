"""Clean histories: what clients of a cluster that keeps every promise could have seen, by chance.

Owns        a tiny broker that does everything right, and clients that do anything that clients may do
Leaves      what is wrong to the tests, which break one thing in such a history
"""

import random
from collections import defaultdict

from .events import (
    Assignment,
    Commit,
    CommittedSeen,
    History,
    Item,
    LogRead,
    Outcome,
    Poll,
    Range,
    Reader,
    StableSeen,
    Transaction,
    Write,
)

GROUP = "group"
PARTITIONS = ("a", "b")


class Cluster:
    """One step is one unit of time, so that nothing happens at the same time unless it is said."""

    def __init__(self, seed: int, *, steps: int = 60) -> None:
        self._chance = random.Random(seed)
        self._steps = steps
        self._now = 0.0
        self._logs: dict[str, list[str | None]] = {partition: [] for partition in PARTITIONS}
        """None: a marker, which nobody is given"""
        self._open: dict[str, Transaction] = {}
        self._decided: dict[str, bool] = {}
        self._numbers: dict[tuple[str, str], int] = defaultdict(int)
        self._orders: dict[str, int] = defaultdict(int)
        self._positions: dict[str, int] = dict.fromkeys(PARTITIONS, 0)
        self._group: dict[str, int] = dict.fromkeys(PARTITIONS, 0)
        self._copied: dict[str, int] = dict.fromkeys(PARTITIONS, 0)
        self._lanes: dict[str, Write] = {}
        self.history = History()

    def run(self) -> History:
        acts = (self._send, self._send, self._poll, self._group_reads, self._begin, self._end, self._copy, self._ask)
        for _ in range(self._steps):
            self._chance.choice(acts)()
        self._finish()
        return self.history

    def tick(self) -> float:
        self._now += 1.0
        return self._now

    # --- writing

    def _send(self) -> None:
        producer = self._chance.choice(("p1", "p2"))
        write = self._append(producer, self._chance.choice(PARTITIONS), None)
        if self._chance.random() < 0.15:  # the answer is lost
            write.is_acked, write.offset = False, None
            if self._chance.random() < 0.5:
                self._take_back(write)

    def _append(self, producer: str, partition: str, transaction: str | None) -> Write:
        key = (producer, partition)
        number, self._numbers[key] = self._numbers[key], self._numbers[key] + 1
        log = self._logs[partition]
        write = Write(
            producer=producer,
            partition=partition,
            value=f"{producer}/{partition}/{number}",
            number=(number,),
            begun=self.tick(),
            ended=self.tick(),
            offset=len(log),
            is_acked=True,
            transaction=transaction,
        )
        log.append(write.value)
        self.history.writes.append(write)
        return write

    def _take_back(self, write: Write) -> None:
        """It was never stored."""
        log = self._logs[write.partition]
        if log[-1] == write.value:
            log[-1] = None

    # --- transactions

    def _begin(self) -> None:
        name = self._chance.choice(("t1", "t2"))
        if name in self._open:
            return
        self._orders[name] += 1
        label = f"{name}/{self._orders[name]}"
        transaction = Transaction(
            label=label, transactional_id=name, order=(self._orders[name],), begun=self.tick(), consumed=[]
        )
        self._open[name] = transaction
        self.history.transactions.append(transaction)
        for _ in range(self._chance.randint(1, 3)):
            self._append(name, self._chance.choice(PARTITIONS), label)

    def _copy(self) -> None:
        """A transaction reads what is committed, writes, and commits how far it has read."""
        if not self._open:
            return
        transaction = self._chance.choice(sorted(self._open.items()))[1]
        partition = self._chance.choice(PARTITIONS)
        start, end = self._copied[partition], self._stable(partition)
        if end <= start or any(each.partition == partition for each in self._claimed()):
            return
        poll = self._read("copier", partition, start, is_committed=True)
        poll.transaction = transaction.label
        transaction.consumed = [*transaction.consumed, Range("copiers", partition, start, poll.end)]
        self._append(transaction.transactional_id, self._chance.choice(PARTITIONS), transaction.label)

    def _claimed(self) -> list[Range]:
        return [consumed for each in self._open.values() for consumed in each.consumed]

    def _end(self) -> None:
        if not self._open:
            return
        name, transaction = self._chance.choice(sorted(self._open.items()))
        del self._open[name]
        commits = self._chance.random() < 0.7
        if commits:
            transaction.commit_begun = self.tick()
        is_told = self._chance.random() < 0.8
        if is_told:
            transaction.outcome = Outcome.COMMITTED if commits else Outcome.REFUSED
        self._decided[transaction.label] = commits
        for partition in PARTITIONS:
            self._logs[partition].append(None)
        if commits:
            for consumed in transaction.consumed:
                self._copied[consumed.partition] = consumed.end
        if is_told:
            transaction.ended = self.tick()
        else:
            self.tick()

    # --- reading

    def _stable(self, partition: str) -> int:
        labels = {each.label for each in self._open.values()}
        open_values = {write.value for write in self.history.writes if write.transaction in labels}
        log = self._logs[partition]
        return next((offset for offset, value in enumerate(log) if value in open_values), len(log))

    def _items(self, partition: str, start: int, end: int, *, is_committed: bool) -> list[Item]:
        of = {write.value: write.transaction for write in self.history.writes}
        results = []
        for offset, value in enumerate(self._logs[partition][:end]):
            if offset < start or value is None:
                continue
            transaction = of[value]
            if not is_committed or transaction is None or self._decided.get(transaction, False):
                results.append(Item(offset, value))
        return results

    def _read(self, reader: str, partition: str, start: int, *, is_committed: bool) -> Poll:
        begun = self.tick()
        end = self._stable(partition) if is_committed else len(self._logs[partition])
        if end - start > 2 and self._chance.random() < 0.5:
            end = self._chance.randint(start + 1, end)
        items = self._items(partition, start, end, is_committed=is_committed)
        poll = Poll(
            reader=reader,
            partition=partition,
            start=start,
            end=end,
            items=items,
            begun=begun,
            ended=self.tick(),
            is_committed=is_committed,
        )
        self.history.polls.append(poll)
        return poll

    def _poll(self) -> None:
        partition = self._chance.choice(PARTITIONS)
        self._positions[partition] = max(
            self._positions[partition],
            self._read("follower", partition, self._positions[partition], is_committed=True).end,
        )

    def _group_reads(self) -> None:
        partition = self._chance.choice(PARTITIONS)
        poll = self._read(GROUP, partition, self._group[partition], is_committed=False)
        commit = Commit(group=GROUP, member="m1", partition=partition, offset=poll.end, begun=self.tick(), generation=1)
        self.history.commits.append(commit)
        commit.ended, commit.outcome = self.tick(), Outcome.COMMITTED
        self._group[partition] = poll.end

    def _ask(self) -> None:
        partition = self._chance.choice(PARTITIONS)
        is_known = any(each.partition == partition for each in self.history.commits)
        offset = self._group[partition] if is_known else -1
        self.history.committed.append(CommittedSeen(GROUP, partition, offset, self.tick(), self.tick()))

    def _finish(self) -> None:
        history = self.history
        while self._open:
            self._end()
        history.healed_at = self.tick()
        self._send_until_acked()
        for partition in PARTITIONS:
            while self._group[partition] < len(self._logs[partition]):
                self._group_reads_from(partition)
            while self._positions[partition] < len(self._logs[partition]):
                self._positions[partition] = self._read(
                    "follower", partition, self._positions[partition], is_committed=True
                ).end
            end = len(self._logs[partition])
            history.stable.append(StableSeen(partition, end, end))
            for is_committed in (False, True, False, True):
                items = self._items(partition, 0, end, is_committed=is_committed)
                history.logs.append(LogRead(partition=partition, items=items, is_committed=is_committed))
        history.readers += [
            Reader(name="follower", in_order=True, is_committed=True, reads_after_healing=True),
            Reader(name=GROUP, reads_after_healing=True),
        ]
        history.assignments += [Assignment(GROUP, 1, "m1", PARTITIONS), Assignment(GROUP, 2, "m2", PARTITIONS)]

    def _send_until_acked(self) -> None:
        for producer in ("p1", "p2"):
            self._append(producer, self._chance.choice(PARTITIONS), None)

    def _group_reads_from(self, partition: str) -> None:
        self._group[partition] = self._read(GROUP, partition, self._group[partition], is_committed=False).end


def clean_history(seed: int, *, steps: int = 60) -> History:
    return Cluster(seed, steps=steps).run()
