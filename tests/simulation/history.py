"""History: what was sent, acknowledged and read, and whether it keeps the promises.

Owns        the facts (this batch stands at this offset of this partition) and every rule that is checked
Leaves      making requests to the clients; what a power cut may take to the caller, who can look at the disk

A fact begins when the broker acknowledges a batch or hands it to a reader: at that moment, not when the client hears
of it. From then on, for as long as no retention may have taken it (`retention_model`, not the log start that the
product tells, says what may go):

  - its offset shows this batch and no other, to everybody, across every restart, byte for byte
  - no reader passes over it, and no high watermark shown later lies below its end
  - the batch stands nowhere else, so a retry or a duplicate of it is answered with this offset
  - its leader epoch never changes, and epochs grow with offsets

High watermarks and log starts never go back, seen from one request to a later one. Nothing is ever read that was
never sent. Producers' sequences grow with offsets.

What a power cut takes: with fsync=always, nothing. Otherwise facts whose bytes were neither in a published segment nor
in a synced part of the WAL stop being facts at the cut. Their offsets may then show the same batch (its bytes made
it), nothing, or a later batch under a higher epoch; the batch itself may be stored anew. The high watermark may go
back to the end of the last fact that remains. Nothing else changes: what remains must remain.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from crc32c import crc32c

from streamhouse.errors import OffsetOutOfRange
from streamhouse.format.batch import HEADER_BYTES, Buffer, iter_batches, read_header
from streamhouse.format.transactions import read_marker
from streamhouse.model.fetch import FetchResult, OffsetResult
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.transaction import Marker

from .loop import SimLoop, Violation
from .metadata import SimDatabase
from .recorder import Recorder
from .retention_model import RetentionModel


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sent:
    """A batch as a client made it; its records are in no other batch."""

    name: TopicPartition
    data: bytes
    times_ms: tuple[int, ...]
    label: str
    forms: list[bytes] = field(default_factory=list)
    """The same records as they were sent again, under other epochs."""

    @property
    def latest(self) -> bytes:
        return self.forms[-1] if self.forms else self.data

    @property
    def number(self) -> int:
        """Whoever makes batches counts them."""
        return int(self.label.rpartition(".")[2])

    @property
    def maker(self) -> str:
        return self.label.rpartition(".")[0]

    @property
    def identity(self) -> bytes:
        return self.data[HEADER_BYTES:]

    @property
    def count(self) -> int:
        return len(self.times_ms)


@dataclass(slots=True, kw_only=True, eq=False)
class Fact:
    sent: Sent
    base: int
    epoch: int
    is_acked: bool = False

    @property
    def end(self) -> int:
        return self.base + self.sent.count

    def __str__(self) -> str:
        return f"{self.sent.label}@[{self.base},{self.end}) epoch={self.epoch}{' acked' if self.is_acked else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What was known when a request began; its answer may not fall behind it."""

    high_watermark: int
    log_start: int
    cuts: int


class PartitionHistory:
    def __init__(self, partition: PartitionId, name: TopicPartition) -> None:
        self.partition = partition
        self.name = name
        self.facts: dict[int, Fact] = {}
        self.bases: list[int] = []
        self.where: dict[bytes, Fact] = {}
        self.markers: dict[int, Marker] = {}
        self.high_watermark = 0
        self.log_start = 0
        self.deletion_requested = 0
        """Up to where somebody has asked to delete records, answered or not."""
        self.allowed_start = 0
        """The newest log start that the model of retention was asked about."""
        self.cuts = 0
        """How often records may have been lost with the power."""

    @property
    def acknowledged_end(self) -> int:
        return max((fact.end for fact in self.facts.values() if fact.is_acked), default=0)

    def before(self) -> Before:
        return Before(high_watermark=self.high_watermark, log_start=self.log_start, cuts=self.cuts)

    def between(self, start: int, end: int) -> Iterable[Fact]:
        """Facts that begin in [start, end)."""
        for base in self.bases[bisect_left(self.bases, start) : bisect_left(self.bases, end)]:
            yield self.facts[base]

    def add(self, fact: Fact) -> None:
        self.facts[fact.base] = fact
        insort(self.bases, fact.base)
        self.where[fact.sent.identity] = fact

    def forget(self, fact: Fact) -> None:
        del self.facts[fact.base]
        del self.where[fact.sent.identity]
        self.bases.remove(fact.base)

    def neighbours(self, base: int) -> tuple[Fact | None, Fact | None]:
        """The facts that begin at or below `base`, and above it."""
        place = bisect_right(self.bases, base)
        below = self.facts[self.bases[place - 1]] if place else None
        above = self.facts[self.bases[place]] if place < len(self.bases) else None
        return below, above


