"""Eager producers: one that has several requests under way in all of its partitions at once, as librdkafka does.

Owns        its windows, putting back what was refused, another epoch after a gap
Leaves      requests to `clients`, the verdict to `history`

The rules are librdkafka's, also those that do harm. What was not acknowledged is put back in its place and sent again
after a while. Nothing goes to the next leader while an answer of the one before is due; but an answer counts as there a
moment before its batch is put back, and then batches behind it may go there; to the same leader they go in order. One
of those that is called out of order begins another epoch: when nothing is under way any more, whatever is not
acknowledged is numbered anew, in all partitions. If an answer was lost, its batch is then stored twice, and history
says so.
"""

import asyncio
from bisect import insort
from collections.abc import Sequence

from crc32c import crc32c

from streamhouse.errors import DuplicateSequence, OutOfOrderSequence, StreamhouseError
from streamhouse.model.names import TopicPartition

from .clients import Client, simply
from .history import Sent
from .network import Connection, Lost
from .producers import WINDOW
from .world import World

SLIP = 0.3
"""Share of the gap_guard after which batches may go before the refused one is put back."""
SLIP_S = 0.02
BACKOFF_S = (0.02, 0.3)


class Line:
    """The batches of one partition; in the order in which they were made, wherever they are."""

    def __init__(self, name: TopicPartition) -> None:
        self.name = name
        self.next_sequence = 0
        self.unsent: list[Sent] = []
        self.flying: dict[Sent, None] = {}
        self.returning: dict[Sent, None] = {}
        self.connection: Connection | None = None
        self.resumes_at = 0.0
        self.is_last_made = False

    def may_go(self, connection: Connection) -> bool:
        """To one leader batches go in order, whatever comes back; to the next one when no answer of that is due."""
        if self.connection is None:
            return True
        if connection.leads_where(self.connection):
            return not self.returning and (connection is self.connection or not self.flying)
        return not self.flying

    @property
    def is_under_way(self) -> bool:
        return bool(self.flying or self.returning)

    @property
    def unacked(self) -> list[Sent]:
        return sorted((*self.unsent, *self.flying, *self.returning), key=lambda sent: sent.number)


class EagerProducer(Client):
    speaks_kafka = True

    def __init__(self, world: World, name: str, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(world, name)
        self._lines = [Line(name) for name in partitions]
        self._producer_id = -1
        self._epoch = 0
        self._is_bumping = False

    async def run(self) -> None:
        while self._producer_id < 0:
            await self.pause(0.05)
            try:
                self._producer_id = await self.call(simply(lambda broker: broker.allocate_producer_id()))
            except (StreamhouseError, Lost):
                continue
        await asyncio.gather(*(self.loop.create_task(self._drive(line), name=self.name) for line in self._lines))

    async def _drive(self, line: Line) -> None:
        while not (self.world.is_quiet and line.is_last_made and not line.unacked):
            self._fill(line)
            if self._is_bumping:
                self._bump()
            elif line.unsent and len(line.flying) < WINDOW and self.loop.time() >= line.resumes_at:
                connection = await self.leader(line.name)
                if not self._is_bumping and line.may_go(connection):
                    self._send(line, connection)
            await self.pause(self.chance.choice((0.005, 0.05)))

    def _fill(self, line: Line) -> None:
        """Another batch now and then; and one when the faults are over, to see that it goes through."""
        is_quiet = self.world.is_quiet
        if line.is_last_made or len(line.unsent) >= WINDOW or not (is_quiet or self.chance.random() < 0.5):
            return
        line.is_last_made = is_quiet
        sent = self.make(
            line.name, producer_id=self._producer_id, producer_epoch=self._epoch, sequence=line.next_sequence
        )
        line.next_sequence += sent.count
        line.unsent.append(sent)

    def _send(self, line: Line, connection: Connection) -> None:
        line.connection = connection
        count = WINDOW - len(line.flying)
        going, line.unsent = line.unsent[:count], line.unsent[count:]
        patience_s = self.chance.choice((0.05, 1.0, 3.0))
        for sent in going:
            line.flying[sent] = None
            response = connection.send(self.appending(sent))
            self.loop.create_task(self._hear(line, sent, connection, response, patience_s), name=self.name)

    async def _hear(
        self, line: Line, sent: Sent, connection: Connection, response: "asyncio.Future[int]", patience_s: float
    ) -> None:
        try:
            await self.answer(connection, response, patience_s=patience_s)
        except DuplicateSequence:
            self.world.must_be_stored.append((sent, self.world.power_cuts))
        except OutOfOrderSequence as error:
            self._out_of_order(line, sent, error)
            await self._put_back(line, sent)
        except (StreamhouseError, Lost) as error:
            if isinstance(error, StreamhouseError) and self.is_for_good(error):
                self.history.violated(f"a good batch was refused for good; {sent.label} {error!r}")
            self.failed(line.name, error)
            await self._put_back(line, sent)
        line.flying.pop(sent, None)

    async def _put_back(self, line: Line, sent: Sent) -> None:
        del line.flying[sent]
        if self.chance.random() < SLIP:
            line.returning[sent] = None
            await self.pause(SLIP_S)
            del line.returning[sent]
        insort(line.unsent, sent, key=lambda each: each.number)
        line.resumes_at = self.loop.time() + self.chance.uniform(*BACKOFF_S)

    def _out_of_order(self, line: Line, sent: Sent, error: OutOfOrderSequence) -> None:
        if sent is line.unacked[0]:
            self.history.violated(f"a batch in order was refused; {sent.label} {error}")
        self._is_bumping = True

    def _bump(self) -> None:
        """Begin another epoch, unless something is under way still."""
        if any(line.is_under_way for line in self._lines):
            return
        self._is_bumping = False
        self._epoch += 1
        self.world.epochs_begun += 1
        self.loop.note(f"{self.name} begins epoch {self._epoch}")
        for line in self._lines:
            line.next_sequence = 0
            for sent in line.unsent:
                sent.forms.append(_renumbered(sent.data, epoch=self._epoch, sequence=line.next_sequence))
                line.next_sequence += sent.count


def _renumbered(data: bytes, *, epoch: int, sequence: int) -> bytes:
    rest = data[21:51] + epoch.to_bytes(2) + sequence.to_bytes(4) + data[57:]
    return data[:17] + crc32c(rest).to_bytes(4) + rest