class History:
    def __init__(self, loop: SimLoop, database: SimDatabase, retention: RetentionModel) -> None:
        self._loop = loop
        self._database = database
        self._retention = retention
        self.recorder = Recorder(loop.time)
        self._sent: dict[bytes, Sent] = {}
        self._partitions: dict[PartitionId, PartitionHistory] = {}
        self.acks = 0
        self.duplicates = 0
        self.placements = 0
        self.reads = 0
        self.forgiven = 0

    def partitions(self) -> Sequence[PartitionHistory]:
        return list(self._partitions.values())

    def of(self, partition: PartitionId, name: TopicPartition) -> PartitionHistory:
        result = self._partitions.get(partition)
        if result is None:
            result = self._partitions[partition] = PartitionHistory(partition, name)
        return result

    def violated(self, what: str) -> None:
        self._loop.note(f"VIOLATION {what}")
        self._loop.fail(Violation(what))

    # --- what happens

    def send(self, sent: Sent) -> None:
        self._sent[sent.identity] = sent
        self._retention.sent(sent)
        self.recorder.sent(sent)

    def bounds(self, log: PartitionHistory) -> tuple[int, int] | None:
        """Log start and flushed end, as the database has them; None when the partition is gone. That a log starts
        there excuses nothing unless retention, or somebody's request, may have taken what was before."""
        bounds = self._database.bounds(log.partition)
        if bounds is not None:
            self._check_start(log, bounds[0])
        return bounds

    def _check_start(self, log: PartitionHistory, start: int) -> None:
        if start <= log.allowed_start:
            return
        log.allowed_start = start
        if not self._retention.allows(log, start):
            self.violated(f"records were deleted that must be kept; {log.name} log_start={start}")

    def acknowledged(self, log: PartitionHistory, sent: Sent, base: int, *, epoch: int | None) -> Fact | None:
        """The broker has acknowledged `sent` at `base`; `epoch` None for a duplicate."""
        self.acks += 1
        if epoch is None:
            self.duplicates += 1
        self.recorder.acknowledged(sent, base)
        fact = self._observe(log, sent, base, epoch)
        if fact is not None:
            fact.is_acked = True
        log.high_watermark = max(log.high_watermark, base + sent.count)
        return fact

    def placed(self, log: PartitionHistory, sent: Sent, base: int) -> None:
        """A commit that has happened gave `sent` this place. Its leader may show it a little later."""
        self.placements += 1
        self.recorder.acknowledged(sent, base)
        fact = self._observe(log, sent, base, None)
        if fact is not None:
            fact.is_acked = True

    def shown(self, log: PartitionHistory, sent: Sent, base: int, *, epoch: int) -> None:
        """An agent has shown `sent` at `base` to whoever read there."""
        self._observe(log, sent, base, epoch)

    def stored(self, log: PartitionHistory, sent: Sent) -> bool:
        return sent.identity in log.where

    def fetched(self, log: PartitionHistory, before: Before, offset: int, got: FetchResult) -> int:
        """A fetch from `offset` was answered; returns the offset after what it brought."""
        if got.error is not None:
            self._refused(log, before, offset, got)
            return offset
        self.reads += 1
        self.saw_bounds(log, before, high_watermark=got.high_watermark, log_start=got.log_start)
        at = offset
        for buffer in got.records:
            for span in iter_batches(buffer):
                at = self._read(log, offset, at, memoryview(buffer)[span.position : span.position + span.size_bytes])
        # A log that ended meanwhile has an old high watermark; what was published since then may be read all the same.
        bounds = self.bounds(log) if at > got.high_watermark else None
        if at > max(got.high_watermark, offset, bounds[1] if bounds is not None else 0):
            self.violated(f"a read passed the high watermark; {log.name} offset={at} hwm={got.high_watermark}")
        return at

    def _read(self, log: PartitionHistory, offset: int, at: int, batch: memoryview) -> int:
        header = read_header(batch)
        end = header.base_offset + header.record_count
        if header.base_offset < at and not (at == offset < end):
            self.violated(f"offsets went back in a read; {log.name} from={offset} at={at} base={header.base_offset}")
        if not header.record_count:  # it takes readers over offsets that a damaged log may have given away
            self._passed_over(log, at, gap_end := header.base_offset + header.last_offset_delta + 1)
            return gap_end
        self._passed_over(log, at, header.base_offset)
        if header.is_control:
            self._marked(log, header.base_offset, read_marker(batch))
            return end
        sent = self._sent.get(bytes(batch[HEADER_BYTES:]))
        if sent is None or sent.name != log.name:
            self.violated(f"a batch was read that was never sent; {log.name} base={header.base_offset} sent={sent}")
            return end
        self._check_bytes(log, sent, batch)
        self._observe(log, sent, header.base_offset, header.leader_epoch)
        return end

    def _marked(self, log: PartitionHistory, base: int, marker: Marker) -> None:
        """A marker stands where it was first seen, and says the same."""
        below, _ = log.neighbours(base)
        if below is not None and below.end > base:
            self.violated(f"an offset has a record and a marker; {log.name} {base} {marker} {below}")
        if log.markers.setdefault(base, marker) != marker:
            self.violated(f"an offset has two markers; {log.name} {base} {marker} {log.markers[base]}")

    def _check_bytes(self, log: PartitionHistory, sent: Sent, batch: memoryview) -> None:
        """Byte for byte as it was sent, but for offset, epoch and, where the topic asks, the append time."""
        header = read_header(batch)
        if header.is_log_append_time:
            same = any(batch[23:35] == data[23:35] and batch[43:] == data[43:] for data in (sent.data, *sent.forms))
            same = same and header.crc == crc32c(batch[21:])
        else:
            same = any(batch[16:] == data[16:] for data in (sent.data, *sent.forms))
        if not same:
            self.violated(f"a batch was changed; {log.name} {sent.label} base={header.base_offset}")

    def _passed_over(self, log: PartitionHistory, start: int, end: int) -> None:
        """A reader went from `start` to a batch at `end`: nothing that is still there may lie between."""
        for fact in log.between(start, end):
            bounds = self.bounds(log)
            if bounds is not None and fact.base >= bounds[0]:
                self.violated(f"a read passed over a record; {log.name} from={start} to={end} {fact}")

    def _refused(self, log: PartitionHistory, before: Before, offset: int, got: FetchResult) -> None:
        if not isinstance(got.error, OffsetOutOfRange):
            return
        bounds = self.bounds(log)
        if bounds is not None and bounds[0] <= offset <= before.high_watermark and before.cuts == log.cuts:
            self.violated(f"an offset in range was refused; {log.name} {got.error} {before}")

    def saw_bounds(self, log: PartitionHistory, before: Before, *, high_watermark: int, log_start: int) -> None:
        if high_watermark < before.high_watermark and before.cuts == log.cuts:
            self.violated(f"the high watermark went back; {log.name} now={high_watermark} {before}")
        self._check_start(log, log_start)
        if log_start < before.log_start:
            self.violated(f"the log start went back; {log.name} now={log_start} {before}")
        log.high_watermark = max(log.high_watermark, high_watermark)
        log.log_start = max(log.log_start, log_start)

    def found_by_time(
        self, log: PartitionHistory, known: Sequence[Fact], time_ms: int, got: OffsetResult | None
    ) -> None:
        """Of the facts known when the question was asked, none that fits may lie before the answer."""
        bounds = self.bounds(log)
        if bounds is None:
            return
        for fact in known:
            if log.facts.get(fact.base) is not fact or fact.base < bounds[0]:
                continue
            for delta, at_ms in enumerate(fact.sent.times_ms):
                if at_ms >= time_ms and (got is None or got.offset > fact.base + delta):
                    self.violated(f"a record was not found by its time; {log.name} time={time_ms} got={got} {fact}")
                    return
        holder = log.neighbours(got.offset)[0] if got is not None else None
        if got is None or holder is None or got.offset >= holder.end:
            return
        if holder.sent.times_ms[got.offset - holder.base] < time_ms:
            self.violated(f"a record before the time was found; {log.name} time={time_ms} got={got} {holder}")

    def found_latest(self, log: PartitionHistory, known: Sequence[Fact], got: OffsetResult | None) -> None:
        """Of the facts known when the question was asked, none may be later than the answer."""
        bounds = self.bounds(log)
        if bounds is None:
            return
        for fact in known:
            if log.facts.get(fact.base) is not fact or fact.base < bounds[0]:
                continue
            if got is None or got.timestamp_ms < max(fact.sent.times_ms):
                self.violated(f"the latest record was not found; {log.name} got={got} {fact} {fact.sent.times_ms}")
                return

    # --- facts

    def _observe(self, log: PartitionHistory, sent: Sent, base: int, epoch: int | None) -> Fact | None:
        self.recorder.stands(log, sent)
        fact = log.facts.get(base)
        if fact is None or fact.sent is not sent:
            return self._add(log, sent, base, epoch)
        if epoch is not None and fact.epoch == -1:
            fact.epoch = epoch
        if epoch is not None and fact.epoch != epoch:
            self.violated(f"a batch changed its epoch; {log.name} {fact} now={epoch}")
        return fact

    def _add(self, log: PartitionHistory, sent: Sent, base: int, epoch: int | None) -> Fact | None:
        new = Fact(sent=sent, base=base, epoch=-1 if epoch is None else epoch)
        if (other := log.where.get(sent.identity)) is not None:
            self.violated(f"a batch stands at two offsets; {log.name} first={other} second={new}")
            return None
        below, above = log.neighbours(base)
        if (below is not None and below.end > base) or (above is not None and above.base < new.end):
            self.violated(f"an offset has two records; {log.name} new={new} below={below} above={above}")
            return None
        if (marker := next((at for at in range(base, new.end) if at in log.markers), None)) is not None:
            self.violated(f"an offset has a marker and a record; {log.name} {new} {log.markers[marker]}")
            return None
        if new.epoch >= 0 and (
            (below is not None and below.epoch > new.epoch) or (above is not None and 0 <= above.epoch < new.epoch)
        ):
            self.violated(f"epochs do not grow with offsets; {log.name} new={new} below={below} above={above}")
        log.add(new)
        return new

    def power_cut(self, survives: Callable[[PartitionHistory, Fact], bool]) -> None:
        """The policy did not promise everything: forget what the disk had not synced."""
        for log in self._partitions.values():
            bounds = self.bounds(log)
            if bounds is None:
                continue
            for fact in [fact for fact in log.facts.values() if fact.end > bounds[1] and not survives(log, fact)]:
                log.forget(fact)
                self.forgiven += 1
            lost = [base for base in log.markers if base >= bounds[1]]
            self.recorder.power_failed(log, log.where.__contains__, markers=lost)
            log.cuts += 1
            log.markers = {base: marker for base, marker in log.markers.items() if base < bounds[1]}
            log.high_watermark = max([bounds[1], *(fact.end for fact in log.facts.values())])

    # --- the end

    def complete(self, log: PartitionHistory, log_start: int, scanned: Sequence[Buffer]) -> None:
        """A whole log was read, from its start to its end: every fact must be in it, and sequences grow; so do the
        numbers of what one producer has made, whatever its epochs."""
        self._check_start(log, log_start)
        result = {header.base_offset: header for header in map(read_header, scanned)}
        for fact in log.facts.values():
            if fact.base >= log_start and fact.base not in result:
                self.violated(f"a record is lost; {log.name} {fact} log_start={log_start}")
        last: dict[tuple[int, int], int] = {}
        made: dict[tuple[int, str], int] = {}
        for batch in sorted(scanned, key=lambda batch: read_header(batch).base_offset):
            header = read_header(batch)
            if header.producer_id < 0 or header.is_control:
                continue
            sent = self._sent.get(bytes(memoryview(batch)[HEADER_BYTES:]))
            if sent is not None:
                maker = (header.producer_id, sent.maker)
                if sent.number < made.get(maker, -1):
                    self.violated(f"a batch stands behind a later one; {log.name} {sent.label} {header.base_offset}")
                made[maker] = sent.number
            producer = (header.producer_id, header.producer_epoch)
            if header.base_sequence <= last.get(producer, -1):
                self.violated(f"sequences do not grow; {log.name} base={header.base_offset} {producer}")
            last[producer] = header.last_sequence
